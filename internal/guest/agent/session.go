package agent

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	opSession   = "session"
	opSessionDo = "session.do"

	maxSessions = 128 // at once

	// quietGrace is how long output may pause after a session's program has ended, while something else
	// holds its streams, before it is taken for complete…
	quietGrace = 250 * time.Millisecond
	// …and waitGrace how long it is waited for in all.
	waitGrace = 5 * time.Second

	// sessionBeat is how often a session that is stuck looks whether its host is still there.
	sessionBeat = 5 * time.Second
)

type sessionArgs struct {
	ID     holt.TerminalID    `json:"id"`
	Spec   *holt.SessionSpec  `json:"spec,omitempty"`
	Signal string             `json:"signal,omitempty"`
	Size   *holt.TerminalSize `json:"size,omitempty"`
}

// session is a program whose life is that of the stream it was asked for on. Unlike a run it keeps nothing: what it
// writes goes to the host, or waits in its pipes.
type session struct {
	group group
	pid   int
	end   <-chan unix.WaitStatus
	pty   *os.File // the agent's end of its terminal; nil: it has streams
	streams
	st *serverStream

	sending sync.Mutex    // held while an event is written
	over    chan struct{} // closed when the program has ended, at
	overAt  time.Time
}

// sessions are those that go on.
type sessions struct {
	mu  sync.Mutex
	set map[holt.TerminalID]*session
}

func (t *sessions) enter(id holt.TerminalID) error {
	if _, err := holt.ParseTerminalID(string(id)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.set[id]; taken {
		return holt.Errorf(holt.AlreadyExists, "there is a session %s", id)
	}
	if len(t.set) >= maxSessions {
		return holt.Errorf(holt.TooMany, "%d sessions go on in this computer; no more are allowed", maxSessions).WithHint("end some first")
	}
	if t.set == nil {
		t.set = map[holt.TerminalID]*session{}
	}
	t.set[id] = nil // until it has begun
	return nil
}

func (t *sessions) begun(id holt.TerminalID, s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set[id] = s
}

func (t *sessions) leave(id holt.TerminalID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.set, id)
}

func (t *sessions) get(id holt.TerminalID) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.set[id]; s != nil {
		return s, nil
	}
	return nil, holt.Errorf(holt.NotFound, "there is no session %q", clip(string(id)))
}

// runSession runs a program for as long as the stream lasts. The host sends the program's input as chunks,
// whose end is the input's; it gets events, the last of which is the exit.
func (s *Server) runSession(ctx context.Context, st *serverStream) error {
	args, err := decode[sessionArgs](st.args)
	if err != nil {
		return err
	}
	if args.Spec == nil {
		return holt.Errorf(holt.InvalidArgument, "a session needs a spec")
	}
	if err := s.sessions.enter(args.ID); err != nil {
		return err
	}
	defer s.sessions.leave(args.ID)
	one, err := s.launchSession(string(args.ID), *args.Spec)
	if err != nil {
		return err
	}
	one.st = st
	s.sessions.begun(args.ID, one)
	if err := st.agree(nil); err != nil {
		one.hangUp()
		return err
	}
	defer context.AfterFunc(ctx, func() { st.SetDeadline(time.Unix(1, 0)) })()
	return one.carry()
}

// prepareSession finds what is to be started.
func prepareSession(id string, spec holt.SessionSpec, workspace string) (command, error) {
	user, err := findAccount(spec.User)
	if err != nil {
		return command{}, err
	}
	run := holt.RunSpec{Command: spec.Command, User: spec.User, Env: maps.Clone(spec.Env), Cwd: holt.OSString(homeOf(user, workspace))}
	if spec.Terminal != nil {
		if run.Env == nil {
			run.Env = map[holt.OSString]holt.OSString{}
		}
		run.Env["TERM"] = holt.OSString(cmp.Or(spec.Terminal.Type, defaultTERM))
	}
	login := spec.Command == "" && !spec.SFTP
	switch {
	case spec.SFTP:
		run.Command, run.Argv = "", holt.OSStrings{"/proc/self/exe", "sftp"}
	case login:
		run.Argv = holt.OSStrings{loginShell(user)}
	}
	c, err := prepare(id, run, workspace)
	switch {
	case err != nil:
		return c, err
	case spec.SFTP:
		c.argv[0] = "holt-guest"
	case login:
		c.runShell(run)
	}
	return c, nil
}

// homeOf returns where a session of a user begins: the workspace is home for the default user.
func homeOf(user account, workspace string) string {
	if user.Name == defaultUser {
		return workspace
	}
	if st, err := os.Stat(user.Home); err == nil && st.IsDir() {
		return user.Home
	}
	return "/"
}

func (s *Server) launchSession(id string, spec holt.SessionSpec) (*session, error) {
	c, err := prepareSession(id, spec, s.opt.Workspace)
	if err != nil {
		return nil, err
	}
	one := &session{over: make(chan struct{})}
	var files []*os.File // the program's
	if spec.Terminal == nil {
		if one.streams, files, err = openStreams(true); err != nil {
			return nil, err
		}
		for _, f := range files {
			c.attr.Files = append(c.attr.Files, f.Fd())
		}
	} else {
		slave, err := one.openTerminal(&c, *spec.Terminal)
		if err != nil {
			return nil, err
		}
		files = []*os.File{slave}
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	groups := s.runs.groups
	groups.sweep()
	groups.starting.RLock()
	defer groups.starting.RUnlock()
	one.group = groups.of(id)
	if one.pid, one.end, err = startIn(s.runs.reaper, one.group, &c); err != nil {
		one.closeAll()
		one.group.remove()
		return nil, launchError(c, err)
	}
	unprotect(one.group, one.pid)
	return one, nil
}

// openTerminal gives a session's program a terminal.
func (s *session) openTerminal(c *command, spec holt.SessionTerminal) (slave *os.File, err error) {
	if s.pty, slave, err = openPTY(c.attr.Sys.Credential.Uid, spec.Size); err != nil {
		return nil, err
	}
	err = withFD(slave, func(fd int) error { return setModes(fd, spec.Modes) })
	if err != nil {
		s.pty.Close()
		slave.Close()
		return nil, holt.Errorf(holt.Unavailable, "set the modes of a terminal: %w", err)
	}
	withFD(s.pty, func(fd int) error {
		n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		if err == nil {
			c.attr.Env = append(c.attr.Env, "SSH_TTY=/dev/pts/"+strconv.Itoa(n))
		}
		return err
	})
	fd := slave.Fd()
	c.attr.Files = []uintptr{fd, fd, fd}
	c.attr.Sys.Setctty = true // its standard input
	return slave, nil
}

func (s *session) closeAll() {
	s.streams.close()
	if s.pty != nil {
		s.pty.Close()
	}
}

// hangUp ends the session as the loss of a line does. The kernel tells who is on a terminal; without one
// it is the program alone that is told, so that a server which it has started goes on.
func (s *session) hangUp() {
	s.closeAll()
	if s.pty == nil {
		select {
		case <-s.end: // its number may be another's
		default:
			unix.Kill(s.pid, unix.SIGHUP)
		}
	}
}

// carry passes bytes on until the program has ended and its output is complete, or the host is gone.
func (s *session) carry() error {
	gone := make(chan struct{}) // closed when the host is
	lost := sync.OnceFunc(func() { close(gone) })
	go func() {
		s.takeInput()
		io.ReadFull(s.st, make([]byte, 1)) // until the host lets go
		lost()
	}()
	done := make(chan struct{})
	defer close(done)
	go s.beat(done, lost)
	var readers sync.WaitGroup
	shown := make(chan struct{})
	if s.pty != nil {
		readers.Go(func() { s.show(eventStdout, s.pty, lost) })
	} else {
		readers.Go(func() { s.show(eventStdout, s.stdout, lost) })
		readers.Go(func() { s.show(eventStderr, s.stderr, lost) })
	}
	go func() {
		readers.Wait()
		close(shown)
	}()
	var status unix.WaitStatus
	select {
	case status = <-s.end:
	case <-gone:
		s.hangUp()
		<-shown
		return io.ErrUnexpectedEOF
	}
	s.overAt = time.Now()
	close(s.over)
	s.wind()
	select {
	case <-shown:
	case <-gone:
		s.closeAll()
		<-shown
		return io.ErrUnexpectedEOF
	}
	if s.stdin != nil {
		s.stdin.Close()
	}
	if s.pty != nil {
		s.pty.Close()
	}
	if len(s.group.pids()) == 0 {
		s.group.remove()
	}
	end := holt.SessionEnd{Core: status.CoreDump()}
	end.ExitCode, end.Signal = ending(status)
	body, err := json.Marshal(end)
	if err == nil {
		err = s.emit(eventExit, body)
	}
	return err
}

// wind has readers that wait see that the program has ended.
func (s *session) wind() {
	at := time.Now().Add(quietGrace)
	for _, f := range []*os.File{s.pty, s.stdout, s.stderr} {
		if f != nil {
			f.SetReadDeadline(at)
		}
	}
}

// takeInput gives the program its input until that has ended, or the program takes none any more.
func (s *session) takeInput() {
	in := struct{ io.Reader }{&chunkReader{r: s.st}}
	to := s.pty
	if to == nil {
		to = s.stdin
	}
	buf := make([]byte, smallChunk)
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, in, buf)
	if s.pty == nil {
		s.stdin.Close()
	}
	if err != nil { // the program's end, or that of its input: what else comes is of no use
		io.CopyBuffer(struct{ io.Writer }{io.Discard}, in, buf)
	}
}

// beat sends an empty event now and then: that fails where the host is gone, also while the program neither reads nor
// writes.
func (s *session) beat(done <-chan struct{}, lost func()) {
	tick := time.NewTicker(sessionBeat)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if s.emit(eventStdout, nil) != nil {
			lost()
			return
		}
	}
}

func (s *session) emit(kind byte, data []byte) error {
	return s.send(appendEvent(make([]byte, 0, eventHeader+len(data)), kind, 0, data))
}

func (s *session) send(event []byte) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	_, err := s.st.Write(event)
	return err
}

// sessionPiece is how much of a stream is sent at once, bytes: fewer, longer events cost less, and a terminal has none so long.
const sessionPiece = 128 << 10

// show sends what comes from a stream until its end. After that of the program it goes on while more comes:
// its last words may come from what it has started (a shell's `> >(tee log)`); but something that only holds the stream
// is not waited for. That must neither block nor die of SIGPIPE: what it writes is read and thrown away.
func (s *session) show(kind byte, f *os.File, lost func()) {
	event, waited := make([]byte, eventHeader+sessionPiece), time.Duration(0)
	buf := event[eventHeader:]
	event[0] = kind // and offset 0
	for {
		began := time.Now()
		n, err := f.Read(buf)
		if s.ended() {
			waited += min(time.Since(began), time.Since(s.overAt))
		}
		if n > 0 {
			binary.BigEndian.PutUint32(event[9:], uint32(n))
			if s.send(event[:eventHeader+n]) != nil {
				lost()
				f.Close()
				return
			}
		}
		switch {
		case n > 0:
			if s.ended() { // the time to send is not the program's
				f.SetReadDeadline(time.Now().Add(min(quietGrace, max(waitGrace-waited, time.Millisecond))))
			}
		case errors.Is(err, os.ErrDeadlineExceeded) && s.pty == nil:
			go func() {
				defer f.Close()
				f.SetReadDeadline(time.Time{})
				io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
			}()
			return
		case err != nil: // of a terminal EIO: the last of its holders has gone
			f.Close()
			return
		}
	}
}

func (s *session) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// doSession resizes a session's terminal, or sends it a signal.
func (s *Server) doSession(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[sessionArgs](raw)
	if err != nil {
		return nil, err
	}
	one, err := s.sessions.get(args.ID)
	if err != nil {
		return nil, err
	}
	if args.Size != nil && one.pty != nil {
		if err := setSize(one.pty, *args.Size); err != nil {
			return nil, holt.Errorf(holt.Conflict, "set the size of a session's terminal: %w", err)
		}
	}
	if args.Signal == "" {
		return nil, nil
	}
	sig, err := parseSignal(args.Signal)
	if err != nil {
		return nil, err
	}
	if one.ended() {
		return nil, holt.Errorf(holt.Conflict, "the session has ended")
	}
	group := one.pid
	if one.pty != nil {
		if front := foreground(one.pty); front > 0 {
			group = front
		}
	}
	unix.Kill(-group, sig)
	return nil, nil
}
