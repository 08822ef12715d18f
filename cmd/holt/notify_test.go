package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// supervise listens as systemd does.
func supervise(t *testing.T) (*net.UnixConn, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

func heard(t *testing.T, l *net.UnixConn, within time.Duration) string {
	t.Helper()
	if err := l.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := l.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	} else if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// TestSupervisorIsTold: what systemd asks for in the environment is what it gets, and children do not inherit it.
func TestSupervisorIsTold(t *testing.T) {
	l, path := supervise(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "150000")
	t.Setenv("WATCHDOG_PID", "")
	s := ownSupervisor()
	if os.Getenv("NOTIFY_SOCKET") != "" || os.Getenv("WATCHDOG_USEC") != "" {
		t.Error("the environment still has it")
	}
	if s.watchdog != 150*time.Millisecond {
		t.Errorf("the watchdog is %v", s.watchdog)
	}
	if err := s.tell("READY=1"); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, l, 10*time.Second); got != "READY=1" {
		t.Errorf("heard %q", got)
	}
	if err := (supervisor{}).tell("READY=1"); err != nil {
		t.Errorf("nobody could not be told: %v", err)
	}
}

// TestWatchdogHearsOnlyOfWhatLives: as soon as the daemon cannot answer itself nothing is sent.
func TestWatchdogHearsOnlyOfWhatLives(t *testing.T) {
	l, path := supervise(t)
	s := supervisor{socket: path, watchdog: 90 * time.Millisecond}
	var dead atomic.Bool
	asked := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.watch(ctx, slog.New(slog.DiscardHandler), func(context.Context) error {
			asked <- struct{}{}
			if dead.Load() {
				return errors.New("hangs")
			}
			return nil
		})
	}()
	for range 3 {
		if got := heard(t, l, 10*time.Second); got != "WATCHDOG=1" {
			t.Fatalf("heard %q", got)
		}
	}
	dead.Store(true)
	for range cap(asked) { // what was asked before
		select {
		case <-asked:
		default:
		}
	}
	for range 3 { // at least two of these are answers of a dead one
		<-asked
	}
	for heard(t, l, time.Millisecond) != "" { // what was sent before
	}
	for range 3 {
		<-asked
	}
	if got := heard(t, l, time.Millisecond); got != "" {
		t.Errorf("a daemon that does not answer says %q", got)
	}
	cancel()
	<-ended
}

func TestWatchdogOfAnotherProcess(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "1")
	if s := ownSupervisor(); s.watchdog != 0 {
		t.Errorf("the watchdog of process 1 is taken for ours: %v", s.watchdog)
	}
}
