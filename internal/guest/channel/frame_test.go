package channel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"holt"
)

func TestFrames(t *testing.T) {
	s, connect := socket(t)
	p := NewPort(s)
	defer p.Close()
	message := random(1 << 20)
	sent := make(chan error, 1)
	go func() { // the guest
		conn, err := p.Accept()
		if err != nil {
			sent <- err
			return
		}
		w := NewFrameWriter(conn)
		err = w.Write(FrameHello, Hello{Mount: [16]byte{7}, Version: FrameVersion, Fresh: true}.Append(nil))
		b := RequestHeader(nil, -5, "run/run_x", len(message))
		_, err2 := conn.Write(append(b, message...))
		err3 := w.Write(FrameAck, binary.LittleEndian.AppendUint64(nil, 42))
		err4 := w.Write(FrameTaken, binary.LittleEndian.AppendUint32(nil, 7))
		sent <- errors.Join(err, err2, err3, err4)
		r, w := NewFrameReader(conn), NewFrameWriter(conn)
		for {
			kind, payload, err := r.Next(nil)
			if err != nil {
				return
			}
			w.Write(kind, payload)
		}
	}()
	conn := dial(t, connect())
	r, w := NewFrameReader(conn), NewFrameWriter(conn)
	buf := make([]byte, MaxFrame)
	next := func(want FrameKind) []byte {
		t.Helper()
		kind, payload, err := r.Next(buf)
		if err != nil || kind != want {
			t.Fatalf("frame %d, %v; want %d", kind, err, want)
		}
		return payload
	}
	if h, err := ParseHello(next(FrameHello)); err != nil || h != (Hello{Mount: [16]byte{7}, Version: FrameVersion, Fresh: true}) {
		t.Fatalf("hello %+v, %v", h, err)
	}
	if r, err := ParseRequest(next(FrameRequest)); err != nil || r.Time != -5 || r.Tag != "run/run_x" || !bytes.Equal(r.Message, message) {
		t.Fatalf("request at %d tagged %q of %d bytes, %v", r.Time, r.Tag, len(r.Message), err)
	}
	if n, err := ParseAck(next(FrameAck)); err != nil || n != 42 {
		t.Fatalf("ack %d, %v", n, err)
	}
	if n, err := ParseTaken(next(FrameTaken)); err != nil || n != 7 {
		t.Fatalf("taken %d, %v", n, err)
	}
	for _, n := range []uint32{0, MaxNotices + 1, 1 << 31} {
		if _, err := ParseTaken(binary.LittleEndian.AppendUint32(nil, n)); holt.CodeOf(err) != holt.Corrupt {
			t.Errorf("%d taken: %v", n, err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 600, 70000, 1 << 20} {
		go w.Write(FrameReply, message[:n/2], message[n/2:n])
		if got := next(FrameReply); !bytes.Equal(got, message[:n]) {
			t.Fatalf("reply of %d bytes came back as %d", n, len(got))
		}
	}
	if err := w.Write(FrameReply, make([]byte, MaxFrame)); err == nil {
		t.Error("a frame over the limit was written")
	}
}

func TestRequestTagTooLong(t *testing.T) {
	b := RequestHeader(nil, 0, string(make([]byte, MaxTag+1)), 1)
	_, payload, err := NewFrameReader(bytes.NewReader(append(b, 'm'))).Next(nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ParseRequest(payload); err != nil || r.Tag != "" || string(r.Message) != "m" {
		t.Errorf("request %+v, %v", r, err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 3})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 3})
	f.Add(append([]byte{9, 0, 0, 0, 3}, make([]byte, 8)...))
	f.Add(append(RequestHeader(nil, 1<<60, "run/x", 4), "abcd"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewFrameReader(bytes.NewReader(b))
		var again bytes.Buffer
		w := NewFrameWriter(&again)
		for {
			kind, payload, err := r.Next(nil)
			if err != nil {
				if err != io.EOF && err != io.ErrUnexpectedEOF && holt.CodeOf(err) != holt.Corrupt {
					t.Fatalf("next: %v", err)
				}
				break
			}
			if len(payload) >= MaxFrame {
				t.Fatalf("payload of %d bytes", len(payload))
			}
			ParseHello(payload)
			ParseWelcome(payload)
			ParseAck(payload)
			ParseTaken(payload)
			if r, err := ParseRequest(payload); err == nil && requestFixed+len(r.Tag)+len(r.Message) != len(payload) {
				t.Fatal("request lost bytes")
			}
			if err := w.Write(kind, payload); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(b, again.Bytes()) {
			t.Fatal("frames changed on the way")
		}
	})
}
