package daemon_test

import (
	"testing"

	"holt/server"
	"holt/server/servertest"
)

// TestConformance holds the real daemon to what the doors above rely on.
func TestConformance(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) server.Nouns {
		return up(t, config(t, home(t))).Nouns()
	})
}
