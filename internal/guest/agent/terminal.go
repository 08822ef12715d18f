package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	scrollbackSize = 1 << 20  // bytes of output kept for one terminal
	typedMost      = 64 << 10 // bytes of one client's input that wait for the program
	closeGrace     = 5 * time.Second
	defaultTERM    = "xterm-256color"
)

// terminal is a program on a pseudo-terminal, running or ended.
type terminal struct {
	group  group
	pty    *os.File // the agent's end
	out    *scrollback
	end    <-chan unix.WaitStatus
	ended  chan struct{} // closed when it has ended and its output is complete
	keys   chan struct{} // capacity 1: there is input
	typing sync.WaitGroup

	mu      sync.Mutex
	info    holt.Terminal
	typed   []typed
	typists map[string]*typist // of named clients
	here    map[*attachment]bool
}

// typed is input of one client that the program has not received yet.
type typed struct {
	by   *typist
	data []byte
}

func (t *terminal) snapshot() holt.Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.info
	info.Attached = len(t.here)
	return info
}

// runSpec returns the spec of a terminal's program as a run.
func runSpec(spec holt.TerminalSpec) holt.RunSpec {
	env := map[holt.OSString]holt.OSString{"TERM": defaultTERM}
	for k, v := range spec.Env {
		env[k] = v
	}
	return holt.RunSpec{Command: spec.Command, Argv: spec.Argv, Cwd: spec.Cwd, User: spec.User, Env: env}
}

// prepareTerminal finds the program, user and directory of a terminal. Without
// a command it is the user's shell, as a login shell.
func prepareTerminal(id string, spec holt.TerminalSpec, workspace string) (command, error) {
	run := runSpec(spec)
	login := spec.Command == "" && len(spec.Argv) == 0
	if login {
		user, err := findAccount(spec.User)
		if err != nil {
			return command{}, err
		}
		run.Argv = []string{loginShell(user)}
	}
	c, err := prepare(id, run, workspace)
	if err != nil {
		return c, err
	}
	if login {
		c.runShell(run)
	}
	c.attr.Sys.Setctty = true // its standard input
	return c, nil
}

// loginShell returns the user's shell, or an existing one. For plain sh, the
// default of useradd, it returns bash.
func loginShell(user account) string {
	const plain, better = "/bin/sh", "/bin/bash"
	for _, path := range []string{user.Shell, better} {
		st, err := os.Stat(path)
		if err == nil && path != plain && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path
		}
	}
	return plain
}

// launchTerminal starts a prepared command on a terminal of its own.
func launchTerminal(r *reaper, g group, c command, spec holt.TerminalSpec) (*terminal, error) {
	size := bounded(spec.Size)
	master, slave, err := openPTY(c.attr.Sys.Credential.Uid, size)
	if err != nil {
		return nil, err
	}
	defer slave.Close()
	fd := slave.Fd()
	c.attr.Files = []uintptr{fd, fd, fd}
	pid, end, err := startIn(r, g, &c)
	if err != nil {
		master.Close()
		g.remove()
		return nil, launchError(c, err)
	}
	unprotect(g, pid)
	t := &terminal{
		group: g, pty: master, out: newScrollback(scrollbackSize), end: end,
		ended: make(chan struct{}), keys: make(chan struct{}, 1),
		typists: map[string]*typist{}, here: map[*attachment]bool{},
		info: holt.Terminal{
			ID: holt.TerminalID(g.id), Name: spec.Name, Spec: spec, State: holt.TerminalRunning,
			Size: size, StartedAt: time.Now().UTC(),
		},
	}
	t.info.Spec.Env = nil // it may contain secrets, and is not needed any more
	return t, nil
}

// supervise copies output and input until the program ends.
func (t *terminal) supervise(log *slog.Logger) {
	over := make(chan struct{})
	t.typing.Go(func() { t.typeOn(over) })
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		t.show()
	}()
	status := <-t.end
	t.pty.SetReadDeadline(time.Now().Add(exitGrace)) // another process may hold the terminal
	<-shown
	close(over)
	t.pty.Close() // unblocks a write
	t.typing.Wait()
	t.finish(status)
	log.Debug("terminal ended", "terminal", t.group.id)
}

// show reads the program's output until the terminal is hung up or exitGrace after its end.
func (t *terminal) show() {
	buf := make([]byte, 32<<10)
	for {
		n, err := t.pty.Read(buf)
		t.out.write(buf[:max(n, 0)])
		if err != nil { // the deadline, or EIO: no process has it open. Linux may say so before the last output is read
			t.drain(buf)
			return
		}
	}
}

// drain reads what the terminal holds now.
func (t *terminal) drain(buf []byte) {
	withFD(t.pty, func(fd int) error {
		for range scrollbackSize / len(buf) {
			n, err := unix.Read(fd, buf)
			if n <= 0 || err != nil {
				return err
			}
			t.out.write(buf[:n])
		}
		return nil
	})
}

// typeOn writes the clients' input to the program in the order of arrival.
func (t *terminal) typeOn(over <-chan struct{}) {
	for {
		t.mu.Lock()
		var next typed
		if len(t.typed) > 0 {
			next, t.typed = t.typed[0], t.typed[1:]
		}
		t.mu.Unlock()
		if next.by == nil {
			select {
			case <-t.keys:
				continue
			case <-over:
				return
			}
		}
		if _, err := t.pty.Write(next.data); err != nil {
			return // it has ended
		}
		t.mu.Lock()
		next.by.written += int64(len(next.data))
		if a := next.by.at; a != nil {
			a.wake()
		}
		t.mu.Unlock()
	}
}

// finish records the end.
func (t *terminal) finish(status unix.WaitStatus) {
	if len(t.group.pids()) == 0 {
		t.group.remove()
	}
	now := time.Now().UTC()
	t.mu.Lock()
	t.info.State, t.info.EndedAt = holt.TerminalExited, &now
	t.info.ExitCode, t.info.Signal = ending(status)
	t.typed, t.typists = nil, map[string]*typist{}
	t.mu.Unlock()
	t.out.close()
	close(t.ended)
}

// over returns when it ended.
func (t *terminal) over() (time.Time, bool) {
	select {
	case <-t.ended:
		return *t.snapshot().EndedAt, true
	default:
		return time.Time{}, false
	}
}

// resize sets the terminal's size and notifies the other attachments.
func (t *terminal) resize(by *attachment, size holt.TerminalSize) error {
	size = bounded(size)
	t.mu.Lock()
	defer t.mu.Unlock()
	if size == t.info.Size || t.info.State != holt.TerminalRunning {
		return nil
	}
	if err := setSize(t.pty, size); err != nil {
		return holt.Errorf(holt.Conflict, "set the size of terminal %s: %w", t.info.Name, err)
	}
	t.info.Size = size
	for a := range t.here {
		if a != by {
			a.resized = true
			a.wake()
		}
	}
	return nil
}

// redraw makes the foreground program redraw its screen.
func (t *terminal) redraw() {
	if group := foreground(t.pty, t.group); group > 0 {
		unix.Kill(-group, unix.SIGWINCH)
	}
}

// signal sends a signal to the terminal's foreground process group, as its keys
// do; SIGKILL kills all processes. It reports whether there was any.
func (t *terminal) signal(sig unix.Signal) bool {
	if sig == unix.SIGKILL {
		return t.group.kill() > 0
	}
	group := foreground(t.pty, t.group)
	if group <= 0 {
		return false
	}
	err := unix.Kill(-group, sig)
	// A foreground process that has just ended, before its shell has taken the
	// terminal back, counts like a zombie.
	return err == nil || errors.Is(err, unix.ESRCH)
}

// hangUp ends the terminal like a lost connection, and then kills all remaining processes.
func (t *terminal) hangUp(ctx context.Context) error {
	if _, over := t.over(); over {
		return nil
	}
	tell := func() {
		t.group.signal(unix.SIGHUP)
		t.group.signal(unix.SIGCONT) // stopped processes handle no other signal
	}
	tell()
	again := time.AfterFunc(closeGrace/5, tell) // bash misses one that comes just before it waits for a key
	timer := time.AfterFunc(closeGrace, func() { t.group.kill() })
	select {
	case <-t.ended:
		again.Stop()
		timer.Stop()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// termName returns the terminal name of a spec.
func termName(spec holt.TerminalSpec) string { return cmp.Or(spec.Name, holt.DefaultTerminal) }
