package computer

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
)

// immortal is a machine that takes its power button's press and goes on.
type immortal struct {
	machine.Machine
	pressed int
	done    chan struct{}
}

func (m *immortal) Done() <-chan struct{} { return m.done }

func (m *immortal) PowerDown(context.Context) error {
	m.pressed++
	return nil
}

// stubborn is a live computer whose machine does not end.
func stubborn(t *testing.T) (*live, *immortal) {
	m := &immortal{done: make(chan struct{})}
	l := &live{m: m, log: slog.New(slog.DiscardHandler), ctx: t.Context(), up: make(chan struct{}), runs: newRunSet()}
	l.runTracker = &runTracker{l: l}
	l.limits = Limits{Reconnect: time.Millisecond, Answer: time.Minute, Shutdown: time.Millisecond, PowerDown: time.Millisecond}
	return l, m
}

// guestOf gives a live computer an agent, a process's that has no machine. It returns where its end is told.
func guestOf(t *testing.T, l *live) <-chan error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	line, err := channel.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- agent.Serve(t.Context(), agent.ServerOptions{Control: channel.NewPort(line)}) }()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	session, err := channel.Dial(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	client, err := agent.NewClient(session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	l.set(client, nil)
	return served
}

// A computer whose agent is dead has its power button pressed, once.
func TestHaltWithoutAgent(t *testing.T) {
	l, m := stubborn(t)
	if reason := l.halt(t.Context(), true); reason == "" || m.pressed != 1 {
		t.Errorf("%q, button pressed %d times", reason, m.pressed)
	}
	if l.halt(t.Context(), false); m.pressed != 1 {
		t.Error("a button was pressed that is not there")
	}
}

// One that agreed to shut down and does not is not asked a second time.
func TestHaltOfLiar(t *testing.T) {
	l, m := stubborn(t)
	l.limits.Reconnect = time.Minute
	served := guestOf(t, l)
	if reason := l.halt(t.Context(), true); reason == "" || m.pressed != 0 {
		t.Errorf("%q, button pressed %d times", reason, m.pressed)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	close(m.done)
	if reason := l.halt(t.Context(), true); reason != "" {
		t.Errorf("a machine that has ended: %q", reason)
	}
}

// A guest that breaks its sessions at once is dialled ever more slowly.
func TestAgain(t *testing.T) {
	try := 0
	for range 5 {
		try = again(try, time.Second)
	}
	if try != 5 {
		t.Errorf("try %d after five short sessions", try)
	}
	if try = again(try, time.Minute); try != 0 {
		t.Errorf("try %d after a steady one", try)
	}
}
