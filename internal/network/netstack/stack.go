package netstack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"holt"
)

const (
	maxFlows   = 1024      // connections from the guest, connections to outside, and flows of datagrams, each
	maxDials   = 128       // connections that are being opened
	maxBuffer  = 256 << 10 // buffer of a connection in each direction, bytes
	fewBuffer  = 16 << 10  // the same for connections beyond wideFlows
	wideFlows  = 128
	idleStream = 2 * time.Minute
	nic        = tcpip.NICID(1)
)

// Stack is the network of one computer.
type Stack struct {
	log      *slog.Logger
	ip       *stack.Stack
	link     *line
	attached sync.Mutex // held while a machine is attached
	policy   atomic.Pointer[Policy]
	names    names
	host     hostAddresses
	count    counters
	flows    flows
	echoes   echoes
	pieces   pieces
	packets  atomic.Uint32 // identification of the next packet that is not made by ip
	guestMAC atomic.Value  // tcpip.LinkAddress, once the guest has sent a frame
	resolver *resolver
	secrets  atomic.Pointer[Secrets]
	internal http.Handler
	issuer   atomic.Pointer[issuer] // nil: no CA
	web      web
	idle     time.Duration // TCP keepalive time of connections of the guest
	ctx      context.Context
	cancel   context.CancelFunc
}

// Options of a stack.
type Options struct {
	Log       *slog.Logger
	Upstreams []string // resolvers, as host:port; none: those of the host's resolv.conf(5)
	// Internal serves http://holt.internal/, except /ca.pem, the certificate of CA. Nil: nothing else is served.
	Internal http.Handler
	// CA signs the proxy's certificates for hosts with a secret ([NewCA]). Without it the proxy refuses them.
	CA tls.Certificate
	// Roots are the CA certificates that the proxy trusts; nil: the host's.
	Roots *x509.CertPool
}

// New returns a stack. It refuses everything until it has a policy.
func New(o Options) (*Stack, error) {
	s := &Stack{log: o.Log, link: newLine(ourMAC), internal: o.Internal, idle: idleStream}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.policy.Store(&Policy{egress: holt.EgressOff})
	s.secrets.Store(&Secrets{})
	s.ip = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := s.configure(); err != nil {
		s.Close()
		return nil, err
	}
	err := s.serveWeb(o)
	if err == nil {
		s.resolver, err = s.serveNames(o.Upstreams)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stack) configure() error {
	said := func(err tcpip.Error, what string) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s: %s", what, err)
	}
	if err := said(s.ip.CreateNIC(nic, ethernet.New(s.link)), "make interface"); err != nil {
		return err
	}
	for _, a := range []netip.Addr{Gateway, Resolver} {
		err := s.ip.AddProtocolAddress(nic, tcpip.ProtocolAddress{
			Protocol:          ipv4.ProtocolNumber,
			AddressWithPrefix: tcpip.AddressWithPrefix{Address: addressOf(a), PrefixLen: inner.Bits()},
		}, stack.AddressProperties{})
		if err := said(err, "add address"); err != nil {
			return err
		}
	}
	// The stack terminates connections to every address.
	if err := said(s.ip.SetPromiscuousMode(nic, true), "set promiscuous mode"); err != nil {
		return err
	}
	if err := said(s.ip.SetSpoofing(nic, true), "allow all source addresses"); err != nil {
		return err
	}
	s.ip.SetICMPBurst(icmpBurst)
	s.ip.SetRouteTable([]tcpip.Route{{Destination: tcpip.AddressWithPrefix{Address: addressOf(inner.Addr()), PrefixLen: inner.Bits()}.Subnet(), NIC: nic}})
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: maxBuffer / 2, Max: maxBuffer}
	transmit := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: maxBuffer / 2, Max: maxBuffer}
	sack := tcpip.TCPSACKEnabled(true)
	for _, o := range []tcpip.SettableTransportProtocolOption{&receive, &transmit, &sack} {
		if err := said(s.ip.SetTransportProtocolOption(tcp.ProtocolNumber, o), "set buffer sizes"); err != nil {
			return err
		}
	}
	forward := tcp.NewForwarder(s.ip, maxBuffer, maxDials, s.connect)
	s.ip.SetTransportProtocolHandler(tcp.ProtocolNumber, forward.HandlePacket)
	s.ip.SetTransportProtocolHandler(udp.ProtocolNumber, s.forwards(udp.NewForwarder(s.ip, func(r *udp.ForwarderRequest) bool { s.datagram(r); return true })))
	return nil
}

// SetPolicy replaces the policy and resets the flows that it does not permit. A flow keeps the names that it was
// opened with, even if they have expired for new flows.
func (s *Stack) SetPolicy(p *Policy) {
	s.policy.Store(p)
	s.flows.end(func(f *flow) bool { return !s.allows(f) })
}

// SetSecrets replaces the secrets of the proxy. Requests in progress are not interrupted.
func (s *Stack) SetSecrets(all *Secrets) { s.secrets.Store(all) }

// SetCA replaces the CA. Open connections are not interrupted.
func (s *Stack) SetCA(ca tls.Certificate) error {
	if have := s.issuer.Load(); have != nil && bytes.Equal(have.ca.Certificate[0], ca.Certificate[0]) {
		return nil
	}
	m, err := newIssuer(ca)
	if err != nil {
		return fmt.Errorf("read the CA: %w", err)
	}
	s.issuer.Store(m)
	return nil
}

// newFlow returns a flow to an address with its present names, or with those of a former flow.
func (s *Stack) newFlow(to netip.AddrPort, former *flow) *flow {
	if former != nil {
		return &flow{to: to, names: former.names, reach: former.reach}
	}
	ip := to.Addr()
	return &flow{to: to, names: s.names.of(ip), reach: !s.public(ip) && s.reachable(s.policy.Load(), ip, to.Port())}
}

// allows reports whether the policy permits a flow, new or open.
func (s *Stack) allows(f *flow) bool {
	if !s.mayReach(f) {
		return false
	}
	name := f.said()
	return name == "" || !s.byName(f.to) || s.policy.Load().permits(f.to.Port(), []string{name})
}

// byName reports whether an address may be reached only by one of its names. Other names may have the same address, so
// the first bytes of a connection are checked too.
func (s *Stack) byName(to netip.AddrPort) bool {
	p := s.policy.Load()
	return p.egress == holt.EgressAllow && !inner.Contains(to.Addr()) && !s.granted(p, to.Addr(), to.Port())
}

func (s *Stack) granted(p *Policy, ip netip.Addr, port uint16) bool {
	return p.granted(ip, port, s.host.contain(ip))
}

// mayReach reports whether the address and port of a flow may be reached: by themselves, by the names of the flow, or by
// the present names of the address.
func (s *Stack) mayReach(f *flow) bool {
	p, ip, port := s.policy.Load(), f.to.Addr(), f.to.Port()
	if inner.Contains(ip) {
		return ip == Gateway && p.onHost(port)
	}
	if s.granted(p, ip, port) {
		return true
	}
	return (s.reachable(p, ip, port) || f.reach && !s.host.contain(ip)) && (p.permits(port, f.names) || p.permits(port, s.names.of(ip)))
}

// placeOf returns the address on the host for a destination of the guest: the gateway is the host's loopback.
func placeOf(to netip.AddrPort) netip.AddrPort {
	if inner.Contains(to.Addr()) {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port())
	}
	return to
}

// public reports whether an address is public and not the host's.
func (s *Stack) public(ip netip.Addr) bool {
	return ip.Is4() && !within(ip, notPublic) && !s.host.contain(ip)
}

// Close ends all flows and servers of the stack.
func (s *Stack) Close() {
	s.cancel()
	s.flows.end(func(*flow) bool { return true })
	s.web.close()
	if s.resolver != nil {
		s.resolver.close()
	}
	s.ip.Close()
	s.link.Close()
	s.flows.wait()
	s.ip.Wait()
}

func addressOf(a netip.Addr) tcpip.Address { return tcpip.AddrFrom4(a.As4()) }

func addrOf(a tcpip.Address) netip.Addr {
	out, _ := netip.AddrFromSlice(a.AsSlice())
	return out
}
