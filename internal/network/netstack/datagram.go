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
	datagramIdle = 2 * time.Minute  // minimum lifetime of a mapping (RFC 4787, REQ-5)
	questionIdle = 20 * time.Second // the same for well-known ports (ibid., b), such as that of DNS
	maxDatagram  = 64 << 10

	manyDatagrams = maxFlows - maxFlows/8 // from this number of flows on the longest idle is ended for a new one
)

// datagramBuffers are used while a datagram is copied, not while waiting for one.
var datagramBuffers = sync.Pool{New: func() any { return new([maxDatagram]byte) }}

// forwards passes permitted datagrams to a forwarder, and answers others with an ICMP error.
func (s *Stack) forwards(next *udp.Forwarder) func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		to := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
		if to.Port() == 0 || !s.mayReach(s.newFlow(to, nil)) || s.quic(to) { // allows treats 0 as any port
			s.count.refuse(s.destination(to))
			if inner.Contains(to.Addr()) {
				return false // the stack answers port unreachable
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

// quic reports whether datagrams could be HTTP/3 to an address that may be reached only by name. The name in QUIC is
// encrypted, so it is refused, and clients fall back to TCP.
func (s *Stack) quic(to netip.AddrPort) bool {
	return (to.Port() == 443 || to.Port() == 80) && s.byName(to)
}

// datagram starts a flow of datagrams. It is called for its first datagram, on the link's goroutine.
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
		return // the datagram is lost: the ended flow has not freed its place yet
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
		s.exchange(f, &guestSocket{s: s, ep: ep, queue: &queue, from: from})
	}()
}

// endOldest ends the flow of datagrams that has been idle longest.
func (f *flows) endOldest() {
	all := slices.DeleteFunc(f.list(), func(one *flow) bool { return one.last.ns.Load() == 0 || one.hasEnded() })
	if len(all) > 0 {
		slices.MinFunc(all, func(a, b *flow) int { return a.last.get().Compare(b.last.get()) }).reset()
	}
}

func (s *Stack) exchange(f *flow, in *guestSocket) {
	out, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(placeOf(f.to)))
	if err != nil {
		return
	}
	defer out.Close()
	raw, err := out.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { wantErrors(int(fd)) }) // if it fails the guest gets no ICMP errors
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

// guestSocket is the guest's side of a flow of datagrams.
type guestSocket struct {
	s     *Stack
	ep    tcpip.Endpoint
	queue *waiter.Queue
	from  uint16          // the guest's port
	raw   syscall.RawConn // the socket to outside
	ttl   uint8           // its time to live; 0: the host's default
}

// relay forwards the guest's datagrams until the flow ends or is idle.
func (h *guestSocket) relay(out net.Conn, f *flow, ended <-chan struct{}, idle time.Duration) {
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
func (h *guestSocket) one(out net.Conn, f *flow) bool {
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
	if failed != nil && !f.hasEnded() { // the error may be that of an earlier datagram, which is reported once
		n, failed = out.Write(b[:got.Count])
	}
	if failed == nil {
		f.count.sent.Add(int64(n))
	}
	return true
}

// live sets the time to live of further datagrams, for traceroute.
func (h *guestSocket) live(hops uint8) {
	if h.ttl == hops {
		return
	}
	h.raw.Control(func(fd uintptr) {
		if setTTL(int(fd), hops) == nil {
			h.ttl = hops
		}
	})
}

// receiveDatagrams passes datagrams and ICMP errors from outside to the guest.
func receiveDatagrams(from syscall.RawConn, to *guestSocket, f *flow) {
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

func (h *guestSocket) give(b []byte, f *flow) {
	if n, err := h.ep.Write(bytes.NewReader(b), tcpip.WriteOptions{}); err == nil {
		f.count.received.Add(n)
	}
}
