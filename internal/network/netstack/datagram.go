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
	datagramIdle = 2 * time.Minute  // RFC 4787, REQ-5: a mapping lives for at least that
	questionIdle = 20 * time.Second // to a well-known port it may end before (ibid., b): questions for names
	maxDatagram  = 64 << 10

	manyDatagrams = maxFlows - maxFlows/8 // flows, from which on the stillest give way
)

// datagramBuffers are taken while a datagram passes, not while one is waited for.
var datagramBuffers = sync.Pool{New: func() any { return new([maxDatagram]byte) }}

// forwards gives a forwarder the datagrams that may pass; of the others the guest hears that they are prohibited (ICMP).
func (s *Stack) forwards(next *udp.Forwarder) func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		to := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
		if to.Port() == 0 || !s.mayReach(s.newFlow(to, nil)) || s.quic(to) { // 0 would stand for any port
			s.count.refuse(s.destination(to))
			if inner.Contains(to.Addr()) {
				return false // nobody listens here
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

// quic tells whether datagrams would be HTTP/3 to an address that counts only for its names: the name is
// said in secret there. Whoever speaks it goes on to TCP when nobody is there.
func (s *Stack) quic(to netip.AddrPort) bool {
	return (to.Port() == 443 || to.Port() == 80) && s.byName(to)
}

// datagram begins an exchange of datagrams. It is called for the first, on the link's goroutine.
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
		return // lost, as datagrams are: it takes a snapshot to end so many
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
		s.exchange(f, &heap{s: s, ep: ep, queue: &queue, from: from})
	}()
}

// endOldest ends the exchange that has been still for longest.
func (f *flows) endOldest() {
	all := slices.DeleteFunc(f.list(), func(one *flow) bool { return one.last.ns.Load() == 0 || one.hasEnded() })
	if len(all) > 0 {
		slices.MinFunc(all, func(a, b *flow) int { return a.last.get().Compare(b.last.get()) }).reset()
	}
}

func (s *Stack) exchange(f *flow, in *heap) {
	out, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(placeOf(f.to)))
	if err != nil {
		return
	}
	defer out.Close()
	raw, err := out.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { wantErrors(int(fd)) }) // if that fails the guest hears of no errors
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

// heap is the guest's side of an exchange: what it has sent.
type heap struct {
	s     *Stack
	ep    tcpip.Endpoint
	queue *waiter.Queue
	from  uint16          // its port
	raw   syscall.RawConn // out
	ttl   uint8           // that out sends with; 0: the host's own
}

// relay sends on what the guest sends, until the exchange ends or has been still for long enough.
func (h *heap) relay(out net.Conn, f *flow, ended <-chan struct{}, idle time.Duration) {
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

// one sends one datagram on, if there is one.
func (h *heap) one(out net.Conn, f *flow) bool {
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
	if failed != nil && !f.hasEnded() { // it may be the error of a former one, which is reported once
		n, failed = out.Write(b[:got.Count])
	}
	if failed == nil {
		f.count.sent.Add(int64(n))
	}
	return true
}

// live has what is sent on from now on live for so many hops, so that it is known which routers it passes.
func (h *heap) live(hops uint8) {
	if h.ttl == hops {
		return
	}
	h.raw.Control(func(fd uintptr) {
		if setTTL(int(fd), hops) == nil {
			h.ttl = hops
		}
	})
}

// receiveDatagrams gives the guest what comes for it, and errors of routers and of who is there.
func receiveDatagrams(from syscall.RawConn, to *heap, f *flow) {
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

func (h *heap) give(b []byte, f *flow) {
	if n, err := h.ep.Write(bytes.NewReader(b), tcpip.WriteOptions{}); err == nil {
		f.count.received.Add(n)
	}
}
