package sshd

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"holt"
)

const (
	// wakeNews is how long a computer may take to wake before somebody at a terminal is told.
	wakeNews = time.Second
	// controlTime bounds a resize or a signal.
	controlTime = 5 * time.Second
	// exitFault is the exit status of what could not be run, or broke: ssh's own.
	exitFault = 255
)

// sessionChannel is a channel on which a client runs one program.
type sessionChannel struct {
	c  *conn
	ch ssh.Channel

	spec    holt.SessionSpec
	env     environment
	refused bool // it asked for an agent, and may not have one
	agent   bool // its agent is to be reached from the computer
	started bool
	program func() // what is to run once it has been told that it will; nil: nothing

	control chan func(context.Context, holt.Session) // resizes and signals, in their order

	mu   sync.Mutex
	size *holt.TerminalSize // the newest, that the program does not know of; nil: none
}

// session serves a session channel.
func (c *conn) session(nc ssh.NewChannel) {
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	s := &sessionChannel{c: c, ch: ch, spec: holt.SessionSpec{User: c.user}, control: make(chan func(context.Context, holt.Session), 16)}
	ctx, cancel := context.WithCancel(c.ctx)
	var running sync.WaitGroup
	for q := range reqs {
		ok := s.request(ctx, q)
		if q.WantReply {
			q.Reply(ok, nil)
		}
		if s.program != nil { // not before: it may end, and close the channel, at once
			running.Go(s.program)
			s.program = nil
		}
	}
	cancel() // the client has closed it
	running.Wait()
	ch.Close()
}

// request heeds one of the client's requests. It waits for nothing.
func (s *sessionChannel) request(ctx context.Context, q *ssh.Request) bool {
	switch q.Type {
	case "env":
		return !s.started && s.env.set(q.Payload)
	case "pty-req":
		t, err := parsePTY(q.Payload)
		if err != nil || s.started {
			return false
		}
		s.spec.Terminal = t
		return true
	case "window-change":
		return s.resize(q.Payload)
	case "signal":
		name, ok := parseSignal(q.Payload)
		return ok && s.do(func(ctx context.Context, far holt.Session) { far.Signal(ctx, name) })
	case "auth-agent-req@openssh.com":
		s.agent, s.refused = s.c.who.agent, !s.c.who.agent
		return s.agent
	case "shell", "exec", "subsystem":
		return !s.started && s.begin(ctx, q)
	}
	return false // x11-req, break, and what nobody knows
}

// do has something done with the program, once there is one.
func (s *sessionChannel) do(what func(context.Context, holt.Session)) bool {
	select {
	case s.control <- what:
		return true
	default: // a client that sends more than its computer takes
		return false
	}
}

func (s *sessionChannel) resize(payload []byte) bool {
	var q windowChange
	if ssh.Unmarshal(payload, &q) != nil || s.spec.Terminal == nil {
		return false
	}
	size := sizeOf(q.Cols, q.Rows)
	s.mu.Lock()
	waits := s.size != nil
	s.size = &size
	s.mu.Unlock()
	if waits { // for the one that came before, which will find this
		return true
	}
	ok := s.do(func(ctx context.Context, far holt.Session) {
		if size := s.newSize(); size != nil {
			far.Resize(ctx, *size)
		}
	})
	if !ok {
		s.newSize()
	}
	return ok
}

// newSize takes the newest size.
func (s *sessionChannel) newSize() *holt.TerminalSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.size
	s.size = nil
	return size
}

// begin reads what is to be run.
func (s *sessionChannel) begin(ctx context.Context, q *ssh.Request) bool {
	what, command := q.Type, ""
	if what != "shell" {
		var t textRequest
		if ssh.Unmarshal(q.Payload, &t) != nil || strings.Contains(t.Text, "\x00") {
			return false
		}
		command = t.Text
	}
	switch {
	case what == "subsystem" && command == "sftp":
		what, command, s.spec.SFTP = "sftp", "", true
	case what == "subsystem":
		return false
	}
	s.started = true
	s.spec.Command, s.spec.Env = holt.OSString(command), s.c.variables(s.env.vars)
	s.program = func() { s.run(ctx, s.c.event(what, command)) }
	return true
}

// variables are what a session's environment has besides what the client sets, as sshd has it.
func (c *conn) variables(set map[holt.OSString]holt.OSString) map[holt.OSString]holt.OSString {
	all := map[holt.OSString]holt.OSString{}
	maps.Copy(all, set)
	client, port, here, door := "UNKNOWN", "65535", "UNKNOWN", "65535"
	if h, p, err := net.SplitHostPort(c.sc.RemoteAddr().String()); err == nil {
		client, port = h, p
		here, door, _ = net.SplitHostPort(c.sc.LocalAddr().String())
	}
	all["SSH_CLIENT"] = holt.OSString(client + " " + port + " " + door)
	all["SSH_CONNECTION"] = holt.OSString(client + " " + port + " " + here + " " + door)
	return all
}

// run runs the program and tells the client how it ended.
func (s *sessionChannel) run(ctx context.Context, e Event) {
	end, err := s.runProgram(ctx)
	if err == nil {
		e.End = &end
		s.ch.CloseWrite()
		s.exit(end)
	} else {
		e.Err = err
		s.say(err)
		s.ch.CloseWrite()
		s.ch.SendRequest("exit-status", false, ssh.Marshal(exitStatus{exitFault}))
	}
	s.ch.Close()
	s.c.g.record(s.c.ctx, e)
}

func (s *sessionChannel) exit(end holt.SessionEnd) {
	if end.Signal != "" {
		s.ch.SendRequest("exit-signal", false, ssh.Marshal(exitSignal{Name: signalMessage(end.Signal), Core: end.Core}))
		return
	}
	s.ch.SendRequest("exit-status", false, ssh.Marshal(exitStatus{uint32(end.ExitCode)}))
}

// say tells the client of an error, as the command line does.
func (s *sessionChannel) say(err error) {
	e := holt.AsError(err)
	s.tell("holt: " + printable(e.Message))
	if e.Hint != "" {
		s.tell("hint: " + printable(e.Hint))
	}
}

// printable keeps what a guest or a caller chose from controlling a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, holt.Clip(text, 1000))
}

// tell writes a line to the client's standard error.
func (s *sessionChannel) tell(line string) {
	end := "\n"
	if s.spec.Terminal != nil {
		end = "\r\n"
	}
	io.WriteString(s.ch.Stderr(), line+end)
}

func (s *sessionChannel) runProgram(ctx context.Context) (end holt.SessionEnd, err error) {
	if s.refused && !s.spec.SFTP {
		s.tell("holt: this SSH agent is not forwarded: " + s.notGranted())
	}
	told := s.news(ctx)
	defer told()
	if s.agent {
		l, err := s.forwardAgent(ctx)
		if err != nil {
			return end, err
		}
		defer s.c.unlisten(l)
	}
	far, err := s.c.g.opt.Computers.Open(ctx, s.c.computer, s.spec, s.c.label())
	told()
	if err != nil {
		return end, err
	}
	defer context.AfterFunc(ctx, func() { far.Close() })()
	defer far.Close()
	over := make(chan struct{})
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer close(over)
	helpers.Go(func() { s.heed(over, far) })
	go func() { // it ends when the channel is closed, which is after this
		if _, err := io.Copy(struct{ io.Writer }{far}, struct{ io.Reader }{s.ch}); err == nil {
			far.CloseWrite()
		}
	}()
	end, err = far.Output(s.ch, s.ch.Stderr())
	return end, cut(ctx, err)
}

// cut is the error of what the end of ctx has ended.
func cut(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	var why *holt.Error
	if errors.As(context.Cause(ctx), &why) {
		return why
	}
	return holt.Errorf(holt.Unavailable, "the connection ends: the daemon is ending").WithHint("connect again when it is back; what is to go on: holt terminal attach")
}

// news tells somebody at a terminal that the computer wakes, if that takes long. It returns what ends it.
func (s *sessionChannel) news(ctx context.Context) func() {
	if s.spec.Terminal == nil {
		return func() {}
	}
	look, cancel := context.WithTimeout(ctx, wakeNews)
	c, err := s.c.g.opt.Computers.Get(look, s.c.computer)
	cancel()
	if err != nil || c.State == holt.ComputerRunning {
		return func() {}
	}
	told := time.AfterFunc(wakeNews, func() { s.tell("holt: " + c.Name + " is " + string(c.State) + "; it is woken …") })
	return func() { told.Stop() }
}

// heed resizes and signals the program until it is over.
func (s *sessionChannel) heed(over <-chan struct{}, far holt.Session) {
	for {
		select {
		case <-over:
			return
		case what := <-s.control:
			ctx, cancel := context.WithTimeout(s.c.ctx, controlTime)
			what(ctx, far)
			cancel()
		}
	}
}

// notGranted says why an agent is not forwarded.
func (s *sessionChannel) notGranted() string {
	if s.c.who.key != nil {
		return "its key was added without --allow-agent-forwarding"
	}
	return "only keys that were added with --allow-agent-forwarding may do that"
}

// forwardAgent makes the client's SSH agent reachable in the computer, for its Linux user, and returns the listener's key.
func (s *sessionChannel) forwardAgent(ctx context.Context) (string, error) {
	l, err := s.c.listen(holt.SessionAddress{Agent: true, User: s.c.user})
	if err != nil {
		return "", err
	}
	path := l.Address().Socket
	if !s.c.relay(string(path), l, func(string) (string, []byte) { return "auth-agent@openssh.com", nil }) {
		return "", holt.Errorf(holt.Conflict, "the computer gives the same socket twice")
	}
	s.spec.Env["SSH_AUTH_SOCK"] = path
	return string(path), nil
}
