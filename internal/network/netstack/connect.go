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

// half is one side of a connection.
type half interface {
	net.Conn
	CloseWrite() error
	abort() // ends it with a reset
}

// inside is a connection from the guest.
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

// connect handles a new connection of the guest. It first connects to the
// destination, and accepts the guest's connection only then, so that a refused
// connection is refused for the guest too.
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
		// If the destination is silent, be silent too: the guest's kernel has its own timeout.
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

// accept completes the guest's connection.
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

// keep enables keepalives, so that a connection that a restarted guest does not know ends.
func (s *Stack) keep(ep tcpip.Endpoint) {
	idle, interval := tcpip.KeepaliveIdleOption(s.idle), tcpip.KeepaliveIntervalOption(s.idle/4)
	ep.SetSockOpt(&idle)
	ep.SetSockOpt(&interval)
	ep.SetSockOptInt(tcpip.KeepaliveCountOption, 8)
	ep.SocketOptions().SetKeepAlive(true)
}

// carry copies bytes both ways until both ends are done, and closes both. A
// reset of one side resets the other. If the address is allowed only for its
// names, carry first reads what the guest sends, to learn the name.
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
	quiet := func() { out.SetReadDeadline(time.Unix(1, 0)); back.Wait() } // stop reading from the destination
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

// mayBe reports whether the policy allows name for the flow, and records it.
func (s *Stack) mayBe(f *flow, name string) bool {
	f.says(name)
	return name != "" && s.allows(f)
}

// pass copies bytes one way. At their end it closes the other side for writing;
// an error resets the flow.
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
			return // the web server has taken over
		default:
			f.reset()
			return
		}
	}
}
