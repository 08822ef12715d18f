package computer

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
)

// throttled is a machine whose port is deaf for its first connection, as QEMU
// can leave it when the daemon was killed.
type throttled struct {
	machine.Machine
	socket string
	dials  atomic.Int32
	hungUp chan struct{} // closed when the deaf connection has ended
}

func (m *throttled) Dial(ctx context.Context, _ string) (net.Conn, error) {
	if m.dials.Add(1) == 1 {
		near, far := net.Pipe()
		go func() {
			defer close(m.hungUp)
			for buf := make([]byte, 4096); ; {
				if _, err := far.Read(buf); err != nil {
					far.Close()
					return
				}
			}
		}()
		return near, nil
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
}

// A connection that nothing is heard on is hung up well before the try's
// time, here without end, is over, and the next one is heard.
func TestDeafPort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	line, err := channel.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- agent.Serve(ctx, agent.ServerOptions{Control: channel.NewPort(line)}) }()
	m := &throttled{socket: path, hungUp: make(chan struct{})}
	conn, err := (&live{m: m}).dial(t.Context(), machine.PortControl)
	if err != nil {
		t.Fatal(err)
	}
	<-m.hungUp
	if n := m.dials.Load(); n != 2 {
		t.Errorf("dialled %d times", n)
	}
	conn.Close()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
