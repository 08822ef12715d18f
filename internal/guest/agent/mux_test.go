package agent

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// TestUnreadStreams: the host buffers little for streams that it does not read.
func TestUnreadStreams(t *testing.T) {
	const streams = 64
	near, far := ends(t)
	var sent atomic.Int64
	go eachStream(func(st *yamux.Stream) {
		go func() {
			for b := make([]byte, 64<<10); ; {
				n, err := st.Write(b)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		}()
	})(far)
	c, err := NewClient(near)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := heap()
	for range streams {
		if _, err := c.mux.OpenStream(); err != nil {
			t.Fatal(err)
		}
	}
	for began := time.Now(); sent.Load() < streams*hostWindow/2; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d bytes were sent", sent.Load())
		}
	}
	time.Sleep(200 * time.Millisecond)                        // for what is more
	if held := heap() - before; held > streams*3*hostWindow { // a buffer doubles as it grows
		t.Errorf("%d MiB for %d streams", held>>20, streams)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// ends returns both ends of a connection.
func ends(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("unix", l.Addr().String()); err == nil {
		far, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// TestLateEnds: streams that the guest ends just when the host forgets them do not end the channel.
func TestLateEnds(t *testing.T) {
	near, far := ends(t)
	late := hostMuxConfig().StreamCloseTimeout
	go eachStream(func(st *yamux.Stream) {
		go func() {
			defer st.Close()
			var q request
			if err := readMessage(st, &q); err != nil {
				return
			}
			if writeMessage(st, answer{}) != nil {
				return
			}
			st.Read(make([]byte, 1)) // its end
			time.Sleep(late - 3*time.Millisecond + time.Duration(rand.Int64N(int64(6*time.Millisecond))))
		}()
	})(far)
	c, err := NewClient(near)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var work sync.WaitGroup
	for range 200 {
		work.Go(func() {
			for range 25 {
				if err := c.Sync(ctx); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(late + 10*time.Millisecond)
			}
		})
	}
	work.Wait()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c.guard.mu.Lock()
		n := len(c.guard.streams)
		c.guard.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d streams are remembered", n)
		}
	}
}

// TestGuardConvertsFIN: the guest's FIN becomes a reset for a stream that the
// host has closed, and is unchanged for others.
func TestGuardConvertsFIN(t *testing.T) {
	header := func(flags uint16, id uint32) []byte {
		b := []byte{0, muxWindow}
		b = binary.BigEndian.AppendUint16(b, flags)
		b = binary.BigEndian.AppendUint32(b, id)
		return binary.BigEndian.AppendUint32(b, 0)
	}
	g := newGuardConn(nil)
	for _, id := range []uint32{1, 3, 5} {
		g.note(header(muxSYN, id))
		if _, ok := g.admit(header(muxACK, id)); !ok {
			t.Fatal("refused")
		}
	}
	g.leave(1)
	for _, c := range []struct {
		id   uint32
		want uint16
	}{{1, muxRST}, {3, muxFIN}} {
		b := header(muxFIN, c.id)
		for k := range b { // it comes byte by byte
			p := append(append([]byte(nil), g.held[:g.have]...), b[k])
			n, ok := g.admit(p)
			if !ok || n != 0 && n != muxHeader {
				t.Fatal(k, n, ok)
			}
			if n > 0 && binary.BigEndian.Uint16(p[2:]) != c.want {
				t.Errorf("the end of %d came with flags %x", c.id, p[2:4])
			}
		}
	}
	g.leave(3)
	g.note(header(muxFIN, 3))
	g.leave(5)
	g.note(header(muxFIN, 5))
	g.note(header(muxRST, 5))
	if len(g.streams) > 0 {
		t.Error("remembered:", g.streams)
	}
}
