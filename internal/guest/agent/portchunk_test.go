package agent

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/yamux"
)

// lineWrites counts the writes to a virtio-serial port.
type lineWrites struct {
	net.Conn
	n atomic.Int64
}

func (l *lineWrites) Write(p []byte) (int, error) {
	l.n.Add(int64(1 + (len(p)-1)/joinSize))
	return l.Conn.Write(p)
}

// TestPortChunk: data of a port is sent in as few writes as the port allows.
func TestPortChunk(t *testing.T) {
	near, far := net.Pipe()
	line := &lineWrites{Conn: near}
	guest, err := yamux.Server(newMuxConn(line), muxConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	host, err := yamux.Client(newMuxConn(far), muxConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	const chunks = 20
	go func() {
		st, err := guest.Accept()
		if err != nil {
			return
		}
		p := newPortConn(st, portChunk)
		p.out.ReadFrom(io.LimitReader(zeros{}, chunks*portChunk))
		p.CloseWrite()
	}()
	st, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, newPortConn(st, smallChunk))
	if err != nil || n != chunks*portChunk {
		t.Fatal(n, err)
	}
	if writes := line.n.Load(); writes > chunks+5 { // the stream is acknowledged and ended, too
		t.Errorf("%d chunks took %d writes", chunks, writes)
	}
}
