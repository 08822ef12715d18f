package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/yamux"

	"holt"
)

// FuzzMessages gives both sides arbitrary bytes for a message.
func FuzzMessages(f *testing.F) {
	var b bytes.Buffer
	writeMessage(&b, request{V: 1, Op: opRunStart, Args: []byte(`{"id":"run_x"}`)})
	f.Add(b.Bytes())
	b.Reset()
	writeAnswer(&b, nil, holt.Errorf(holt.NotFound, "no").WithHint("look"))
	f.Add(b.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 2, '[', ']'})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q request
		if err := readMessage(bytes.NewReader(b), &q); err == nil {
			decode[runArgs](q.Args)
			decode[Identity](q.Args)
			if args, err := decode[fileArgs](q.Args); err == nil {
				checkPath(string(args.Path))
			}
		}
		var r holt.Run
		readAnswer(bytes.NewReader(b), &r)
		readItems(bytes.NewReader(b), func(holt.FileInfo) error { return nil })
	})
}

// FuzzEvents: events survive encoding and decoding; other bytes are an error.
func FuzzEvents(f *testing.F) {
	f.Add(appendEvent(nil, eventStdout, 7, []byte("out")))
	f.Add(appendEvent(nil, eventGap, 0, binary.BigEndian.AppendUint64(nil, 9)))
	f.Add(appendEvent(nil, eventExit, 10, []byte(`{"id":"run_x","exit_code":3}`)))
	f.Add(appendEvent(nil, eventError, 10, []byte(`{"code":"internal"}`)))
	f.Add(appendEvent(nil, 99, 1<<62, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		buf := make([]byte, maxChunk)
		e, err := readEvent(bytes.NewReader(b), buf)
		if err != nil {
			return
		}
		if e.Kind == holt.RunStdout && !bytes.HasPrefix(b, appendEvent(nil, eventStdout, e.Offset, e.Data)) {
			t.Fatalf("event changed: %+v", e)
		}
		if e.Kind == holt.RunExit && e.Run == nil {
			t.Fatal("exit without a run")
		}
	})
}

func FuzzChunks(f *testing.F) {
	var b bytes.Buffer
	w := newChunkWriter(&b, 4)
	w.Write([]byte("0123456789"))
	w.end()
	f.Add(b.Bytes())
	f.Add([]byte{0xff, 0, 0, 0})
	f.Add([]byte{0x80, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0x80, 4, 0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0})
	f.Add([]byte{0x80, 4, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := io.ReadAll(&chunkReader{r: bytes.NewReader(b)})
		if len(got) > len(b)/4*maxChunk {
			t.Fatal("more came out than went in")
		}
		if err == nil && !bytes.Contains(b, make([]byte, 4)) {
			t.Fatal("an end that is not there")
		}
	})
}

// FuzzGuard: the guard passes the same frames however they are split, and no
// streams or pings of the guest.
func FuzzGuard(f *testing.F) {
	frame := func(kind byte, flags uint16, length uint32, body int) []byte {
		b := []byte{0, kind}
		b = binary.BigEndian.AppendUint16(b, flags)
		b = binary.BigEndian.AppendUint32(b, 1)
		return append(binary.BigEndian.AppendUint32(b, length), make([]byte, body)...)
	}
	f.Add(append(frame(0, 0, 5, 5), frame(1, 0, 100, 0)...), uint(3))
	f.Add(frame(1, muxSYN, 0, 0), uint(1))
	f.Add(frame(2, muxSYN, 0, 0), uint(12))
	f.Add(frame(3, 0, 0, 0), uint(5))
	f.Add(append(frame(0, 0, 5, 5), frame(1, muxFIN, 0, 0)...), uint(2))
	f.Fuzz(func(t *testing.T, b []byte, cut uint) {
		streams := func() map[uint32]guarded { return map[uint32]guarded{1: {left: true}, 3: {unacked: true}} }
		whole, all := guardConn{streams: streams()}, slices.Clone(b)
		k, want := whole.admit(all)
		all = all[:k]
		parts, some, got := guardConn{streams: streams()}, []byte(nil), true
		for rest := b; len(rest) > 0 && got; {
			n := min(len(rest), int(cut%64)+1)
			p := append(slices.Clone(parts.held[:parts.have]), rest[:n]...)
			if n, got = parts.admit(p); got {
				some = append(some, p[:n]...)
			}
			rest = rest[min(len(rest), int(cut%64)+1):]
		}
		if got != want || want && !bytes.Equal(some, all) {
			t.Fatalf("cut: %v %x, whole: %v %x", got, some, want, all)
		}
		if want && len(b) >= muxHeader && (b[1] > 1 || b[3]&muxSYN != 0) {
			t.Fatal("let through what no agent sends")
		}
	})
}

// FuzzHosts: a hosts file keeps its own lines and has one block of holt.
func FuzzHosts(f *testing.F) {
	f.Add("127.0.0.1 localhost\n# begin holt\n127.0.1.1 a\n# end holt\n")
	f.Add("# begin holt\n# begin holt\nno end")
	f.Fuzz(func(t *testing.T, old string) {
		id := Identity{Hostname: "x"}
		once := hostsFile(old, id)
		if twice := hostsFile(once, id); twice != once {
			t.Fatalf("not stable: %s", cmp.Diff(once, twice))
		}
	})
}

// hostile returns the client of a guest that answers with its own bytes.
func hostile(t *testing.T, serve func(net.Conn)) *Client {
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	go serve(far)
	c, err := NewClient(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// eachStream is a guest that serves each stream that the host opens concurrently.
func eachStream(serve func(*yamux.Stream)) func(net.Conn) {
	return func(conn net.Conn) {
		mux, err := yamux.Server(conn, muxConfig())
		if err != nil {
			return
		}
		for {
			st, err := mux.AcceptStream()
			if err != nil {
				return
			}
			serve(st)
		}
	}
}

// A guest that opens streams, pings or sends invalid frames loses its channel.
func TestHostileGuest(t *testing.T) {
	frames := map[string][]byte{
		"stream":  {0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0},
		"ping":    {0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0},
		"version": {9, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
		"window":  {0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},
	}
	for name, frame := range frames {
		t.Run(name, func(t *testing.T) {
			c := hostile(t, func(conn net.Conn) {
				go io.Copy(io.Discard, conn)
				for {
					if _, err := conn.Write(frame); err != nil {
						return
					}
				}
			})
			ctx := t.Context()
			if name == "window" { // data for a stream that is not there yet is dropped, with all that follows for 4 GiB
				c.stuck, ctx = 20*time.Millisecond, soon(t)
			}
			_, err := c.Hello(ctx)
			if err == nil {
				t.Error("it was answered")
			}
			if name != "window" {
				wantCode(t, "hello", err, holt.Unavailable)
				<-c.Done()
			}
			c.Close()
		})
	}
}

// A guest that answers each request with random messages.
func TestHostileAnswers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := hostile(t, eachStream(func(st *yamux.Stream) {
		b := make([]byte, random.IntN(200))
		for i := range b {
			b[i] = byte(random.IntN(256))
		}
		if random.IntN(2) == 0 { // agree first
			var ok bytes.Buffer
			writeAnswer(&ok, nil, nil)
			b = append(ok.Bytes(), b...)
		}
		go func() {
			defer st.Close()
			st.Write(b)
		}()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 200 {
		id := holt.NewRunID()
		c.Hello(ctx)
		c.StartRun(ctx, id, holt.RunSpec{})
		c.FollowRun(ctx, id, 0, func(holt.RunEvent) error { return nil })
		c.RunOutput(ctx, id, 100)
		c.ReadFile(ctx, "/x", 0, -1, io.Discard)
		c.WriteFile(ctx, "/x", holt.WriteSpec{}, bytes.NewReader(make([]byte, 1000)))
		c.List(ctx, "/x", 0, 100, func(holt.FileInfo, int64) error { return nil })
		c.Runs(ctx)
		if in, err := c.RunInput(ctx, id, -1, false, false); err == nil {
			in.Write([]byte("x"))
			in.End()
		}
		if conn, err := c.DialPort(ctx, "tcp", "x"); err == nil {
			conn.SetDeadline(time.Now().Add(patience))
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}
	if ctx.Err() != nil {
		t.Error("the client was held up")
	}
}

// A guest that does not answer blocks no caller beyond its context.
func TestSilentGuest(t *testing.T) {
	c := hostile(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("mine")
	time.AfterFunc(10*time.Millisecond, func() { cancel(mine) })
	_, err := c.Hello(ctx)
	wantCode(t, "hello", err, holt.Timeout)
	if !errors.Is(err, mine) {
		t.Errorf("%v does not say why", err)
	}
}

// A host that sends invalid bytes on the control port loses its session; the agent serves the next.
func TestHostileControlHost(t *testing.T) {
	g := startGuest(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		conn := g.dial(t, "control.sock")
		b := make([]byte, 1000)
		for i := range b {
			b[i] = byte(random.Uint32() & random.Uint32() >> 8) // mostly zeros, as headers are
		}
		b[0] = 0
		conn.Write(b)
		conn.Close()
	}
	// Well-formed streams with bad requests in them.
	conn := g.dial(t, "control.sock")
	mux, err := yamux.Client(newMuxConn(conn), muxConfig())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(b []byte) error {
		st, err := mux.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		st.Write(b)
		st.SetReadDeadline(time.Now().Add(patience))
		return readAnswer(st, nil)
	}
	message := func(v any) []byte {
		var b bytes.Buffer
		writeMessage(&b, v)
		return b.Bytes()
	}
	wantCode(t, "length", ask([]byte{0xff, 0, 0, 0}), holt.Corrupt)
	wantCode(t, "no JSON", ask([]byte{0, 0, 0, 1, '{'}), holt.Corrupt)
	wantCode(t, "version", ask(message(request{V: 99, Op: opHello})), holt.Unsupported)
	wantCode(t, "operation", ask(message(request{V: Protocol, Op: "nonsense"})), holt.Unsupported)
	wantCode(t, "arguments", ask(message(request{V: Protocol, Op: opStat, Args: []byte(`"x"`)})), holt.InvalidArgument)
	wantCode(t, "no arguments", ask(message(request{V: Protocol, Op: opRunStart})), holt.InvalidArgument)
	mux.Close()
	if _, err := g.client(t).Hello(t.Context()); err != nil {
		t.Error(err)
	}
}

// FuzzTerminal gives both sides of an attachment arbitrary bytes.
func FuzzTerminal(f *testing.F) {
	f.Add(appendTermFrame(nil, termInput, []byte("ls\n")))
	f.Add(appendTermFrame(nil, termSize, appendSize(nil, holt.TerminalSize{Rows: 24, Cols: 80})))
	f.Add(appendTermFrame(nil, termRead, binary.BigEndian.AppendUint64(nil, 1<<63)))
	f.Add(appendEvent(nil, eventStdout, 0, []byte("out")))
	f.Add(appendEvent(nil, eventSize, 0, appendSize(nil, holt.TerminalSize{Rows: 24, Cols: 80})))
	f.Add(appendEvent(appendEvent(nil, eventTaken, 3, nil), eventGap, 0, binary.BigEndian.AppendUint64(nil, 9)))
	f.Add(appendEvent(nil, eventExit, 0, []byte(`{"id":"term_aaaaaaaaaaaaaaaa","name":"main","state":"exited"}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		buf := make([]byte, maxChunk)
		if kind, data, err := readTermFrame(bytes.NewReader(b), buf); err == nil {
			if !bytes.HasPrefix(b, appendTermFrame(nil, kind, data)) {
				t.Fatalf("frame changed: %d %q", kind, data)
			}
			if kind == termSize {
				if size := bounded(decodeSize(data)); size.Rows == 0 || size.Rows > holt.MostTerminalSize || size.Cols > holt.MostTerminalSize {
					t.Fatalf("size %+v", size)
				}
			}
		}
		a := &hostAttachment{sent: 100, news: make(chan struct{}, 1)}
		for r := bytes.NewReader(b); ; {
			e, err := readTermEvent(r, buf)
			if err == nil {
				err = a.vet(e)
			}
			if err != nil {
				return
			}
			if a.at < 0 || a.taken < 0 || a.taken > a.sent {
				t.Fatalf("stands at %d, taken %d", a.at, a.taken)
			}
			if e.Kind == holt.TerminalExit {
				if end, err := vetTerminal(*e.Terminal); err == nil && (end.Name == "" || end.Spec.Env != nil) {
					t.Fatalf("ended: %+v", end)
				}
			}
		}
	})
}

// A guest's description of a terminal's program is truncated, because it is stored.
func TestHostileTerminalSpec(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), maxSpec/4))
	told := holt.Terminal{ID: "term_aaaaaaaaaaaaaaaa", Name: "main", State: holt.TerminalRunning, Spec: holt.TerminalSpec{
		Cwd: "/root", User: "root", Command: "top", Argv: holt.OSStrings{"a", long, long}, Env: map[holt.OSString]holt.OSString{"A": "b"}}}
	c := hostile(t, eachStream(func(st *yamux.Stream) {
		readMessage(st, new(request))
		writeAnswer(st, told, nil)
		st.Close()
	}))
	got, err := c.CloseTerminal(t.Context(), told.ID)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, arg := range got.Spec.Argv {
		size += len(arg) + 1
	}
	if s := got.Spec; s.Cwd != "/root" || s.User != "root" || s.Command != "top" || len(s.Argv) != 2 || s.Argv[0] != "a" || size > maxTold || s.Env != nil {
		t.Errorf("%d arguments of %d bytes, %.40q in %q as %q", len(s.Argv), size, s.Command, s.Cwd, s.User)
	}
	empty := toldSpec(holt.TerminalSpec{Argv: make(holt.OSStrings, 2*maxTold)})
	if len(empty.Argv) > maxTold {
		t.Errorf("%d arguments", len(empty.Argv))
	}
}

// Of a list of runs, up to 64 MiB of a guest's text, only states and valid ids are kept.
func TestHostileRuns(t *testing.T) {
	long := holt.OSString(bytes.Repeat([]byte("x"), 100<<10))
	list := func(id holt.RunID, batches int) func(*yamux.Stream) {
		return func(st *yamux.Stream) {
			readMessage(st, new(request))
			writeAnswer(st, nil, nil)
			for range batches {
				writeAnswer(st, []holt.Run{{ID: id, State: holt.RunExited, ExitCode: 3, ComputerID: holt.ComputerID(long), Schedule: string(long), Spec: holt.RunSpec{Command: long}}}, nil)
			}
			writeAnswer(st, []holt.Run{}, nil)
			st.Close()
		}
	}
	id := holt.NewRunID()
	got, err := hostile(t, eachStream(list(id, 100))).Runs(t.Context())
	if err != nil || len(got) != 100 {
		t.Fatalf("%d runs, %v", len(got), err)
	}
	for _, r := range got {
		if diff := cmp.Diff(holt.Run{ID: id, State: holt.RunExited, ExitCode: 3}, r); diff != "" {
			t.Fatal(diff[:min(len(diff), 1000)])
		}
	}
	_, err = hostile(t, eachStream(list("run_../../x", 1))).Runs(t.Context())
	wantCode(t, "a name of no run", err, holt.Corrupt)
}

// An invalid terminal event ends the attachment only.
func TestHostileTerminal(t *testing.T) {
	good := holt.Terminal{ID: "term_aaaaaaaaaaaaaaaa", Name: "main", State: holt.TerminalRunning}
	for name, events := range map[string][]byte{
		"bytes out of order": appendEvent(nil, eventStdout, 5, []byte("x")),
		"taken too much":     appendEvent(nil, eventTaken, 5, nil),
		"no size":            appendEvent(nil, eventSize, 0, make([]byte, 4)),
		"huge":               appendEvent(nil, eventStdout, 0, make([]byte, maxChunk+1)),
		"empty":              appendEvent(nil, eventStdout, 0, nil),
		"no state":           appendEvent(nil, eventExit, 0, []byte(`{"id":"term_aaaaaaaaaaaaaaaa","name":"main"}`)),
	} {
		c := hostile(t, eachStream(func(st *yamux.Stream) {
			readMessage(st, new(request))
			writeAnswer(st, attachAnswer{Terminal: good}, nil)
			st.Write(events)
			io.Copy(io.Discard, st)
		}))
		err := c.AttachTerminal(t.Context(), good.ID, holt.AttachSpec{}, nil, func(holt.TerminalEvent) error { return nil })
		wantCode(t, name, err, holt.Corrupt)
	}
	for name, hello := range map[string]attachAnswer{
		"behind":    {Terminal: good, Offset: 5, End: 3},
		"elsewhere": {Terminal: good, Offset: 5, End: 5},
		"unwritten": {Terminal: good, Taken: 3, Written: 4},
		"nobody":    {Terminal: holt.Terminal{State: holt.TerminalRunning}},
	} {
		c := hostile(t, eachStream(func(st *yamux.Stream) {
			readMessage(st, new(request))
			writeAnswer(st, hello, nil)
			io.Copy(io.Discard, st)
		}))
		err := c.AttachTerminal(t.Context(), good.ID, holt.AttachSpec{}, nil, func(holt.TerminalEvent) error { return nil })
		wantCode(t, name, err, holt.Corrupt)
	}
}
