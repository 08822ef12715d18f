package netstack

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	datagramIdle = 2 * time.Minute  // RFC 4787, REQ-5: the minimum lifetime of a mapping
	questionIdle = 20 * time.Second // DNS; shorter is allowed for well-known ports (ibid., b)
	maxDatagram  = 64 << 10

	manyDatagrams = maxFlows - maxFlows/8 // from this number of flows, the least recently used are closed
)

// datagramBuffers are taken only while a datagram is copied, not while waiting for one.
var datagramBuffers = sync.Pool{New: func() any { return new([maxDatagram]byte) }}

// forwards passes allowed datagrams to a forwarder. For the others the guest
// gets ICMP "prohibited".
func (s *Stack) forwards(next *udp.Forwarder) func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		to := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
		if to.Port() == 0 || !s.mayReach(s.newFlow(to, nil)) || s.quic(to) { // port 0 would mean any port
			s.count.refuse(s.destination(to))
			if inner.Contains(to.Addr()) {
				return false // nothing listens here
			}
			s.tellLimited(prohibited, packetOf(pkt))
			return true
		}
		if header.IPv4(pkt.NetworkHeader().Slice()).TTL() <= 1 && !inner.Contains(to.Addr()) {
			s.tellLimited(expired, packetOf(pkt))
			return true
		}
		return next.HandlePacket(id, pkt)
	}
}

// quic reports whether datagrams would be HTTP/3 to an address that is allowed
// only for its names: QUIC encrypts the name. Clients fall back to TCP.
func (s *Stack) quic(to netip.AddrPort) bool {
	return (to.Port() == 443 || to.Port() == 80) && s.byName(to)
}

// datagram starts a flow for the first datagram, on the link's goroutine.
func (s *Stack) datagram(r *udp.ForwarderRequest) {
	to := netip.AddrPortFrom(addrOf(r.ID().LocalAddress), r.ID().LocalPort)
	f := s.newFlow(to, nil)
	if !s.mayReach(f) {
		return
	}
	if s.flows.taken(datagrams) >= manyDatagrams {
		s.flows.endOldest()
	}
	if !s.flows.enter(datagrams) {
		return // drop it: ending that many flows takes a moment
	}
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	if err != nil {
		s.flows.leave(datagrams)
		return
	}
	ep.SocketOptions().SetReceiveTTL(true)
	from := r.ID().RemotePort
	go func() {
		defer s.flows.leave(datagrams)
		defer ep.Close()
		s.exchange(f, &guestQueue{s: s, ep: ep, queue: &queue, from: from})
	}()
}

// endOldest closes the least recently used flow.
func (f *flows) endOldest() {
	all := slices.DeleteFunc(f.list(), func(one *flow) bool { return one.last.ns.Load() == 0 || one.hasEnded() })
	if len(all) > 0 {
		slices.MinFunc(all, func(a, b *flow) int { return a.last.get().Compare(b.last.get()) }).reset()
	}
}

func (s *Stack) exchange(f *flow, in *guestQueue) {
	out, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(placeOf(f.to)))
	if err != nil {
		return
	}
	defer out.Close()
	raw, err := out.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { wantErrors(int(fd)) }) // if that fails the guest gets no ICMP errors
	in.raw = raw
	f.count = s.count.opens(s.destination(f.to))
	defer f.count.open.Add(-1)
	f.last.now()
	ended := make(chan struct{})
	f.onReset(func() { close(ended); out.Close() })
	defer s.flows.add(f)()
	if !s.allows(f) {
		f.reset()
		return
	}
	idle := datagramIdle
	if f.to.Port() < 1024 {
		idle = questionIdle
	}
	var back sync.WaitGroup
	back.Go(func() { receiveDatagrams(raw, in, f); f.reset() })
	in.relay(out, f, ended, idle)
	f.reset()
	back.Wait()
}

// guestQueue is the guest's side of a flow: the queue of datagrams that it has sent.
type guestQueue struct {
	s     *Stack
	ep    tcpip.Endpoint
	queue *waiter.Queue
	from  uint16          // its port
	raw   syscall.RawConn // out
	ttl   uint8           // that out sends with; 0: the host's own
}

// relay forwards the guest's datagrams until the flow ends or has been idle.
func (h *guestQueue) relay(out net.Conn, f *flow, ended <-chan struct{}, idle time.Duration) {
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	h.queue.EventRegister(&entry)
	defer h.queue.EventUnregister(&entry)
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		for h.one(out, f) {
		}
		select {
		case <-ended:
			return
		case <-ready:
		case <-timer.C:
			rest := idle - time.Since(f.last.get())
			if rest <= 0 {
				return
			}
			timer.Reset(rest)
		}
	}
}

// one forwards one datagram, if there is one.
func (h *guestQueue) one(out net.Conn, f *flow) bool {
	b := datagramBuffers.Get().(*[maxDatagram]byte)
	defer datagramBuffers.Put(b)
	w := tcpip.SliceWriter(b[:])
	got, err := h.ep.Read(&w, tcpip.ReadOptions{})
	if err != nil {
		return false
	}
	f.last.now()
	if got.ControlMessages.HasTTL && !inner.Contains(f.to.Addr()) {
		if got.ControlMessages.TTL <= 1 {
			h.s.tellLimited(expired, datagramOf(h.from, f.to, got.Count))
			return true
		}
		h.live(got.ControlMessages.TTL - 1)
	}
	n, failed := out.Write(b[:got.Count])
	if failed != nil && !f.hasEnded() { // may be the error of an earlier datagram, reported once
		n, failed = out.Write(b[:got.Count])
	}
	if failed == nil {
		f.count.sent.Add(int64(n))
	}
	return true
}

// live sets the time to live of datagrams sent from now on, so that traceroute works.
func (h *guestQueue) live(hops uint8) {
	if h.ttl == hops {
		return
	}
	h.raw.Control(func(fd uintptr) {
		if setTTL(int(fd), hops) == nil {
			h.ttl = hops
		}
	})
}

// receiveDatagrams forwards incoming datagrams, and ICMP errors of routers and hosts, to the guest.
func receiveDatagrams(from syscall.RawConn, to *guestQueue, f *flow) {
	for failures := 0; failures < mostFailures; {
		err := from.Read(func(fd uintptr) bool {
			b := datagramBuffers.Get().(*[maxDatagram]byte)
			defer datagramBuffers.Put(b)
			for {
				said, about, found := nextError(int(fd), b[:])
				if !found {
					break
				}
				to.s.tell(to.s.asSeen(said), datagramOf(to.from, f.to, len(about)))
			}
			n, err := unix.Read(int(fd), b[:])
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failures++
			default:
				failures = 0
				f.last.now()
				to.give(b[:n], f)
			}
			return true
		})
		if err != nil {
			return
		}
	}
}

func (h *guestQueue) give(b []byte, f *flow) {
	if n, err := h.ep.Write(bytes.NewReader(b), tcpip.WriteOptions{}); err == nil {
		f.count.received.Add(n)
	}
}
