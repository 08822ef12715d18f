package daemon_test

import (
	"testing"

	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// TestConformance holds the real daemon to what the doors above rely on.
func TestConformance(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) nouns.Set {
		return up(t, config(t, home(t))).Nouns()
	})
}
