package netstack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const dialLimit = 75 * time.Second // clients do not wait longer for a connection

var (
	errNotAllowed = errors.New("this computer's network policy does not allow it")
	errTooMany    = errors.New("this computer has too many connections")
)

// flow is a TCP connection, or datagrams between two ports.
type flow struct {
	to    netip.AddrPort // as the guest sees it
	names []string       // resolved to the address when the flow was opened; valid while it is open
	reach bool           // the address was treated as public then, see WithReach
	count *counter
	last  atomicTime // datagrams: time of the last one

	mu    sync.Mutex
	name  string // name that the guest used in TLS or HTTP, if known
	ended bool
	ends  []func()
}

// reset ends the flow at once, on all sides.
func (f *flow) reset() {
	f.mu.Lock()
	ends := f.ends
	f.ended, f.ends = true, nil
	f.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// onReset adds a function to call when the flow is reset.
func (f *flow) onReset(end func()) {
	f.mu.Lock()
	ended := f.ended
	if !ended {
		f.ends = append(f.ends, end)
	}
	f.mu.Unlock()
	if ended {
		end()
	}
}

func (f *flow) hasEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

func (f *flow) says(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.name = name
}

func (f *flow) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.name
}

// Kinds of slots; there are maxFlows of each.
const (
	inward    = iota // connections from the guest
	outward          // connections to destinations
	datagrams        // flows of datagrams
	kinds
)

// flows is the set of open flows.
type flows struct {
	mu     sync.Mutex
	open   map[*flow]struct{}
	places [kinds]int // taken
	ended  bool
	work   sync.WaitGroup
}

// enter takes a slot and returns false if there is none.
func (f *flows) enter(kind int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || f.places[kind] >= maxFlows {
		return false
	}
	f.places[kind]++
	f.work.Add(1)
	return true
}

func (f *flows) leave(kind int) {
	f.mu.Lock()
	f.places[kind]--
	f.mu.Unlock()
	f.work.Done()
}

func (f *flows) taken(kind int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places[kind]
}

// add registers a flow so that end finds it. remove unregisters it.
func (f *flows) add(one *flow) (remove func()) {
	f.mu.Lock()
	if f.open == nil {
		f.open = map[*flow]struct{}{}
	}
	f.open[one] = struct{}{}
	ended := f.ended
	f.mu.Unlock()
	if ended {
		one.reset()
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, one)
	}
}

func (f *flows) list() (all []*flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.open {
		all = append(all, one)
	}
	return all
}

// end resets the flows for which which returns true.
func (f *flows) end(which func(*flow) bool) {
	for _, one := range f.list() {
		if which(one) {
			one.reset()
		}
	}
}

func (f *flows) wait() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.end(func(*flow) bool { return true })
	f.work.Wait()
}

// outside is a connection to a destination. It is counted, and cut when the
// policy no longer allows it.
type outside struct {
	*net.TCPConn
	raw      raw
	flow     *flow
	leave    func()
	answered atomic.Bool // the destination has sent something
}

func (o *outside) Read(b []byte) (int, error) {
	n, err := o.raw.Read(b)
	if n > 0 {
		o.answered.Store(true)
	}
	o.flow.count.received.Add(int64(n))
	return n, err
}

func (o *outside) Write(b []byte) (int, error) {
	n, err := o.raw.Write(b)
	o.flow.count.sent.Add(int64(n))
	return n, err
}

func (o *outside) abort() {
	o.SetLinger(0)
	o.TCPConn.Close()
}

func (o *outside) Close() error {
	err := o.TCPConn.Close()
	o.leave()
	return err
}

// open connects to a destination if the policy allows it. name is the name that
// the guest used, or "". The flow has the permissions of former, or else those
// of the names known now.
func (s *Stack) open(ctx context.Context, to netip.AddrPort, name string, former *flow) (*outside, error) {
	destination := name
	if destination == "" {
		destination = s.destination(to)
	}
	f := s.newFlow(to, former)
	f.name = name
	if to.Port() == 0 || !s.allows(f) { // port 0 would mean any port
		s.count.refuse(destination)
		return nil, errNotAllowed
	}
	if !s.flows.enter(outward) {
		s.count.refuse(destination)
		return nil, errTooMany
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", placeOf(to).String())
	if err != nil {
		s.flows.leave(outward)
		return nil, err
	}
	f.count = s.count.opens(destination)
	out := &outside{TCPConn: c.(*net.TCPConn), flow: f}
	out.raw.conn, _ = out.SyscallConn() // nil only without a connection
	f.onReset(out.abort)
	remove := s.flows.add(f)
	out.leave = sync.OnceFunc(func() { remove(); f.count.open.Add(-1); s.flows.leave(outward) })
	if !s.allows(f) { // the policy has changed
		f.reset()
		out.Close()
		return nil, errNotAllowed
	}
	return out, nil
}

// silent reports whether a dial failed because nothing answered.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}
