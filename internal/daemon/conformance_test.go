package daemon_test

import (
	"testing"
	"time"

	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// TestConformance holds the real daemon to what the doors above rely on.
func TestConformance(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) nouns.Set {
		return up(t, config(t, home(t))).Nouns()
	})
}

// TestConformanceSandboxed holds it, over the wire, to what only isolated machines can do.
func TestConformanceSandboxed(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) nouns.Set {
		d := servertest.Serve(t, servertest.Options(t, servertest.NewSandboxed(t).Nouns()), "")
		return servertest.ClientNouns(d.Client(t, time.Minute))
	}, "snapshots", "networks", "secrets")
}
