package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

const (
	maxQueries  = 64              // concurrent queries to upstreams
	maxAskers   = 64              // connections to the resolver
	maxAnswers  = 64              // addresses of one name
	askLimit    = 5 * time.Second // for one upstream
	maxUpstream = 3               // the maximum of resolv.conf(5)
	edeFiltered = dns.ExtendedErrorCodeFiltered
	edeBlocked  = dns.ExtendedErrorCodeBlocked
	ownTTL      = 60 // seconds
)

// resolver answers the guest's DNS queries within its policy.
type resolver struct {
	s         *Stack
	upstreams []string
	asking    chan struct{}
	servers   []*dns.Server
	done      chan error
}

func (s *Stack) serveNames(upstreams []string) (*resolver, error) {
	r := &resolver{s: s, upstreams: upstreams, asking: make(chan struct{}, maxQueries), done: make(chan error, 2)}
	at := tcpip.FullAddress{NIC: nic, Addr: addressOf(Resolver), Port: 53}
	packets, err := gonet.DialUDP(s.ip, &at, nil, ipv4.ProtocolNumber)
	if err != nil {
		return nil, fmt.Errorf("listen for names: %w", err)
	}
	streams, err := gonet.ListenTCP(s.ip, at, ipv4.ProtocolNumber)
	if err != nil {
		packets.Close()
		return nil, fmt.Errorf("listen for names: %w", err)
	}
	handler := dns.HandlerFunc(r.serve)
	r.servers = []*dns.Server{
		{PacketConn: ignoreErrors{packets, s.ctx}, Handler: handler},
		{Listener: &limited{Listener: streams, places: make(chan struct{}, maxAskers)}, Handler: handler, ReadTimeout: askLimit, MaxTCPQueries: maxQueries},
	}
	for _, one := range r.servers {
		up := make(chan struct{})
		one.NotifyStartedFunc = func() { close(up) }
		go func() { r.done <- one.ActivateAndServe() }()
		<-up
	}
	return r, nil
}

// ignoreErrors ignores ICMP errors about answers to the guest, which would end a dns.Server.
type ignoreErrors struct {
	net.PacketConn
	ctx context.Context
}

func (d ignoreErrors) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := d.PacketConn.ReadFrom(b)
		var slow net.Error
		if err == nil || d.ctx.Err() != nil || errors.As(err, &slow) && slow.Timeout() {
			return n, from, err
		}
	}
}

// limited is a listener with a maximum of open connections; others wait in the backlog.
type limited struct {
	net.Listener
	places chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.places <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placed{c, sync.OnceFunc(func() { <-l.places })}, nil
}

type placed struct {
	net.Conn
	leave func()
}

func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}

func (r *resolver) close() {
	for _, one := range r.servers {
		one.Shutdown()
		<-r.done
	}
}

// serve answers one message.
func (r *resolver) serve(w dns.ResponseWriter, q *dns.Msg) {
	ctx, cancel := context.WithTimeout(r.s.ctx, maxUpstream*askLimit)
	defer cancel()
	a := r.answer(ctx, q)
	if a == nil {
		return
	}
	size := dns.MinMsgSize
	if o := q.IsEdns0(); o != nil {
		size = int(max(o.UDPSize(), dns.MinMsgSize))
	}
	if _, stream := w.RemoteAddr().(*net.TCPAddr); stream {
		size = dns.MaxMsgSize
	}
	a.Truncate(size)
	w.WriteMsg(a)
}

// answer returns the answer for the guest; nil: none, so that the guest retries.
func (r *resolver) answer(ctx context.Context, q *dns.Msg) *dns.Msg {
	if q.Response || q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		return refuse(q, dns.RcodeRefused, nil)
	}
	ask := q.Question[0]
	name, ok := canonical(ask.Name)
	p := r.s.policy.Load()
	switch {
	case name == InternalName || name == S3Name || name == HostName || name == ProxyName:
		return own(q, ask)
	case !ok && ask.Name != ".":
		return refuse(q, dns.RcodeNameError, nil)
	case !p.name(name):
		r.s.count.refuse(name)
		return refuse(q, dns.RcodeNameError, explained(edeBlocked, "this computer's network policy does not allow "+name))
	case r.s.hides(p, name):
		return r.denyPrivate(q, name)
	case p.byAddress(name):
		return r.answerByAddress(ctx, q, ask, name)
	case ask.Qtype != dns.TypeANY && !slices.Contains(visibleTypes, ask.Qtype):
		return refuse(q, dns.RcodeSuccess, nil)
	}
	return r.forward(ctx, q, ask, name)
}

// denyPrivate answers that a name is one of a private network, whether it exists or not.
func (r *resolver) denyPrivate(q *dns.Msg, name string) *dns.Msg {
	r.s.count.refuse(name)
	return refuse(q, dns.RcodeNameError, explained(edeBlocked, name+" is a name of a private network, which this computer's network policy does not allow"))
}

// answerByAddress answers for a name that is visible only if its address is granted. So it looks up the address first,
// for every type of record.
func (r *resolver) answerByAddress(ctx context.Context, q *dns.Msg, ask dns.Question, name string) *dns.Msg {
	if p := r.s.policy.Load(); len(p.nets)+len(p.reach) == 0 {
		return r.denyPrivate(q, name)
	}
	kind := ask.Qtype
	ask.Qtype = dns.TypeA
	a := r.forward(ctx, q, ask, name)
	switch {
	case a == nil || a.Rcode == dns.RcodeServerFailure:
		return a
	case !slices.ContainsFunc(a.Answer, r.granted):
		return r.denyPrivate(q, name)
	case kind != dns.TypeA && kind != dns.TypeANY:
		return refuse(q, dns.RcodeSuccess, nil)
	}
	return a
}

// granted reports whether a filtered record has an address that is not public and granted, or that of a server of the
// host's packages.
func (r *resolver) granted(rr dns.RR) bool {
	a, ok := rr.(*dns.A)
	if !ok {
		return false
	}
	ip, ok := netip.AddrFromSlice(a.A.To4())
	return ok && (!r.s.public(ip) || slices.ContainsFunc(r.s.policy.Load().reach, func(at netip.AddrPort) bool { return at.Addr() == ip }))
}

// forward returns the filtered answer of the host's resolvers.
func (r *resolver) forward(ctx context.Context, q *dns.Msg, ask dns.Question, name string) *dns.Msg {
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	default:
		return nil
	}
	a, err := r.ask(ctx, ask)
	if err != nil {
		return refuse(q, dns.RcodeServerFailure, explained(dns.ExtendedErrorCodeNetworkError, "the host's resolvers do not answer"))
	}
	code := a.Rcode
	a.SetReply(q) // keeps the answers, takes the id and the question
	a.Rcode, a.RecursionAvailable = code, true
	return r.filter(q, a, name)
}

// ask asks the upstreams, one after the other.
func (r *resolver) ask(ctx context.Context, ask dns.Question) (*dns.Msg, error) {
	servers := r.upstreams
	if len(servers) == 0 {
		c, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return nil, fmt.Errorf("read the host's resolvers: %w", err)
		}
		for _, s := range c.Servers[:min(len(c.Servers), maxUpstream)] {
			servers = append(servers, net.JoinHostPort(s, c.Port))
		}
	}
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(ask.Name), ask.Qtype)
	m.SetEdns0(1232, false)
	err := errors.New("the host has no resolvers")
	for _, server := range servers {
		var a *dns.Msg
		a, err = r.exchange(ctx, m, server, "udp")
		if err == nil && a.Truncated {
			a, err = r.exchange(ctx, m, server, "tcp")
		}
		if err == nil && a.Rcode != dns.RcodeServerFailure && a.Rcode != dns.RcodeRefused {
			return a, nil
		}
		if err == nil {
			err = fmt.Errorf("%s answered %s", server, dns.RcodeToString[a.Rcode])
		}
	}
	return nil, err
}

// exchange asks one upstream and counts the traffic.
func (r *resolver) exchange(ctx context.Context, m *dns.Msg, server, network string) (*dns.Msg, error) {
	a, _, err := (&dns.Client{Net: network, Timeout: askLimit}).ExchangeContext(ctx, m, server)
	received := 0
	if err == nil {
		received = a.Len()
	}
	r.s.count.asks(m.Len(), received)
	return a, err
}

// filter removes from an answer the addresses that the guest may not reach, and the records that it may not see. It
// remembers the remaining addresses. If an address remains, the aliases that lead to it remain too.
func (r *resolver) filter(q, a *dns.Msg, name string) *dns.Msg {
	p, taken, addresses := r.s.policy.Load(), false, 0
	all := slices.DeleteFunc(a.Answer, func(rr dns.RR) bool {
		one, ok := rr.(*dns.A)
		if !ok {
			return !slices.Contains(visibleTypes, rr.Header().Rrtype)
		}
		ip, ok := netip.AddrFromSlice(one.A.To4())
		if !ok || !r.s.reachable(p, ip, 0) && !r.s.granted(p, ip, 0) {
			taken = true
			return true
		}
		if addresses++; addresses > maxAnswers {
			return true
		}
		r.s.names.note(name, ip, time.Duration(one.Hdr.Ttl)*time.Second)
		return false
	})
	if taken && addresses == 0 {
		r.s.count.refuse(name)
		return refuse(q, dns.RcodeNameError, explained(edeFiltered, name+" resolves to an address of the host or of a private network, which this computer's network policy does not allow"))
	}
	a.Answer = slices.DeleteFunc(all, func(rr dns.RR) bool {
		switch rr.Header().Rrtype {
		case dns.TypeA:
			return false
		case dns.TypeCNAME, dns.TypeDNAME:
			if addresses > 0 {
				return false
			}
		}
		return !r.s.mayTell(p, rr)
	})
	a.Ns, a.Extra = nil, nil
	return a
}

// own answers for the resolver's own names.
func own(q *dns.Msg, ask dns.Question) *dns.Msg {
	a := refuse(q, dns.RcodeSuccess, nil)
	if ask.Qtype == dns.TypeA || ask.Qtype == dns.TypeANY {
		a.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: ask.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ownTTL},
			A:   Gateway.AsSlice(),
		}}
	}
	return a
}

// refuse returns an answer without records. why is added for clients with EDNS (RFC 8914).
func refuse(q *dns.Msg, code int, why *dns.EDNS0_EDE) *dns.Msg {
	a := new(dns.Msg)
	a.SetRcode(q, code)
	a.RecursionAvailable = true
	if o := q.IsEdns0(); o != nil && why != nil {
		a.SetEdns0(1232, false)
		a.IsEdns0().Option = append(a.IsEdns0().Option, why)
	}
	return a
}

func explained(code uint16, text string) *dns.EDNS0_EDE {
	return &dns.EDNS0_EDE{InfoCode: code, ExtraText: text}
}
