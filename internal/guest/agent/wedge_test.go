package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"holt"
)

// muxFrame returns a frame of the multiplexer whose length field may differ from its body.
func muxFrame(kind byte, flags uint16, stream, length uint32, body []byte) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(binary.BigEndian.AppendUint32(b, length), body...)
}

func acknowledge(stream uint32) []byte { return muxFrame(muxWindow, muxACK, stream, 0, nil) }

func data(stream uint32, body []byte) []byte {
	return muxFrame(muxData, 0, stream, uint32(len(body)), body)
}

// answered returns the body of a frame that answers a request.
func answered(t testing.TB, result any, err error) []byte {
	var b bytes.Buffer
	if err := writeAnswer(&b, result, err); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// scripted is a guest that sends given bytes once the host has opened a stream,
// and reads the host's bytes without end.
func scripted(t testing.TB, send ...[]byte) *Client {
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	c, err := NewClient(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.stuck = 20 * time.Millisecond
	go func() {
		io.ReadFull(far, make([]byte, muxHeader))
		go io.Copy(io.Discard, far)
		for _, b := range send {
			far.Write(b)
		}
	}()
	return c
}

// returns fails the test if f does not return.
func returns(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the guest holds its host up")
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A guest that does not finish a frame blocks a caller only slightly longer than its context.
func TestIncompleteFrame(t *testing.T) {
	c := scripted(t, acknowledge(1), muxFrame(muxData, 0, 1, 100, []byte{0}))
	returns(t, func() {
		_, err := c.Hello(soon(t))
		wantCode(t, "hello", err, holt.Timeout)
		<-c.Done() // nothing better can come of this channel
	})
}

// A guest that does not read blocks no caller that opens a stream, asks or sends.
func TestDeafGuest(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c, err := NewClient(near)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.stuck = 20 * time.Millisecond
	returns(t, func() {
		_, err := c.Hello(soon(t))
		wantCode(t, "hello", err, holt.Timeout)
		<-c.Done()
	})
}

// A slow caller does not end the channel for others.
func TestSlowCaller(t *testing.T) {
	out := appendEvent(nil, eventStdout, 0, []byte("x"))
	c := scripted(t, acknowledge(1), data(1, answered(t, nil, nil)), data(1, out))
	ctx, cancel := context.WithCancel(t.Context())
	err := c.FollowRun(ctx, holt.NewRunID(), 0, func(holt.RunEvent) error {
		cancel()
		select {
		case <-c.Done():
			t.Error("the channel ended")
		case <-time.After(5 * c.stuck):
		}
		return nil
	})
	wantCode(t, "follow", err, holt.Timeout)
}

// Streams that a guest does not acknowledge end like others.
func TestUnacknowledged(t *testing.T) {
	c := scripted(t)
	c.stuck = time.Hour
	returns(t, func() {
		for range 300 { // more than yamux lets be unacknowledged by default
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := c.Hello(ctx)
			wantCode(t, "hello", err, holt.Timeout)
			cancel()
		}
	})
}

// Operations beyond the limit are refused without waiting.
func TestOperationsBounded(t *testing.T) {
	c := scripted(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range maxStreams {
		wg.Go(func() { c.Hello(ctx) })
	}
	returns(t, func() {
		for len(c.streams) < maxStreams {
			time.Sleep(time.Millisecond)
		}
		_, err := c.Hello(t.Context())
		wantCode(t, "hello", err, holt.TooMany)
		cancel()
		wg.Wait()
		for len(c.streams) > 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

// Data for a closed stream is not kept.
func TestClosedStreamsAreForgotten(t *testing.T) {
	c := hostile(t, eachStream(func(st *yamux.Stream) {
		go func() { // and never closes it
			writeAnswer(st, Hello{}, nil)
			st.Write(make([]byte, 1<<20))
		}()
	}))
	for range 20 {
		if _, err := c.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	returns(t, func() {
		for c.mux.NumStreams() > 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

// yamux never forgets a stream with unacknowledged data.
func TestDataUnacknowledged(t *testing.T) {
	c := scripted(t, data(1, answered(t, Hello{}, nil)))
	_, err := c.Hello(t.Context())
	wantCode(t, "hello", err, holt.Unavailable)
	<-c.Done()
}

// A guest's errors are sanitised.
func TestForeignErrors(t *testing.T) {
	rude := &holt.Error{
		Code: holt.Unauthenticated, Message: "\x1b]0;mine\x07 see\nme" + strings.Repeat("!", 1<<16),
		Hint: "paste \u202eti", Detail: map[string]any{"list": []int{1}},
	}
	event, err := json.Marshal(rude)
	if err != nil {
		t.Fatal(err)
	}
	for name, send := range map[string][][]byte{
		"answer": {acknowledge(1), data(1, answered(t, nil, rude))},
		"event":  {acknowledge(1), data(1, answered(t, nil, nil)), data(1, appendEvent(nil, eventError, 0, event))},
	} {
		t.Run(name, func(t *testing.T) {
			err := scripted(t, send...).FollowRun(t.Context(), holt.NewRunID(), 0, func(holt.RunEvent) error { return nil })
			var e *holt.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			if e.Code != holt.Internal || e.Detail != nil || len(e.Message) > 3*maxSentence {
				t.Errorf("%s, %d bytes, detail %v", e.Code, len(e.Message), e.Detail)
			}
			if strings.ContainsAny(e.Message+e.Hint, "\x1b\x07\n\u202e") || !strings.Contains(e.Message, "see me") {
				t.Errorf("%.50q, %q", e.Message, e.Hint)
			}
		})
	}
	c := scripted(t, acknowledge(1), data(1, answered(t, nil, holt.Errorf(holt.NotFound, "no such run").WithHint("look"))))
	_, err = c.GetRun(t.Context(), holt.NewRunID())
	wantCode(t, "honest", err, holt.NotFound)
	if err.Error() != "no such run" {
		t.Error(err)
	}
}

// A guest's descriptions of itself, runs and files are bounded.
func TestForeignFacts(t *testing.T) {
	c := scripted(t, acknowledge(1), data(1, answered(t, Hello{BootID: strings.Repeat("\x1b", 1<<16), Runs: -1}, nil)))
	h, err := c.Hello(t.Context())
	if err != nil || len(h.BootID) > 3*maxWord || strings.Contains(h.BootID, "\x1b") || h.Runs != 0 {
		t.Errorf("%d bytes of boot id, %d runs, %v", len(h.BootID), h.Runs, err)
	}
	for name, run := range map[string]holt.Run{
		"state":  {State: "\x1b"},
		"signal": {State: holt.RunExited, Signal: "\x1b]0;x\x07"},
	} {
		c := scripted(t, acknowledge(1), data(1, answered(t, run, nil)))
		_, err := c.GetRun(t.Context(), holt.NewRunID())
		wantCode(t, "run: "+name, err, holt.Corrupt)
	}
	c = scripted(t, acknowledge(1), data(1, answered(t, holt.FileInfo{Kind: "file", Path: "/elsewhere", Name: "../x"}, nil)))
	info, err := c.Stat(t.Context(), "/home/agent/x")
	if err != nil || info.Path != "/home/agent/x" || info.Name != "x" {
		t.Errorf("stat: %+v, %v", info, err)
	}
	for _, bad := range []holt.FileInfo{{Kind: "fort"}, {Kind: "file", Size: -1}, {Kind: "file", Mode: 1 << 20}, {Kind: "symlink", Target: holt.OSString(strings.Repeat("x", 1<<16))}} {
		c := scripted(t, acknowledge(1), data(1, answered(t, bad, nil)))
		_, err := c.Stat(t.Context(), "/x")
		wantCode(t, "stat", err, holt.Corrupt)
	}
}

// A guest cannot list a file with an invalid name.
func TestListNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../../etc/passwd", "a/b", "/etc", "a\x00b", strings.Repeat("n", 4096)} {
		list := []holt.FileInfo{{Name: "good", Kind: "file"}, {Name: holt.OSString(name), Kind: "file"}}
		c := scripted(t, acknowledge(1), data(1, answered(t, nil, nil)), data(1, answered(t, list, nil)))
		var got []string
		err := c.List(t.Context(), "/home/agent", 0, 100, func(info holt.FileInfo, _ int64) error {
			got = append(got, string(info.Path))
			return nil
		})
		wantCode(t, name, err, holt.Corrupt)
		if len(got) != 1 || got[0] != "/home/agent/good" {
			t.Errorf("%q", got)
		}
	}
}

// Lists end, even if the guest does not end them.
func TestListsBounded(t *testing.T) {
	endless := func(item string, n int) io.Reader {
		items := "[" + strings.Repeat(item+",", n-1) + item + "]"
		one := answered(t, json.RawMessage(items), nil)
		return io.MultiReader(bytes.NewReader(one), bytes.NewReader(one), bytes.NewReader(one), bytes.NewReader(one))
	}
	seen := 0
	count := func(holt.FileInfo) error { seen++; return nil }
	wantCode(t, "bytes", readList(endless("{}", 10), 80, count), holt.TooMany)
	if seen != 20 {
		t.Errorf("%d items of 80 bytes", seen)
	}
	wantCode(t, "items", readItems(endless("{}", mostItems+1), count), holt.Corrupt)
}

// Events must begin at the expected offset and stay within int64.
func TestEventOrder(t *testing.T) {
	gap := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	exit, err := json.Marshal(holt.Run{State: holt.RunExited})
	if err != nil {
		t.Fatal(err)
	}
	for name, event := range map[string][]byte{
		"before":   appendEvent(nil, eventStdout, 6, []byte("x")),
		"behind":   appendEvent(nil, eventStdout, 8, []byte("x")),
		"empty":    appendEvent(nil, eventStdout, 7, nil),
		"no gap":   appendEvent(nil, eventGap, 7, gap(0)),
		"backward": appendEvent(nil, eventGap, 7, gap(-1)),
		"too far":  appendEvent(nil, eventGap, 7, gap(math.MaxInt64)),
		"exit":     appendEvent(nil, eventExit, 9, exit),
		"run":      appendEvent(nil, eventExit, 7, []byte(`{"state":"\u001b"}`)),
	} {
		c := scripted(t, acknowledge(1), data(1, answered(t, nil, nil)), data(1, event))
		err := c.FollowRun(t.Context(), holt.NewRunID(), 7, func(e holt.RunEvent) error {
			t.Errorf("%s: %+v was taken", name, e)
			return nil
		})
		wantCode(t, name, err, holt.Corrupt)
	}
}

// A guest cannot send more of a file than requested.
func TestReadBounded(t *testing.T) {
	var chunks bytes.Buffer
	w := newChunkWriter(&chunks, maxChunk)
	w.Write(make([]byte, 100))
	c := scripted(t, acknowledge(1), data(1, answered(t, nil, nil)), data(1, chunks.Bytes()))
	var got bytes.Buffer
	_, err := c.ReadFile(t.Context(), "/x", 0, 10, &got)
	wantCode(t, "read", err, holt.Corrupt)
	if got.Len() > 10 {
		t.Errorf("%d bytes", got.Len())
	}
}

// A failed upload leaves no goroutine that waits for the guest.
func TestFailedUpload(t *testing.T) {
	c := scripted(t, acknowledge(1), data(1, answered(t, nil, nil)))
	mine := errors.New("mine")
	if err := c.WriteFile(t.Context(), "/x", holt.WriteSpec{}, io.MultiReader(strings.NewReader("x"), errReader{mine})); !errors.Is(err, mine) {
		t.Fatal(err)
	}
	returns(t, func() {
		for len(c.streams) > 0 || c.mux.NumStreams() > 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

type errReader struct{ error }

func (r errReader) Read([]byte) (int, error) { return 0, r.error }

// Data written to a port before its end arrives, however slow the far end is.
func TestPortLingers(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "port")) // whose kernel buffers little
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := startGuest(t).client(t)
	conn, err := c.DialPort(t.Context(), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	const most = 3 << 20 // what the stream's window takes without being read
	if _, err := conn.Write(make([]byte, most)); err != nil {
		t.Fatal(err)
	}
	conn.(interface{ CloseWrite() error }).CloseWrite()
	returns(t, func() {
		read := make(chan struct{})
		go func() { conn.Read(make([]byte, 1)); close(read) }()
		conn.Close()
		<-read
	})
	<-time.After(3 * hostMuxConfig().StreamCloseTimeout) // by then a stream that was just closed is cut off
	n, err := io.Copy(io.Discard, far)
	if n != most || err != nil {
		t.Errorf("%d of %d bytes arrived, %v", n, most, err)
	}
	far.Close()
	returns(t, func() {
		for c.mux.NumStreams() > 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

// FuzzGuest gives the host arbitrary frames in place of an agent's.
func FuzzGuest(f *testing.F) {
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	f.Add(byte(0), join(acknowledge(1), data(1, answered(f, Hello{}, nil))))
	f.Add(byte(1), join(acknowledge(1), data(1, answered(f, nil, nil)), data(1, appendEvent(nil, eventStdout, 0, []byte("out")))))
	f.Add(byte(2), join(acknowledge(1), data(1, answered(f, nil, nil)), data(1, answered(f, []holt.FileInfo{{Name: "x", Kind: "file"}}, nil))))
	f.Add(byte(3), join(acknowledge(1), data(1, answered(f, nil, nil)), data(1, []byte{0, 0, 0, 1, 'x', 0, 0, 0, 0})))
	f.Add(byte(4), join(acknowledge(1), muxFrame(muxWindow, 4, 1, math.MaxUint32, nil), muxFrame(muxWindow, muxRST, 1, 0, nil)))
	f.Fuzz(func(t *testing.T, op byte, b []byte) {
		near, far := net.Pipe()
		c, err := NewClient(near)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			io.ReadFull(far, make([]byte, muxHeader))
			go io.Copy(io.Discard, far)
			far.Write(b)
			far.Close()
		}()
		switch op % 5 {
		case 0:
			c.Hello(ctx)
		case 1:
			at := int64(0)
			c.FollowRun(ctx, holt.NewRunID(), 0, func(e holt.RunEvent) error {
				if e.Offset != at {
					t.Errorf("output at %d, not %d", e.Offset, at)
				}
				at += int64(len(e.Data)) + e.Dropped
				return nil
			})
		case 2:
			c.List(ctx, "/d", 0, 100, func(info holt.FileInfo, _ int64) error {
				if info.Path != "/d/"+info.Name || strings.Contains(string(info.Name), "/") {
					t.Errorf("%q", info.Path)
				}
				return nil
			})
		case 3:
			if n, _ := c.ReadFile(ctx, "/x", 0, 5, io.Discard); n > 5 {
				t.Errorf("%d bytes", n)
			}
		case 4:
			if in, err := c.RunInput(ctx, holt.NewRunID(), -1, false, false); err == nil {
				in.Write([]byte("x"))
				in.End()
			}
		}
	})
}

// A guest that sends faster than its host reads does not block a caller beyond its context.
func TestFastGuest(t *testing.T) {
	send := [][]byte{acknowledge(1), data(1, answered(t, nil, nil))}
	for n := range 10 {
		send = append(send, data(1, appendEvent(nil, eventStdout, int64(n), []byte("x"))))
	}
	c := scripted(t, send...)
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	err := c.FollowRun(ctx, holt.NewRunID(), 0, func(holt.RunEvent) error {
		told++
		cancel()
		time.Sleep(5 * c.stuck) // the rest comes, and the end of ctx is noticed
		return nil
	})
	wantCode(t, "follow", err, holt.Timeout)
	if told != 1 {
		t.Errorf("told %d events, of which all but one came when nobody waited", told)
	}
}
