package netstack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	dialLimit    = 75 * time.Second // as long as anybody waits for a connection
	datagramIdle = 2 * time.Minute  // RFC 4787, REQ-5: a mapping lives for at least that
	maxDatagram  = 64 << 10
	copyBuffer   = 32 << 10
)

// flow is a connection or an exchange of datagrams between the guest and somebody outside.
type flow struct {
	to    netip.AddrPort // as the guest has it
	reset func()         // ends it at once, both sides
	count *counter
}

// flows are those that are open.
type flows struct {
	mu     sync.Mutex
	open   map[*flow]struct{}
	byKind [2]int // streams, datagrams
	ended  bool
	work   sync.WaitGroup
}

const (
	stream = iota
	datagrams
)

// enter takes a place for a flow; false: there is none.
func (f *flows) enter(kind int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || f.byKind[kind] >= maxFlows {
		return false
	}
	f.byKind[kind]++
	f.work.Add(1)
	return true
}

func (f *flows) leave(kind int) {
	f.mu.Lock()
	f.byKind[kind]--
	f.mu.Unlock()
	f.work.Done()
}

// add shows a flow to who ends them, and returns what takes it away again.
func (f *flows) add(one *flow) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[*flow]struct{}{}
	}
	f.open[one] = struct{}{}
	if f.ended {
		one.reset()
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, one)
	}
}

// end resets the flows that a condition is true of.
func (f *flows) end(which func(*flow) bool) {
	f.mu.Lock()
	var all []*flow
	for one := range f.open {
		all = append(all, one)
	}
	f.mu.Unlock()
	for _, one := range all {
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

// connect opens a connection of the guest's from here, and only then lets the guest have it: where
// nobody listens it is refused there as well.
func (s *Stack) connect(r *tcp.ForwarderRequest) {
	to := netip.AddrPortFrom(addrOf(r.ID().LocalAddress), r.ID().LocalPort)
	count := s.count.of(s.destination(to))
	place, ok := s.target(to)
	if !ok || !s.flows.enter(stream) {
		count.refused.Add(1)
		r.Complete(true)
		return
	}
	defer s.flows.leave(stream)
	ctx, cancel := context.WithTimeout(s.ctx, dialLimit)
	defer cancel()
	var d net.Dialer
	out, err := d.DialContext(ctx, "tcp4", place.String())
	if err != nil {
		// Who does not answer there does not answer here: the guest's own kernel gives up when it wants to.
		r.Complete(!errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, syscall.ETIMEDOUT))
		return
	}
	defer out.Close()
	var queue waiter.Queue
	ep, refused := r.CreateEndpoint(&queue)
	r.Complete(refused != nil)
	if refused != nil {
		return
	}
	ep.SocketOptions().SetDelayOption(false)
	in := gonet.NewTCPConn(&queue, ep)
	defer in.Close()
	one := &flow{to: to, count: count, reset: sync.OnceFunc(func() {
		ep.Abort()
		out.(*net.TCPConn).SetLinger(0)
		out.Close()
	})}
	defer s.flows.add(one)()
	if _, ok := s.target(to); !ok { // the policy has changed meanwhile
		one.reset()
		return
	}
	count.open.Add(1)
	count.opened.Add(1)
	defer count.open.Add(-1)
	splice(in, out.(*net.TCPConn), one)
}

// half is a side of a connection.
type half interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// splice carries bytes both ways until both have ended. A side that ends in a reset ends the other so.
func splice(in, out half, f *flow) {
	var back sync.WaitGroup
	back.Go(func() { pass(in, out, f, &f.count.received) })
	pass(out, in, f, &f.count.sent)
	back.Wait()
}

// pass carries bytes one way. When they have ended the other way has to go on, or end.
func pass(to, from half, f *flow, count interface{ Add(int64) int64 }) {
	b := make([]byte, copyBuffer)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				f.reset()
				return
			}
			count.Add(int64(n))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.reset()
			return
		}
	}
	if to.CloseWrite() != nil {
		f.reset()
	}
}

// forwards gives a forwarder the datagrams that may pass; for the others the guest hears that nobody is there (ICMP).
func (s *Stack) forwards(next *udp.Forwarder) func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		to := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
		if _, ok := s.target(to); !ok {
			s.count.of(s.destination(to)).refused.Add(1)
			return false
		}
		return next.HandlePacket(id, pkt)
	}
}

// datagram begins an exchange of datagrams. It is called for the first, on the link's goroutine.
func (s *Stack) datagram(r *udp.ForwarderRequest) {
	to := netip.AddrPortFrom(addrOf(r.ID().LocalAddress), r.ID().LocalPort)
	place, ok := s.target(to)
	if !ok || !s.flows.enter(datagrams) {
		return // lost, as datagrams are
	}
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	if err != nil {
		s.flows.leave(datagrams)
		return
	}
	go func() {
		defer s.flows.leave(datagrams)
		s.exchange(to, place, ep, gonet.NewUDPConn(&queue, ep))
	}()
}

func (s *Stack) exchange(to, place netip.AddrPort, ep tcpip.Endpoint, in *gonet.UDPConn) {
	defer in.Close()
	out, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(place))
	if err != nil {
		return
	}
	defer out.Close()
	count := s.count.of(s.destination(to))
	one := &flow{to: to, count: count, reset: sync.OnceFunc(func() { in.Close(); out.Close() })}
	defer s.flows.add(one)()
	if _, ok := s.target(to); !ok {
		return
	}
	count.open.Add(1)
	count.opened.Add(1)
	defer count.open.Add(-1)
	var last atomicTime
	last.now()
	var back sync.WaitGroup
	back.Go(func() { relay(in, out, &last, &count.received); one.reset() })
	relay(out, in, &last, &count.sent)
	one.reset()
	back.Wait()
}

// relay carries datagrams one way until none has come either way for a while.
func relay(to io.Writer, from interface {
	io.Reader
	SetReadDeadline(time.Time) error
}, last *atomicTime, count interface{ Add(int64) int64 }) {
	b := make([]byte, maxDatagram)
	for {
		from.SetReadDeadline(last.get().Add(datagramIdle))
		n, err := from.Read(b)
		var slow net.Error
		switch {
		case err == nil:
		case errors.As(err, &slow) && slow.Timeout() && time.Since(last.get()) < datagramIdle, errors.Is(err, syscall.ECONNREFUSED):
			continue // the other way went on, or nobody listens there now
		default:
			return
		}
		last.now()
		if _, err := to.Write(b[:n]); err == nil {
			count.Add(int64(n))
		}
	}
}
