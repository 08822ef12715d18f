package daemon_test

import (
	"testing"

	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

// TestConformance holds the real daemon to what the doors above rely on.
func TestConformance(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) httpapi.Nouns {
		return up(t, config(t, home(t))).Nouns()
	})
}
