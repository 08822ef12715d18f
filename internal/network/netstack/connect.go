package netstack

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const copyBuffer = 16 << 10

// half is a side of a connection.
type half interface {
	net.Conn
	CloseWrite() error
	abort() // ends it with a reset
}

// inside is a connection of the guest's.
type inside struct {
	*gonet.TCPConn
	ep    tcpip.Endpoint
	leave func()
}

func (i *inside) abort() { i.ep.Abort() }

func (i *inside) Close() error {
	err := i.TCPConn.Close()
	i.leave()
	return err
}

// connect meets a connection of the guest. One to elsewhere is opened from here first, and only then
// does the guest have it: where nobody listens it is refused there as well.
func (s *Stack) connect(r *tcp.ForwarderRequest) {
	to := netip.AddrPortFrom(addrOf(r.ID().LocalAddress), r.ID().LocalPort)
	if !s.flows.enter(inward) {
		s.count.refuse(s.destination(to))
		r.Complete(true)
		return
	}
	leave := sync.OnceFunc(func() { s.flows.leave(inward) })
	if handler := s.own(to); handler != nil {
		if in := s.accept(r, leave); in != nil {
			s.web.serve(&arrival{half: in, handler: handler})
		}
		return
	}
	out, err := s.open(s.ctx, to, "", nil)
	if err != nil {
		// Who does not answer there does not answer here: the guest's own kernel gives up when it wants to.
		r.Complete(!silent(err))
		leave()
		return
	}
	in := s.accept(r, leave)
	if in == nil {
		out.Close()
		return
	}
	s.carry(in, out)
}

// accept lets the guest have its connection.
func (s *Stack) accept(r *tcp.ForwarderRequest, leave func()) *inside {
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	r.Complete(err != nil)
	if err != nil {
		leave()
		return nil
	}
	ep.SocketOptions().SetDelayOption(false)
	s.keep(ep)
	if s.flows.taken(inward) > wideFlows {
		ep.SocketOptions().SetSendBufferSize(fewBuffer, true)
		ep.SocketOptions().SetReceiveBufferSize(fewBuffer, true)
	}
	return &inside{TCPConn: gonet.NewTCPConn(&queue, ep), ep: ep, leave: leave}
}

// keep has a guest that was reset, and knows nothing of a connection, end it.
func (s *Stack) keep(ep tcpip.Endpoint) {
	idle, interval := tcpip.KeepaliveIdleOption(s.idle), tcpip.KeepaliveIntervalOption(s.idle/4)
	ep.SetSockOpt(&idle)
	ep.SetSockOpt(&interval)
	ep.SetSockOptInt(tcpip.KeepaliveCountOption, 8)
	ep.SocketOptions().SetKeepAlive(true)
}

// carry carries bytes both ways until both have ended, and closes both. A side that ends in
// a reset ends the other so. Where an address counts only for its names, what the guest says first is heard.
func (s *Stack) carry(in half, out *outside) {
	f := out.flow
	f.onReset(in.abort)
	var back sync.WaitGroup
	end := func() { back.Wait(); in.Close(); out.Close() }
	back.Go(func() { pass(in, out, f) })
	if !s.byName(f.to) {
		pass(out, in, f)
		end()
		return
	}
	quiet := func() { out.SetReadDeadline(time.Unix(1, 0)); back.Wait() } // ends pass, and nothing else
	heard, said := hear(in)
	switch {
	case said.speech == spokenHTTP && !out.answered.Load():
		quiet()
		s.transparent(&replay{half: in, first: heard}, out)
		return
	case said.speech == other, said.speech == spokenTLS && s.mayBe(f, said.name):
		if _, err := out.Write(heard); err == nil {
			pass(out, in, f)
		} else {
			f.reset()
		}
	case said.speech == spokenTLS:
		s.count.refuse(cmp.Or(said.name, s.destination(f.to)))
		quiet()
		in.Write(accessDenied)
		in.CloseWrite()
	default:
		s.count.refuse(s.destination(f.to))
		f.reset()
	}
	end()
}

// mayBe tells whether the guest may mean a name by a flow, and notes that it does.
func (s *Stack) mayBe(f *flow, name string) bool {
	f.says(name)
	return name != "" && s.allows(f)
}

// pass carries bytes one way. When they have ended the other way has to go on, or end.
func pass(to, from half, f *flow) {
	b := make([]byte, copyBuffer)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				f.reset()
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if to.CloseWrite() != nil {
				f.reset()
			}
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			return // somebody else goes on
		default:
			f.reset()
			return
		}
	}
}
