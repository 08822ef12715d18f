package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
)

// screen is a client of a terminal.
type screen struct {
	in   chan holt.TerminalInput
	stop context.CancelFunc
	done chan error // what AttachTerminal returned

	mu     sync.Mutex
	seen   chan struct{} // closed and replaced at each event
	text   []byte
	next   int64 // offset behind text
	gaps   int64
	taken  int64
	size   holt.TerminalSize
	hello  holt.TerminalEvent
	exit   *holt.Terminal
	closed bool
}

func watch(t *testing.T, c *Client, id holt.TerminalID, spec holt.AttachSpec) *screen {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &screen{in: make(chan holt.TerminalInput), stop: stop, done: make(chan error, 1), seen: make(chan struct{})}
	go func() {
		err := c.AttachTerminal(ctx, id, spec, s.in, s.event)
		s.mu.Lock()
		s.closed = true
		close(s.seen)
		s.seen = make(chan struct{})
		s.mu.Unlock()
		s.done <- err
	}()
	t.Cleanup(stop)
	return s
}

func (s *screen) event(e holt.TerminalEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case holt.TerminalAttached:
		s.hello, s.next, s.taken, s.size = e, e.Offset, e.Taken, e.Terminal.Size
	case holt.TerminalOutput:
		s.text = append(s.text, e.Data...)
		s.next += int64(len(e.Data))
	case holt.TerminalGap:
		s.gaps += e.Dropped
		s.next += e.Dropped
	case holt.TerminalTaken:
		s.taken = e.Taken
	case holt.TerminalResized:
		s.size = *e.Size
	case holt.TerminalExit:
		s.exit = e.Terminal
	}
	close(s.seen)
	s.seen = make(chan struct{})
	return nil
}

// until waits for a condition of the screen.
func (s *screen) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		fine, seen, closed := ok(), s.seen, s.closed
		s.mu.Unlock()
		if fine {
			return
		}
		if closed {
			t.Fatalf("the attachment ended before %s; it showed %q", what, tail(s.text))
		}
		select {
		case <-seen:
		case <-late:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("no %s on the screen: %q", what, tail(s.text))
		}
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-400):] }

func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	s.until(t, fmt.Sprintf("%q", text), func() bool { return bytes.Contains(s.text, []byte(text)) })
}

func (s *screen) typeIn(t *testing.T, text string) {
	t.Helper()
	select {
	case s.in <- holt.TerminalInput{Data: []byte(text)}:
	case <-time.After(patience):
		t.Fatal("input is not taken")
	}
}

func (s *screen) ends(t *testing.T) holt.Terminal {
	t.Helper()
	s.until(t, "exit", func() bool { return s.exit != nil })
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	return *s.exit
}

func openTerm(t *testing.T, c *Client, spec holt.TerminalSpec) holt.Terminal {
	t.Helper()
	info, err := c.OpenTerminal(t.Context(), holt.NewTerminalID(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestTerminal(t *testing.T) {
	c := startGuest(t).client(t)
	info := openTerm(t, c, holt.TerminalSpec{Env: map[holt.OSString]holt.OSString{"PS1": "$ ", "SECRET": "x"}, Size: holt.TerminalSize{Rows: 33, Cols: 99}})
	if info.Name != "main" || info.State != holt.TerminalRunning || info.Spec.Env != nil {
		t.Errorf("opened: %+v", info)
	}
	again := openTerm(t, c, holt.TerminalSpec{Name: "main", Command: "false"})
	if again.ID != info.ID {
		t.Errorf("opened again: %+v", again)
	}
	s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	s.typeIn(t, "echo $((6*7))-$SECRET; stty size; tty; shopt login_shell; echo $TERM $HOLT_TERMINAL; id -u\n")
	for _, want := range []string{"42-x", "33 99", "/dev/pts/", "login_shell    \ton", "xterm-256color " + string(info.ID), "\n1000\r"} {
		s.shows(t, want)
	}
	list, err := c.Terminals(t.Context())
	if err != nil || len(list) != 1 || list[0].Attached != 1 {
		t.Errorf("list: %+v, %v", list, err)
	}
	s.typeIn(t, "exit 3\n")
	if end := s.ends(t); end.ExitCode != 3 || end.State != holt.TerminalExited || end.EndedAt == nil {
		t.Errorf("end: %+v", end)
	}
	after := watch(t, c, info.ID, holt.AttachSpec{Offset: -1, Size: holt.TerminalSize{}})
	if end := after.ends(t); end.ExitCode != 3 || !bytes.Equal(after.text, s.text) {
		t.Errorf("attached after the end: %+v, %d bytes of %d", end, len(after.text), len(s.text))
	}
	if next := openTerm(t, c, holt.TerminalSpec{}); next.ID == info.ID {
		t.Error("a terminal that has ended was opened again")
	}
}

func TestTerminalWithTwoClients(t *testing.T) {
	c := startGuest(t).client(t)
	info := openTerm(t, c, holt.TerminalSpec{Command: "stty -echo; echo ready; cat; echo over"})
	var all []*screen
	for i := range 10 {
		s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1, Size: holt.TerminalSize{Rows: 10, Cols: uint16(40 + i)}, Client: fmt.Sprint(i)})
		s.shows(t, "ready") // so that they come one after the other
		all = append(all, s)
	}
	for i, s := range all {
		s.typeIn(t, fmt.Sprintf("line %d\n", i))
		for _, other := range all {
			other.shows(t, fmt.Sprintf("line %d\r\n", i))
		}
	}
	all[3].in <- holt.TerminalInput{Size: &holt.TerminalSize{Rows: 50, Cols: 200}}
	for i, s := range all {
		if i != 3 {
			s.until(t, "size", func() bool { return s.size.Cols == 200 })
		}
	}
	all[0].stop()
	all[1].typeIn(t, "\x04")
	for i, s := range all[1:] {
		if end := s.ends(t); end.ExitCode != 0 || !bytes.HasSuffix(s.text, []byte("over\r\n")) {
			t.Errorf("%d: %+v %q", i+1, end, tail(s.text))
		}
	}
}

func TestTerminalResize(t *testing.T) {
	c := startGuest(t).client(t)
	info := openTerm(t, c, holt.TerminalSpec{Command: `trap 'echo "<$(stty size)>"' WINCH; echo ready; while :; do sleep 0.05; echo .; done`})
	s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	s.shows(t, "ready")
	idle := func() { // bash forgets a signal that comes while it treats one
		s.mu.Lock()
		s.text = nil
		s.mu.Unlock()
		s.shows(t, ".")
	}
	for _, size := range []holt.TerminalSize{{Rows: 10, Cols: 20}, {Rows: 61, Cols: 213}} {
		idle()
		s.in <- holt.TerminalInput{Size: &size}
		s.shows(t, fmt.Sprintf("<%d %d>", size.Rows, size.Cols))
	}
	// A client that attaches again, even with the same size, gets the screen redrawn.
	idle()
	watch(t, c, info.ID, holt.AttachSpec{Offset: -1, Size: holt.TerminalSize{Rows: 61, Cols: 213}})
	s.shows(t, "<61 213>")
	idle()
	s.in <- holt.TerminalInput{Size: &holt.TerminalSize{Rows: 65535, Cols: 65535}}
	s.shows(t, "<1000 1000>")
	idle()
	s.in <- holt.TerminalInput{Size: new(holt.TerminalSize)}
	s.shows(t, "<24 80>")
}

// Input typed through attachments that break at random times arrives once and in order.
func TestTerminalReattach(t *testing.T) {
	g := startGuest(t)
	c := g.client(t)
	const total = 200_000
	input := make([]byte, total)
	for i := range input {
		input[i] = "0123456789abcdef"[(i*7+i/16*3)%16]
	}
	info := openTerm(t, c, holt.TerminalSpec{Command: holt.OSString(fmt.Sprintf("stty raw -echo; echo ready; head -c %d | tee /home/agent/got | sha256sum; wc -c < /home/agent/got", total))})
	first := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	first.shows(t, "ready")
	var base int64
	var text []byte
	offset := int64(0)
	for round := 0; ; round++ {
		if round > 0 && round%3 == 0 { // the daemon's connection is lost, too
			c.Close()
			c = g.client(t)
		}
		s := watch(t, c, info.ID, holt.AttachSpec{Offset: offset, Client: "typist", Input: base})
		s.until(t, "attached", func() bool { return s.hello.Kind != "" })
		sent := s.hello.Taken
		want := min(sent+int64(rand.IntN(40_000)), total)
		for sent < want {
			n := min(int64(1+rand.IntN(5000)), want-sent)
			select {
			case s.in <- holt.TerminalInput{Data: input[sent : sent+n]}:
				sent += n
			case <-time.After(patience):
				t.Fatal("input is not taken")
			}
		}
		if sent == total {
			end := s.ends(t)
			text = append(text, s.text...)
			want := fmt.Sprintf("ready\r\n%x  -\n%d\n", sha256.Sum256(input), total)
			if got := strings.ReplaceAll(string(text), "\r\n", "\n"); end.ExitCode != 0 || got != strings.ReplaceAll(want, "\r\n", "\n") {
				t.Errorf("after %d rounds: %+v\n%q, want\n%q", round, end, text, want)
			}
			return
		}
		s.stop()
		<-s.done
		s.mu.Lock()
		text, offset, base = append(text, s.text...), s.next, s.taken
		s.mu.Unlock()
	}
}

// A client that does not read blocks neither the terminal nor other clients, and gets a gap.
func TestTerminalSlowReader(t *testing.T) {
	c := startGuest(t).client(t)
	info := openTerm(t, c, holt.TerminalSpec{Command: "read x; head -c 4000000 /dev/zero | tr '\\0' x; echo; read x; echo end"})
	hold, held := make(chan struct{}), make(chan error, 1)
	slow := &screen{seen: make(chan struct{})}
	go func() {
		once := sync.OnceFunc(func() { <-hold })
		held <- c.AttachTerminal(t.Context(), info.ID, holt.AttachSpec{Offset: -1}, nil, func(e holt.TerminalEvent) error {
			if e.Kind != holt.TerminalAttached {
				once()
			}
			return slow.event(e)
		})
	}()
	slow.until(t, "attached", func() bool { return slow.hello.Kind != "" })
	s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	s.typeIn(t, "\n")
	s.until(t, "all of it", func() bool { return s.next > 4_000_000 })
	s.typeIn(t, "\n")
	s.ends(t)
	close(hold)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	if slow.next != s.next || slow.gaps < 2_000_000 || slow.exit == nil || !bytes.HasSuffix(slow.text, []byte("end\r\n")) {
		t.Errorf("slow: %d of %d bytes, %d gone, %q", slow.next, s.next, slow.gaps, tail(slow.text))
	}
}

func TestTerminalPaste(t *testing.T) {
	c := startGuest(t).client(t)
	paste := bytes.Repeat([]byte("äöü 漢字 0123456789\n"), 1<<20/24)[:1<<20]
	info := openTerm(t, c, holt.TerminalSpec{Command: "stty raw -echo; echo ready; sleep 0.2; head -c 1048576 | sha256sum"})
	s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	s.shows(t, "ready")
	s.typeIn(t, string(paste))
	s.shows(t, fmt.Sprintf("%x", sha256.Sum256(paste)))
	s.ends(t)
}

func TestTerminalSignals(t *testing.T) {
	c := startGuest(t).client(t)
	ctx := t.Context()
	info := openTerm(t, c, holt.TerminalSpec{Name: "a", Env: map[holt.OSString]holt.OSString{"PS1": "$ "}})
	s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	s.typeIn(t, "echo re''ady; sleep 1000; echo stat$?us\n")
	s.shows(t, "ready")
	for { // until sleep is in the foreground
		if err := c.SignalTerminal(ctx, info.ID, "TERM"); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		over := bytes.Contains(s.text, []byte("stat143us"))
		s.mu.Unlock()
		if over {
			break
		}
		time.Sleep(time.Millisecond)
	}
	typed := openTerm(t, c, holt.TerminalSpec{Name: "keys", Command: `trap "echo interrupted" INT; echo ready; while :; do sleep 0.01; done`})
	keys := watch(t, c, typed.ID, holt.AttachSpec{Offset: -1})
	keys.shows(t, "ready")
	keys.typeIn(t, "\x03")       // Ctrl-C
	keys.shows(t, "interrupted") // the kernel sends the signal before it echoes ^C
	if end, err := c.CloseTerminal(ctx, info.ID); err != nil || end.State != holt.TerminalExited || end.Signal != "SIGHUP" {
		t.Errorf("closed: %+v, %v", end, err)
	}
	wantCode(t, "signal after the end", c.SignalTerminal(ctx, info.ID, "TERM"), holt.Conflict)
	if end, err := c.CloseTerminal(ctx, info.ID); err != nil || end.Signal != "SIGHUP" {
		t.Errorf("closed again: %+v, %v", end, err)
	}
	deaf := openTerm(t, c, holt.TerminalSpec{Name: "b", Command: `trap "" HUP TERM INT; echo ready; while :; do sleep 1000; done`})
	watch(t, c, deaf.ID, holt.AttachSpec{Offset: -1}).shows(t, "ready")
	if end, err := c.CloseTerminal(ctx, deaf.ID); err != nil || end.Signal != "SIGKILL" {
		t.Errorf("a deaf one: %+v, %v", end, err)
	}
	late := watch(t, c, deaf.ID, holt.AttachSpec{Offset: -1, Size: holt.TerminalSize{Rows: 10, Cols: 40}})
	if end := late.ends(t); end.Signal != "SIGKILL" || end.Size.Rows != 24 || !bytes.Contains(late.text, []byte("ready")) {
		t.Errorf("attached to what has ended: %+v, %q", end, late.text)
	}
	wantCode(t, "no such terminal", c.SignalTerminal(ctx, holt.NewTerminalID(), "TERM"), holt.NotFound)
	wantCode(t, "no such signal", c.SignalTerminal(ctx, deaf.ID, "NO"), holt.InvalidArgument)
	killed := openTerm(t, c, holt.TerminalSpec{Name: "c", Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000"}})
	if err := c.SignalTerminal(ctx, killed.ID, "KILL"); err != nil {
		t.Error(err)
	}
	if end := watch(t, c, killed.ID, holt.AttachSpec{Offset: -1}).ends(t); end.Signal != "SIGKILL" {
		t.Errorf("killed: %+v", end)
	}
}

func TestTerminalRefused(t *testing.T) {
	c := startGuest(t).client(t)
	for _, tt := range []struct {
		name string
		id   holt.TerminalID
		spec holt.TerminalSpec
		code holt.Code
	}{
		{"id", "../x", holt.TerminalSpec{}, holt.InvalidArgument},
		{"name", holt.NewTerminalID(), holt.TerminalSpec{Name: "../x"}, holt.InvalidArgument},
		{"both", holt.NewTerminalID(), holt.TerminalSpec{Command: "x", Argv: []string{"x"}}, holt.InvalidArgument},
		{"user", holt.NewTerminalID(), holt.TerminalSpec{User: "nobody-of-that-name"}, holt.NotFound},
		{"directory", holt.NewTerminalID(), holt.TerminalSpec{Cwd: "/no/such"}, holt.NotFound},
		{"program", holt.NewTerminalID(), holt.TerminalSpec{Argv: []string{"/etc/passwd"}}, holt.Forbidden},
	} {
		_, err := c.OpenTerminal(t.Context(), tt.id, tt.spec)
		wantCode(t, tt.name, err, tt.code)
	}
	for i := range maxTerminals {
		openTerm(t, c, holt.TerminalSpec{Name: fmt.Sprint("t", i), Argv: []string{"sleep", "1000"}})
	}
	_, err := c.OpenTerminal(t.Context(), holt.NewTerminalID(), holt.TerminalSpec{Name: "more"})
	wantCode(t, "too many", err, holt.TooMany)
	info := openTerm(t, c, holt.TerminalSpec{Name: "t0"})
	none := func(holt.TerminalEvent) error { return nil }
	for _, spec := range []holt.AttachSpec{{Offset: 1 << 40}, {Client: strings.Repeat("x", maxClient+1)}, {Input: -1}} {
		wantCode(t, fmt.Sprint(spec), c.AttachTerminal(t.Context(), info.ID, spec, nil, none), holt.InvalidArgument)
	}
	var all []*screen
	for range maxAttached {
		s := watch(t, c, info.ID, holt.AttachSpec{})
		s.until(t, "attached", func() bool { return s.hello.Kind != "" })
		all = append(all, s)
	}
	wantCode(t, "too many attached", c.AttachTerminal(t.Context(), info.ID, holt.AttachSpec{}, nil, none), holt.TooMany)
	for _, s := range all {
		s.stop()
		<-s.done
	}
}

// The number of remembered clients is limited.
func TestTypistsBounded(t *testing.T) {
	x := &terminal{out: newScrollback(1 << 10), typists: map[string]*typist{}, here: map[*attachment]bool{}}
	for i := range 3 * maxTypists {
		a, _, err := x.attach(nil, attachArgs{Client: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		x.detach(a)
	}
	if len(x.typists) != maxTypists || x.typists[fmt.Sprint(3*maxTypists-1)] == nil || len(x.here) != 0 {
		t.Errorf("%d typists, %d attachments", len(x.typists), len(x.here))
	}
}

func TestForgetTerminals(t *testing.T) {
	table := newTerminalTable(&groups{}, new(reaper), "/", nil)
	for i := range 3 * keepTerminals {
		long := time.Now().Add(-time.Duration(3*keepTerminals-i) * keepFor)
		one := &terminal{out: newScrollback(scrollbackSize), ended: make(chan struct{}), info: holt.Terminal{EndedAt: &long}}
		one.out.write(make([]byte, scrollbackSize))
		close(one.ended)
		table.order = append(table.order, one)
	}
	last := table.order[len(table.order)-1]
	table.order = append(table.order, &terminal{ended: make(chan struct{})})
	table.forgetEnded()
	bytes := 0
	for _, one := range table.order[:keepTerminals] {
		bytes += one.out.size()
	}
	if len(table.order) != keepTerminals+1 || table.order[keepTerminals-1] != last || bytes > keepScreens || bytes < keepScreens/2 {
		t.Errorf("%d terminals are kept, with %d bytes", len(table.order), bytes)
	}
}

// TestScrollback compares the ring with a string.
func TestScrollback(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const limit = 40 << 10
	s := newScrollback(limit)
	var all []byte
	buf := make([]byte, limit)
	for range 2000 {
		p := make([]byte, rnd.IntN([]int{10, 1000, 2 * limit}[rnd.IntN(3)]))
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		s.write(p)
		all = append(all, p...)
		start, end := s.bounds()
		if end != int64(len(all)) || end-start > limit || end-start < min(end, scrollbackMin) {
			t.Fatalf("keeps %d to %d of %d", start, end, len(all))
		}
		from := rnd.Int64N(end + 1)
		r := s.at(from, buf[:1+rnd.IntN(limit)])
		if from < start && r.dropped != start-from || from >= start && !bytes.Equal(r.data, all[from:from+int64(len(r.data))]) || from == end != (r.changed != nil) || from >= start && from < end && len(r.data) == 0 {
			t.Fatalf("at %d of %d…%d: %d bytes, %d dropped", from, start, end, len(r.data), r.dropped)
		}
	}
	s.close()
	if r := s.at(int64(len(all)), buf); !r.over {
		t.Error("not over")
	}
}

// An error of emit ends only the attachment.
func TestTerminalEmitError(t *testing.T) {
	c := startGuest(t).client(t)
	info := openTerm(t, c, holt.TerminalSpec{Command: "echo hello; cat"})
	enough := errors.New("enough")
	err := c.AttachTerminal(t.Context(), info.ID, holt.AttachSpec{Offset: -1}, nil, func(e holt.TerminalEvent) error {
		if e.Kind == holt.TerminalOutput {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("attach: %v", err)
	}
	s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	s.shows(t, "hello")
	s.typeIn(t, "\x04")
	s.ends(t)
}
