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

	// quietGrace: after a session's program has ended, while another process holds
	// its streams, the output counts as complete after a pause of this length…
	quietGrace = 250 * time.Millisecond
	// …or after this time in all.
	waitGrace = 5 * time.Second

	// sessionBeat is how often a blocked session checks whether its host is still there.
	sessionBeat = 5 * time.Second
)

type sessionArgs struct {
	ID     holt.TerminalID    `json:"id"`
	Spec   *holt.SessionSpec  `json:"spec,omitempty"`
	Signal string             `json:"signal,omitempty"`
	Size   *holt.TerminalSize `json:"size,omitempty"`
}

// session is a program that lives as long as its stream. Unlike a run it
// buffers nothing: output goes to the host or waits in the pipes.
type session struct {
	group group
	pid   int
	end   <-chan unix.WaitStatus
	pty   *os.File // the agent's end of its terminal; nil: it has pipes
	streams
	st *serverStream

	sending sync.Mutex    // held while an event is written
	over    chan struct{} // closed when the program has ended, at time at
	overAt  time.Time
}

// sessions are the running sessions.
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
		return holt.Errorf(holt.AlreadyExists, "the session %s already exists", id)
	}
	if len(t.set) >= maxSessions {
		return holt.Errorf(holt.TooMany, "too many sessions: %d are open in this computer", maxSessions).WithHint("close some first")
	}
	if t.set == nil {
		t.set = map[holt.TerminalID]*session{}
	}
	t.set[id] = nil // reserved until the program has started
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

// runSession runs a program for as long as the stream lasts. The host sends the
// program's input in chunks, whose end closes the input; it receives events,
// the last of which is the exit.
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

// prepareSession finds the program, user and directory of a session.
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

// homeOf returns the initial directory of a user's session: the workspace for the default user.
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

// openTerminal opens a terminal for a session's program.
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

// hangUp ends the session like a lost connection. With a terminal the kernel
// signals its processes; without one only the program is signalled, so that a
// server that it started keeps running.
func (s *session) hangUp() {
	s.closeAll()
	if s.pty == nil {
		select {
		case <-s.end: // its pid may be reused
		default:
			unix.Kill(s.pid, unix.SIGHUP)
		}
	}
}

// carry copies input and output until the program has ended and its output is
// complete, or the host is gone.
func (s *session) carry() error {
	gone := make(chan struct{}) // closed when the host is gone
	lost := sync.OnceFunc(func() { close(gone) })
	go func() {
		s.takeInput()
		io.ReadFull(s.st, make([]byte, 1)) // until the host closes the stream
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

// wind sets deadlines after the program's end, so that blocked readers notice it.
func (s *session) wind() {
	at := time.Now().Add(quietGrace)
	for _, f := range []*os.File{s.pty, s.stdout, s.stderr} {
		if f != nil {
			f.SetReadDeadline(at)
		}
	}
}

// takeInput copies input to the program until its end, or until the program closes its input.
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
	if err != nil { // the program has ended or closed its input: discard the rest
		io.CopyBuffer(struct{ io.Writer }{io.Discard}, in, buf)
	}
}

// beat regularly sends an empty event, which fails if the host is gone, even
// while the program neither reads nor writes.
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

// sessionPiece is the maximum size of an event, bytes. Larger events are
// cheaper; a terminal never has that much output at once.
const sessionPiece = 128 << 10

// show sends a stream's output until its end. After the end of the program it
// continues while there is more output, which may come from a child (a shell's
// `> >(tee log)`), but it does not wait for a process that only holds the
// stream. Such a process must neither block nor get SIGPIPE: its output is read
// and discarded.
func (s *session) show(kind byte, f *os.File, lost func()) {
	event, waited := make([]byte, eventHeader+sessionPiece), time.Duration(0)
	buf := event[eventHeader:]
	event[0] = kind // at offset 0
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
			if s.ended() { // do not count the time for sending
				f.SetReadDeadline(time.Now().Add(min(quietGrace, max(waitGrace-waited, time.Millisecond))))
			}
		case errors.Is(err, os.ErrDeadlineExceeded) && s.pty == nil:
			go func() {
				defer f.Close()
				f.SetReadDeadline(time.Time{})
				io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
			}()
			return
		case err != nil: // for a terminal, EIO: no process has it open
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

// doSession resizes a session's terminal or sends it a signal.
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
		if front := foreground(one.pty, one.group); front > 0 {
			group = front
		}
	}
	unix.Kill(-group, sig)
	return nil, nil
}
