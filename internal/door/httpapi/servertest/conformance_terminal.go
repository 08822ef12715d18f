package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
)

// screenWait bounds how long a test waits for what a terminal must show.
const screenWait = 10 * time.Minute

// Screen is a client at a terminal.
type Screen struct {
	In   chan holt.TerminalInput
	Stop context.CancelFunc
	Done chan error // what Attach returned

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each event
	text    []byte
	next    int64
	hellos  int
	rests   bool // the last news was that its computer is paused
	gaps    int64
	exit    *holt.Terminal
	over    bool
}

// Watch attaches to a terminal until the test's end.
func Watch(t testing.TB, n nouns.Set, computer, ref string, spec holt.AttachSpec) *Screen {
	ctx, stop := context.WithCancel(t.Context())
	s := &Screen{In: make(chan holt.TerminalInput), Stop: stop, Done: make(chan error, 1), changed: make(chan struct{})}
	go func() {
		err := n.Terminals.Attach(ctx, computer, ref, spec, s.In, s.event)
		s.mu.Lock()
		s.over = true
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		s.Done <- err
	}()
	t.Cleanup(stop)
	return s
}

func (s *Screen) event(e holt.TerminalEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case holt.TerminalPaused:
		s.rests = true
	case holt.TerminalAttached:
		s.rests = false
		s.hellos++
		if s.hellos > 1 && e.Offset != s.next {
			return fmt.Errorf("attached again at %d, not at %d", e.Offset, s.next)
		}
		s.next = e.Offset
	case holt.TerminalOutput, holt.TerminalGap:
		s.text, s.gaps = append(s.text, e.Data...), s.gaps+e.Dropped
		s.next += int64(len(e.Data)) + e.Dropped
	case holt.TerminalExit:
		s.exit = e.Terminal
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// until waits for something to be true.
func (s *Screen) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	late := time.After(screenWait)
	for {
		s.mu.Lock()
		fine, over, changed := ok(), s.over, s.changed
		text := bytes.Clone(s.text[max(0, len(s.text)-500):])
		s.mu.Unlock()
		if fine {
			return
		}
		if over {
			t.Fatalf("the attachment ended before %s: %q", what, text)
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("the terminal shows no %s: %q", what, text)
		}
	}
}

// Shows waits until the terminal has shown a text.
func (s *Screen) Shows(t testing.TB, text string) {
	t.Helper()
	s.until(t, fmt.Sprintf("%q", text), func() bool { return bytes.Contains(s.text, []byte(text)) })
}

// Rests waits until the terminal's computer is said to be paused, or not to be any more.
func (s *Screen) Rests(t testing.TB, want bool) {
	t.Helper()
	s.until(t, fmt.Sprintf("news (paused: %v)", want), func() bool { return s.hellos > 0 && s.rests == want })
}

// Type sends input.
func (s *Screen) Type(t testing.TB, text string) {
	t.Helper()
	select {
	case s.In <- holt.TerminalInput{Data: []byte(text)}:
	case <-time.After(screenWait):
		t.Fatal("input is not taken")
	}
}

// Text returns all that was shown.
func (s *Screen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// Exit waits for the terminal's end.
func (s *Screen) Exit(t testing.TB) holt.Terminal {
	t.Helper()
	s.until(t, "exit", func() bool { return s.exit != nil })
	if err := <-s.Done; err != nil {
		t.Fatal(err)
	}
	return *s.exit
}

func terminalVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "bell")
	Must(n.Computers.Stop(ctx, "bell", ""))(t)
	spec := holt.TerminalSpec{Env: map[holt.OSString]holt.OSString{"GREETING": "hi", "PS1": "> "}, Argv: []string{"/bin/sh"}, Size: holt.TerminalSize{Rows: 30, Cols: 100}}
	main := Must(n.Terminals.Open(ctx, "bell", spec, "key-t"))(t) // wakes it
	if main.Name != "main" || main.State != holt.TerminalRunning || main.ComputerID != c.ID || main.Spec.Env != nil || main.Size != spec.Size {
		t.Errorf("opened %+v", main)
	}
	if again := Must(n.Terminals.Open(ctx, "bell", holt.TerminalSpec{Name: "main"}, ""))(t); again.ID != main.ID {
		t.Errorf("opened again: %+v", again)
	}
	s := Watch(t, n, "bell", "main", holt.AttachSpec{Offset: -1})
	s.Type(t, "echo $GREETING there; stty size\n")
	s.Shows(t, "hi there")
	s.Shows(t, "30 100")
	s.In <- holt.TerminalInput{Size: &holt.TerminalSize{Rows: 31, Cols: 101}}
	s.Type(t, "stty size\n")
	s.Shows(t, "31 101")
	other := Watch(t, n, "bell", string(main.ID), holt.AttachSpec{Offset: -1})
	other.Shows(t, "31 101") // a replay
	if got := Must(n.Terminals.Get(ctx, "bell", "main"))(t); got.Attached != 2 || got.Size.Rows != 31 {
		t.Errorf("got %+v", got)
	}
	other.Stop()
	if err := <-other.Done; err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("left with %v", err)
	}
	s.Type(t, "exit 7\n")
	if end := s.Exit(t); end.ExitCode != 7 || end.State != holt.TerminalExited || end.EndedAt == nil {
		t.Errorf("ended as %+v", end)
	}
	after := Watch(t, n, "bell", "main", holt.AttachSpec{Offset: -1})
	if end := after.Exit(t); end.ID != main.ID || end.ExitCode != 7 || after.Text() != s.Text() {
		t.Errorf("attached after its end: %+v, %q", end, after.Text())
	}
	if repeated := Must(n.Terminals.Open(ctx, "bell", spec, "key-t"))(t); repeated.ID != main.ID {
		t.Errorf("a repeated open made %s besides %s", repeated.ID, main.ID)
	}
	next := Must(n.Terminals.Open(ctx, "bell", holt.TerminalSpec{Command: "cat"}, ""))(t)
	if next.ID == main.ID {
		t.Error("a terminal that has ended was opened again")
	}
	if list := Must(n.Terminals.List(ctx, "bell"))(t); len(list) != 2 {
		t.Errorf("listed %+v", list)
	}
	if end := Must(n.Terminals.Close(ctx, "bell", "main", ""))(t); end.ID != next.ID || end.Signal != "SIGHUP" {
		t.Errorf("closed %+v", end)
	}
	WantCode(t, n.Terminals.Signal(ctx, "bell", "main", "SIGINT", ""), holt.Conflict)
}

// terminalTypists: many clients at one terminal, signals, and a client that
// comes again under its name.
func terminalTypists(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "gray")
	// The reader dies of the signal. A trap around its read could be missed: a
	// shell that is told between two commands and then reads waits for a line.
	info := Must(n.Terminals.Open(ctx, "gray", holt.TerminalSpec{Name: "work", Command: `stty -echo; trap : INT; echo ready; (while :; do read x && echo "got $x"; done); echo caught; exit 5`}, ""))(t)
	var all []*Screen
	for i := range 5 {
		all = append(all, Watch(t, n, "gray", "work", holt.AttachSpec{Offset: -1, Client: fmt.Sprint("client-", i)}))
		all[i].Shows(t, "ready")
	}
	for i, s := range all {
		s.Type(t, fmt.Sprintf("line %d\n", i))
		for _, other := range all {
			other.Shows(t, fmt.Sprintf("got line %d\r\n", i))
		}
	}
	all[0].Stop()
	<-all[0].Done
	text, at := all[0].Text(), all[0].next
	back := Watch(t, n, "gray", "work", holt.AttachSpec{Offset: at, Client: "client-0", Input: int64(len("line 0\n"))})
	back.Type(t, "again\n")
	back.Shows(t, "got again")
	if all := text + back.Text(); strings.Count(all, "got line 0") != 1 || strings.Count(all, "ready") != 1 {
		t.Errorf("before and after: %q", all)
	}
	fail(t, n.Terminals.Signal(ctx, "gray", string(info.ID), "SIGINT", ""))
	for _, s := range append(all[1:], back) {
		if end := s.Exit(t); end.ExitCode != 5 || !strings.HasSuffix(s.Text(), "caught\r\n") {
			t.Errorf("ended as %+v: %q", end, s.Text())
		}
	}
	for _, ref := range []string{"nothing", string(holt.NewTerminalID())} {
		_, err := n.Terminals.Get(ctx, "gray", ref)
		WantCode(t, err, holt.NotFound)
		WantCode(t, n.Terminals.Signal(ctx, "gray", ref, "SIGINT", ""), holt.NotFound)
		WantCode(t, n.Terminals.Attach(ctx, "gray", ref, holt.AttachSpec{Offset: -1}, nil, func(holt.TerminalEvent) error { return nil }), holt.NotFound)
	}
	_, err := n.Terminals.Open(ctx, "nobody", holt.TerminalSpec{}, "")
	WantCode(t, err, holt.NotFound)
	_, err = n.Terminals.Open(ctx, "gray", holt.TerminalSpec{Name: "No Name"}, "")
	WantCode(t, err, holt.InvalidArgument)
}
