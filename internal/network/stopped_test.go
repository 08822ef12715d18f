package network

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
)

// TestStopped: a network that is stopped by a signal is continued, with the same process and connections.
func TestStopped(t *testing.T) {
	f, n := newFake(t), networks(t)
	if err := n.Write(t.Context(), f.dir, holt.NetworkPolicy{Egress: holt.EgressOpen}); err != nil {
		t.Fatal(err)
	}
	l := n.Join(f.dir, false, func(context.Context) { t.Error("connections are cut") })
	f.joined()
	ready(t, l)
	pid := f.pid()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f.answers()
	if now := f.pid(); now != pid {
		t.Errorf("it is process %d, and was %d", now, pid)
	}
	if err := f.process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.process.Wait()
	if err := l.End(); err != nil {
		t.Error(err)
	}
}
