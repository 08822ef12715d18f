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

// forwards gives a forwarder the datagrams that may pass; for the others the guest hears that nobody is there (ICMP).
func (s *Stack) forwards(next *udp.Forwarder) func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		to := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
		if !s.mayReach(s.newFlow(to, nil)) || s.quic(to) {
			s.count.refuse(s.destination(to))
			return false
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
		return // lost, as datagrams are: it takes a moment to end so many
	}
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	if err != nil {
		s.flows.leave(datagrams)
		return
	}
	go func() {
		defer s.flows.leave(datagrams)
		defer ep.Close()
		s.exchange(f, &heap{ep: ep, queue: &queue})
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
	ep    tcpip.Endpoint
	queue *waiter.Queue
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
	if n, err := out.Write(b[:got.Count]); err == nil {
		f.count.sent.Add(int64(n))
	}
	return true
}

// receiveDatagrams gives the guest what comes for it.
func receiveDatagrams(from syscall.RawConn, to *heap, f *flow) {
	for {
		var failed error
		err := from.Read(func(fd uintptr) bool {
			b := datagramBuffers.Get().(*[maxDatagram]byte)
			defer datagramBuffers.Put(b)
			n, err := unix.Read(int(fd), b[:])
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			failed = err
			if err == nil {
				f.last.now()
				to.give(b[:n], f)
			}
			return true
		})
		if err != nil || failed != nil && !errors.Is(failed, unix.ECONNREFUSED) && !errors.Is(failed, unix.EINTR) {
			return
		}
	}
}

func (h *heap) give(b []byte, f *flow) {
	if n, err := h.ep.Write(bytes.NewReader(b), tcpip.WriteOptions{}); err == nil {
		f.count.received.Add(n)
	}
}
