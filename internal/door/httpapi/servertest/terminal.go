package servertest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"holt"
)

type terminals struct{ m *Memory }

// terminal is a process of this host on a pseudo-terminal.
type terminal struct {
	cmd   *exec.Cmd
	tty   *os.File
	limit int
	gone  chan struct{} // closed when it has ended and all output is here

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something below changes
	info    holt.Terminal
	shown   []byte // the last of its output, up to end
	end     int64
	typed   map[string]int64 // by client, bytes of input that it has taken
}

func (n terminals) Open(_ context.Context, computer string, spec holt.TerminalSpec, key string) (holt.Terminal, error) {
	return once(n.m, key, []any{"terminal", computer, spec}, func() (holt.Terminal, error) {
		c, err := n.m.computer(computer)
		if err != nil {
			return holt.Terminal{}, err
		}
		if spec.Name, err = holt.ParseName(cmp.Or(spec.Name, holt.DefaultTerminal)); err != nil {
			return holt.Terminal{}, err
		}
		c.State = holt.ComputerRunning // it wakes
		for _, t := range n.m.terminals {
			if info := t.snapshot(); info.ComputerID == c.ID && info.Name == spec.Name && info.State == holt.TerminalRunning {
				return info, nil
			}
		}
		t, err := n.m.startTerminal(c, spec)
		if err != nil {
			return holt.Terminal{}, err
		}
		return t.snapshot(), nil
	})
}

// startTerminal starts one; the lock is held.
func (m *Memory) startTerminal(c *holt.Computer, spec holt.TerminalSpec) (*terminal, error) {
	argv := spec.Argv
	switch {
	case spec.Command != "":
		argv = []string{"/bin/sh", "-c", string(spec.Command)}
	case len(argv) == 0:
		argv = []string{"/bin/sh"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = m.home(c)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "PS1=$ ", "ENV=")
	for k, v := range spec.Env {
		cmd.Env = append(cmd.Env, string(k+"="+v))
	}
	spec.Env = nil // not kept, as by the real one
	size := holt.TerminalSize{Rows: cmp.Or(spec.Size.Rows, 24), Cols: cmp.Or(spec.Size.Cols, 80)}
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: size.Rows, Cols: size.Cols})
	if err != nil {
		return nil, holt.Errorf(holt.InvalidArgument, "cannot open a terminal: %w", err)
	}
	t := &terminal{cmd: cmd, tty: tty, limit: cmp.Or(m.Kept, 1<<20), gone: make(chan struct{}), changed: make(chan struct{}), typed: map[string]int64{}}
	t.info = holt.Terminal{
		ID: holt.NewTerminalID(), ComputerID: c.ID, Name: spec.Name, Spec: spec, State: holt.TerminalRunning, Size: size, StartedAt: time.Now().UTC(),
	}
	m.terminals = append(m.terminals, t)
	go t.show()
	return t, nil
}

func (t *terminal) snapshot() holt.Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.info
}

// tell wakes who is attached; the lock is held.
func (t *terminal) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// show keeps the output until the terminal ends.
func (t *terminal) show() {
	buf := make([]byte, 4096)
	for failures := 0; failures < 2; { // its holders have gone; Linux may say so before the last output is read
		n, err := t.tty.Read(buf)
		t.mu.Lock()
		t.shown, t.end = append(t.shown, buf[:n]...), t.end+int64(n)
		t.shown = t.shown[max(0, len(t.shown)-t.limit):]
		t.tell()
		t.mu.Unlock()
		if err != nil {
			failures++
		}
	}
	_ = t.cmd.Wait() // the state says it all
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tty.Close()
	now := time.Now().UTC()
	t.info.State, t.info.EndedAt, t.info.ExitCode = holt.TerminalExited, &now, t.cmd.ProcessState.ExitCode()
	if ws, ok := t.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		t.info.ExitCode, t.info.Signal = 128+int(ws.Signal()), unix.SignalName(ws.Signal())
	}
	close(t.gone)
	t.tell()
}

func (n terminals) Get(ctx context.Context, computer, ref string) (holt.Terminal, error) {
	t, err := n.find(computer, ref)
	if err != nil {
		return holt.Terminal{}, err
	}
	return t.snapshot(), nil
}

func (n terminals) find(computer, ref string) (found *terminal, err error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(computer)
	if err != nil {
		return nil, err
	}
	for _, t := range slices.Backward(n.m.terminals) {
		info := t.snapshot()
		if info.ComputerID != c.ID || string(info.ID) != ref && info.Name != ref {
			continue
		}
		if found == nil || info.State == holt.TerminalRunning {
			found = t
		}
	}
	if found == nil {
		return nil, holt.Errorf(holt.NotFound, "there is no terminal %q in %s", ref, computer).WithHint("holt terminal list shows what there is")
	}
	return found, nil
}

func (n terminals) List(_ context.Context, computer string) ([]holt.Terminal, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(computer)
	if err != nil {
		return nil, err
	}
	var list []holt.Terminal
	for _, t := range n.m.terminals {
		if info := t.snapshot(); info.ComputerID == c.ID {
			list = append(list, info)
		}
	}
	return list, nil
}

func (n terminals) Signal(_ context.Context, computer, ref, signal, key string) error {
	t, err := n.find(computer, ref)
	if err != nil {
		return err
	}
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(signal, "SIG"))
	if sig == 0 {
		return holt.Errorf(holt.InvalidArgument, "%q is no signal", signal)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.info.State != holt.TerminalRunning {
		return holt.Errorf(holt.Conflict, "the terminal has ended")
	}
	group, err := unix.IoctlGetInt(int(t.tty.Fd()), unix.TIOCGPGRP)
	if err != nil || sig == unix.SIGKILL {
		group = t.cmd.Process.Pid
	}
	return unix.Kill(-group, sig)
}

func (n terminals) Close(_ context.Context, computer, ref, key string) (holt.Terminal, error) {
	t, err := n.find(computer, ref)
	if err != nil {
		return holt.Terminal{}, err
	}
	t.kill(syscall.SIGHUP)
	<-t.gone
	return t.snapshot(), nil
}

func (t *terminal) kill(sig syscall.Signal) { _ = syscall.Kill(-t.cmd.Process.Pid, sig) }

func (n terminals) Attach(ctx context.Context, computer, ref string, spec holt.AttachSpec, in <-chan holt.TerminalInput, emit func(holt.TerminalEvent) error) error {
	t, err := n.find(computer, ref)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.info.Attached++
	taken, start := max(spec.Input, t.typed[spec.Client]), t.end-int64(len(t.shown))
	hello := holt.TerminalEvent{Kind: holt.TerminalAttached, Offset: spec.Offset, End: t.end, Taken: taken}
	if hello.Offset < 0 {
		hello.Offset = start
	}
	t.typed[spec.Client] = taken
	info := t.info
	t.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	typing := make(chan struct{})
	defer func() {
		cancel()
		<-typing
		t.mu.Lock()
		t.info.Attached--
		t.mu.Unlock()
	}()
	if spec.Size.Rows > 0 {
		t.resize(spec.Size)
	}
	go func() {
		defer close(typing)
		t.typeIn(ctx, spec.Client, in)
	}()
	hello.Terminal = &info
	if err := emit(hello); err != nil {
		return err
	}
	return t.follow(ctx, spec.Client, hello.Offset, taken, emit)
}

// follow emits what is shown from an offset on, and news.
func (t *terminal) follow(ctx context.Context, client string, at, taken int64, emit func(holt.TerminalEvent) error) error {
	for {
		t.mu.Lock()
		start, info, changed, now := t.end-int64(len(t.shown)), t.info, t.changed, t.typed[client]
		var data []byte
		if at >= start {
			data = slices.Clone(t.shown[at-start:])
		}
		t.mu.Unlock()
		var e holt.TerminalEvent
		switch {
		case at < start:
			e = holt.TerminalEvent{Kind: holt.TerminalGap, Offset: at, Dropped: start - at}
			at = start
		case len(data) > 0:
			e = holt.TerminalEvent{Kind: holt.TerminalOutput, Offset: at, Data: data}
			at += int64(len(data))
		case now > taken:
			e = holt.TerminalEvent{Kind: holt.TerminalTaken, Taken: now}
			taken = now
		case info.State == holt.TerminalExited:
			return emit(holt.TerminalEvent{Kind: holt.TerminalExit, Offset: at, Terminal: &info})
		default:
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := emit(e); err != nil {
			return err
		}
	}
}

func (t *terminal) resize(size holt.TerminalSize) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.info.State == holt.TerminalRunning {
		t.info.Size = size
		_ = pty.Setsize(t.tty, &pty.Winsize{Rows: size.Rows, Cols: size.Cols}) // it may be ending
	}
}

// typeIn passes a client's input on until ctx ends.
func (t *terminal) typeIn(ctx context.Context, client string, in <-chan holt.TerminalInput) {
	for {
		select {
		case next, ok := <-in:
			if !ok {
				return
			}
			if next.Size != nil {
				t.resize(*next.Size)
			}
			n, _ := t.tty.Write(next.Data) // it may have ended
			t.mu.Lock()
			t.typed[client] += int64(n)
			t.tell()
			t.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}
