package daemon_test

import (
	"testing"
	"time"

	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// TestConformanceSandboxed holds the real daemon, over the wire, to what only isolated machines can do. The client's
// TestConformance has the rest.
func TestConformanceSandboxed(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) nouns.Set {
		d := servertest.Serve(t, servertest.Options(t, servertest.NewSandboxed(t).Nouns()), "")
		return servertest.ClientNouns(d.Client(t, time.Minute))
	}, "snapshots", "networks", "secrets")
}
