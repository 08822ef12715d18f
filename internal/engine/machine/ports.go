package machine

import (
	"context"
	"net"
	"sync"

	"holt"
)

// Ports dials a machine's ports and keeps one connection for each. The zero
// value with Dir set is ready to use.
type Ports struct {
	Dir *Dir

	mu    sync.Mutex // guards conns; held while dialling, so that dials do not overlap
	conns map[string]net.Conn
	done  bool // closed for good
}

// Dial connects to a port and closes the previous connection. The far end
// serves one connection at a time and accepts the next when the previous one
// ends.
func (p *Ports) Dial(ctx context.Context, port string) (net.Conn, error) {
	if port != PortControl && port != PortFiles {
		return nil, holt.Errorf(holt.InvalidArgument, "a machine has no port %q", port).
			WithHint("the ports are %s and %s", PortControl, PortFiles)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return nil, Gone(p.Dir.Path)
	}
	if old := p.conns[port]; old != nil {
		old.Close()
		delete(p.conns, port)
	}
	conn, err := p.Dir.Dial(ctx, Socket(port))
	if err != nil {
		return nil, holt.Errorf(holt.Unavailable, "machine in %s: %w", p.Dir.Path, err)
	}
	if p.conns == nil {
		p.conns = map[string]net.Conn{}
	}
	p.conns[port] = conn
	return conn, nil
}

// Close closes all connections. Dial then fails.
func (p *Ports) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	for port, conn := range p.conns {
		conn.Close()
		delete(p.conns, port)
	}
}

// Socket returns the file name of a port's socket in the machine's directory.
func Socket(port string) string { return port + ".sock" }
