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
	// wakeNotice is the time after which a user at a terminal gets a message that the computer wakes.
	wakeNotice = time.Second
	// controlTime bounds a resize or a signal.
	controlTime = 5 * time.Second
	// exitFault is the exit status if the program could not run or the connection broke, as of ssh itself.
	exitFault = 255
)

// sessionChannel is a session channel, which runs one program.
type sessionChannel struct {
	c  *conn
	ch ssh.Channel

	spec    holt.SessionSpec
	env     environment
	refused bool // agent forwarding was requested and is not permitted
	agent   bool // agent forwarding is on
	started bool
	program func() // runs after the reply to its request; nil: none

	control chan func(context.Context, holt.Session) // resizes and signals, in order

	mu   sync.Mutex
	size *holt.TerminalSize // the newest, not yet sent to the program; nil: none
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
		if s.program != nil { // after the reply, since the program can end and close the channel at once
			running.Go(s.program)
			s.program = nil
		}
	}
	cancel() // the client has closed the channel
	running.Wait()
	ch.Close()
}

// request handles a request of the client. It must not block.
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
	return false // x11-req, break, and unknown requests
}

// do queues an action on the program, which runs once the program does.
func (s *sessionChannel) do(what func(context.Context, holt.Session)) bool {
	select {
	case s.control <- what:
		return true
	default: // the client sends faster than the computer accepts
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
	if waits { // the queued resize takes the newest size
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

// begin parses the request for a program.
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

// variables returns a session's environment: the client's variables, and those that OpenSSH's sshd sets.
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

// run runs the program and sends its exit status to the client.
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

// say writes an error to the client in the form of the command line.
func (s *sessionChannel) say(err error) {
	e := holt.AsError(err)
	s.tell("holt: " + printable(e.Message))
	if e.Hint != "" {
		s.tell("hint: " + printable(e.Hint))
	}
}

// printable replaces control characters, so that a guest or caller cannot control the terminal.
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
		s.tell("holt: the SSH agent is not forwarded: " + s.notGranted())
	}
	told := s.announceWake(ctx)
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
	helpers.Go(func() { s.runControl(over, far) })
	go func() { // ends when the channel is closed, after this function
		if _, err := io.Copy(struct{ io.Writer }{far}, struct{ io.Reader }{s.ch}); err == nil {
			far.CloseWrite()
		}
	}()
	end, err = far.Output(s.ch, s.ch.Stderr())
	return end, cut(ctx, err)
}

// cut returns the cause of the end of ctx, if that has ended the program, otherwise err.
func cut(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	var why *holt.Error
	if errors.As(context.Cause(ctx), &why) {
		return why
	}
	return holt.Errorf(holt.Unavailable, "the connection ends: the daemon is ending").WithHint("connect again when it is back; holt terminal keeps programs running")
}

// announceWake writes to a terminal that the computer wakes, if that takes longer than wakeNotice. It returns a function
// that cancels it.
func (s *sessionChannel) announceWake(ctx context.Context) func() {
	if s.spec.Terminal == nil {
		return func() {}
	}
	look, cancel := context.WithTimeout(ctx, wakeNotice)
	c, err := s.c.g.opt.Computers.Get(look, s.c.computer)
	cancel()
	if err != nil || c.State == holt.ComputerRunning {
		return func() {}
	}
	told := time.AfterFunc(wakeNotice, func() { s.tell("holt: " + c.Name + " is " + string(c.State) + "; waking it …") })
	return func() { told.Stop() }
}

// runControl runs queued actions until the program ends.
func (s *sessionChannel) runControl(over <-chan struct{}, far holt.Session) {
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

// notGranted returns why an agent is not forwarded.
func (s *sessionChannel) notGranted() string {
	if s.c.who.key != nil {
		return "the key was added without --allow-agent-forwarding"
	}
	return "only keys that were added with --allow-agent-forwarding permit it"
}

// forwardAgent makes the client's SSH agent reachable in the computer, for its Linux user, and returns the listener's key.
func (s *sessionChannel) forwardAgent(ctx context.Context) (string, error) {
	l, err := s.c.listen(holt.SessionAddress{Agent: true, User: s.c.user})
	if err != nil {
		return "", err
	}
	path := l.Address().Socket
	if !s.c.relay(string(path), l, func(string) (string, []byte) { return "auth-agent@openssh.com", nil }) {
		return "", holt.Errorf(holt.Conflict, "the computer returned the same agent socket twice")
	}
	s.spec.Env["SSH_AUTH_SOCK"] = path
	return string(path), nil
}
