package netstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"holt"
)

var open = holt.NetworkPolicy{Egress: holt.EgressOpen}

// echo sends something to an address's port 7 and reads it back.
func (g *guest) echo(network, to string, wait time.Duration) error {
	to = net.JoinHostPort(to, fmt.Sprint(echoPort))
	if network == "udp" {
		at := full(to)
		c, err := gonet.DialUDP(g.ip, nil, &at, ipv4.ProtocolNumber)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(wait))
		return there(c)
	}
	c, err := g.dialFor(to, 10*wait)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * wait))
	return there(c)
}

// there tells whether what is sent comes back.
func there(c io.ReadWriter) error {
	if _, err := io.WriteString(c, "?is anybody there"); err != nil {
		return err
	}
	b := make([]byte, 17)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != "?is anybody there" {
		return errors.New("something else came back")
	}
	return nil
}

// ask asks this computer's resolver.
func (g *guest) ask(name string, kind uint16) (*dns.Msg, error) {
	at := full(net.JoinHostPort(Resolver.String(), "53"))
	c, err := gonet.DialUDP(g.ip, nil, &at, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	q := new(dns.Msg)
	q.SetQuestion(name+".", kind)
	q.SetEdns0(1232, false)
	a, _, err := (&dns.Client{Timeout: 5 * time.Second}).ExchangeWithConnContext(context.Background(), q, &dns.Conn{Conn: c, UDPSize: 1232})
	return a, err
}

// addresses returns the addresses of a name from the resolver, or why there are none.
func (g *guest) addresses(name string) (all []string, why string) {
	g.t.Helper()
	a, err := g.ask(name, dns.TypeA)
	if err != nil {
		g.t.Fatalf("ask for %s: %v; %+v", name, err, g.ip.Stats().UDP)
	}
	for _, rr := range a.Answer {
		if rr, ok := rr.(*dns.A); ok {
			all = append(all, rr.A.String())
		}
	}
	why = dns.RcodeToString[a.Rcode]
	if o := a.IsEdns0(); o != nil {
		for _, one := range o.Option {
			if e, ok := one.(*dns.EDNS0_EDE); ok {
				why += ": " + e.ExtraText
			}
		}
	}
	return all, why
}

// TestOpen: with egress open the internet is reachable by TCP and UDP, with half-closed and refused connections, and
// traffic is counted.
func TestOpen(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	w.name("example.com", "A 93.184.216.34", "AAAA 2606:2800:220:1::1")
	s, g := w.start(open)
	for _, network := range []string{"tcp", "udp"} {
		if err := g.echo(network, "93.184.216.35", time.Second); err != nil {
			t.Errorf("%s: %v", network, err)
		}
	}
	if all, why := g.addresses("example.com"); !slices.Equal(all, []string{"93.184.216.34"}) || why != "NOERROR" {
		t.Errorf("example.com is %v, %s", all, why)
	}
	if a, err := g.ask("example.com", dns.TypeAAAA); err != nil || len(a.Answer) > 0 || a.Rcode != dns.RcodeSuccess {
		t.Errorf("its IPv6: %v, %v", a, err)
	}
	if all, why := g.addresses("nobody.example"); len(all) > 0 || why != "NXDOMAIN" {
		t.Errorf("a name that is none: %v, %s", all, why)
	}
	// Much, both ways at once, and then the end of one way.
	c, err := g.dial("93.184.216.34:7")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	said, back := sha256.New(), sha256.New()
	const size = 32 << 20
	go func() {
		io.CopyN(io.MultiWriter(c, said), rand.NewChaCha8([32]byte{1}), size)
		c.CloseWrite()
	}()
	if n, err := io.Copy(back, c); n != size || err != nil {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	if !bytes.Equal(said.Sum(nil), back.Sum(nil)) {
		t.Error("they are others")
	}
	if _, err := g.dial("93.184.216.34:81"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("where nobody listens: %v", err)
	}
	want := holt.Traffic{Destination: "example.com", Sent: size, Received: size, Connections: 1}
	for began := time.Now(); !slices.Contains(s.Traffic(), want); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("counted: %+v", s.Traffic())
		}
	}
}

// TestForbidden: a guest cannot reach the host and its networks.
func TestForbidden(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	w.name("harmless.example", "A 93.184.216.34")
	for i, a := range forbidden {
		w.name(fmt.Sprintf("inner%d.example", i), "A "+a)
	}
	w.name("both.example", "A 169.254.169.254", "A 93.184.216.34")
	w.name("alias.example", "CNAME inner2.example.", "A 10.1.2.3")
	policies := []holt.NetworkPolicy{
		open,
		{Egress: holt.EgressAllow, Allow: []string{"*.example", "93.184.216.34", "0.0.0.0/0"}},
		{Egress: holt.EgressOff, Allow: []string{"10.0.0.0/8", "host.holt.internal:7"}},
	}
	for _, p := range policies {
		s, g := w.start(p)
		everywhere := []string{Gateway.String(), Resolver.String(), "10.0.2.77", "0.0.0.0", "255.255.255.255", "224.0.0.1", "10.0.2.255"}
		var tries sync.WaitGroup // some get no answer
		for _, a := range append(everywhere, forbidden...) {
			for _, network := range []string{"tcp", "udp"} {
				tries.Go(func() {
					if err := g.echo(network, a, 100*time.Millisecond); err == nil {
						t.Errorf("%s: %s %s is there", p.Egress, network, a)
					}
				})
			}
		}
		tries.Wait()
		for _, a := range forbidden {
			if strings.HasPrefix(a, "127.") {
				continue // no answer: the kernel does not send such packets
			}
			if c, err := g.dial(net.JoinHostPort(a, "80")); err == nil {
				c.Close()
				t.Errorf("%s: %s:80 is there", p.Egress, a)
			}
		}
		for i, a := range forbidden {
			if all, why := g.addresses(fmt.Sprintf("inner%d.example", i)); len(all) > 0 || !strings.Contains(why, "NXDOMAIN") || !strings.Contains(why, "network policy does not allow") {
				t.Errorf("%s: a name of %s: %v, %s", p.Egress, a, all, why)
			}
		}
		all, _ := g.addresses("both.example")
		if want := []string{"93.184.216.34"}; p.Egress != holt.EgressOff && !slices.Equal(all, want) || p.Egress == holt.EgressOff && len(all) > 0 {
			t.Errorf("%s: both.example is %v", p.Egress, all)
		}
		if all, _ := g.addresses("alias.example"); len(all) > 0 {
			t.Errorf("%s: alias.example is %v", p.Egress, all)
		}
		// A name that stood for a harmless address and then for another one (rebinding).
		g.addresses("harmless.example")
		w.name("harmless.example", "A 169.254.169.254")
		if all, _ := g.addresses("harmless.example"); len(all) > 0 {
			t.Errorf("%s: it is rebound to %v", p.Egress, all)
		}
		w.name("harmless.example", "A 93.184.216.34")
		var refused int64
		for _, one := range s.Traffic() {
			refused += one.Refused
		}
		if refused < int64(2*len(forbidden)) {
			t.Errorf("%s: %d refusals are counted", p.Egress, refused)
		}
	}
	if n := w.leaks.Load(); n > 0 {
		t.Errorf("%d connections and datagrams came through", n)
	}
}

// TestAllow: only entries of the policy are reachable. A change takes effect at once, also for open connections.
func TestAllow(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	w.name("registry.example", "A 93.184.216.34")
	w.name("a.b.cdn.example", "A 151.101.1.1")
	w.name("cdn.example", "A 93.184.216.35")
	s, g := w.start(holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"registry.example:7", "*.cdn.example", "10.1.2.0/24:7", "host.holt.internal:7"}})
	if err := g.echo("tcp", "93.184.216.34", time.Second); err == nil {
		t.Error("an address without its name")
	}
	for name, address := range map[string]string{"registry.example": "93.184.216.34", "a.b.cdn.example": "151.101.1.1", "A.B.CDN.example": "151.101.1.1", HostName: Gateway.String(), InternalName: Gateway.String(), S3Name: Gateway.String()} {
		if all, why := g.addresses(name); !slices.Equal(all, []string{address}) {
			t.Errorf("%s is %v, %s", name, all, why)
		}
	}
	if all, why := g.addresses("cdn.example"); len(all) > 0 || why != "NXDOMAIN: this computer's network policy does not allow cdn.example" {
		t.Errorf("cdn.example is %v, %s", all, why)
	}
	for _, address := range []string{"93.184.216.34", "151.101.1.1", "10.1.2.3", Gateway.String()} {
		for _, network := range []string{"tcp", "udp"} {
			if err := g.echo(network, address, time.Second); err != nil {
				t.Errorf("%s %s: %v", network, address, err)
			}
		}
	}
	for _, to := range []string{"93.184.216.34:80", "10.1.2.3:80", "10.0.2.2:81", "93.184.216.35:7"} {
		if c, err := g.dial(to); err == nil {
			c.Close()
			t.Errorf("%s is there", to)
		}
	}
	kept, err := g.dial("151.101.1.1:7")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	cut, err := g.dial("93.184.216.34:7")
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	for _, c := range []*gonet.TCPConn{kept, cut} {
		if err := there(c); err != nil {
			t.Fatal(err)
		}
	}
	// An open connection continues after its name has expired, and after other changes of the policy.
	s.names.age(mostKept)
	w.policy(s, holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"registry.example:7", "*.cdn.example", "another.example"}})
	for _, c := range []*gonet.TCPConn{kept, cut} {
		if err := there(c); err != nil {
			t.Errorf("one whose name is past, and allowed: %v", err)
		}
	}
	if err := g.echo("tcp", "151.101.1.1", time.Second); err == nil {
		t.Error("a new connection for a name that is past")
	}
	w.policy(s, holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"*.cdn.example"}})
	cut.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := cut.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("a connection that is not allowed any more: %v", err)
	}
	if err := there(kept); err != nil {
		t.Errorf("one that is: %v", err)
	}
}

// age lets time pass for all names.
func (n *names) age(by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, of := range n.all {
		for name := range of {
			of[name] = of[name].Add(-by)
		}
	}
}

// TestKnown: the next stack of a guest takes over valid names that have not expired.
func TestKnown(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	w.name("registry.example", "A 93.184.216.34")
	allow := holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"registry.example", "past.example"}}
	s, g := w.start(allow)
	if all, why := g.addresses("registry.example"); len(all) != 1 {
		t.Fatal(why)
	}
	known, added := s.Known()
	if len(known) != 1 || added != 1 || known[0].Name != "registry.example" {
		t.Fatalf("%+v %d", known, added)
	}
	g.unplug()
	next := w.stack(allow, Options{})
	g.plug(next)
	if err := g.echo("tcp", "93.184.216.34", time.Second); err == nil {
		t.Error("a stack that knows nothing connects")
	}
	late, ip := time.Now().Add(1000*mostKept), netip.MustParseAddr("93.184.216.35")
	next.Recall(append(known, Known{"past.example", ip, time.Now().Add(-time.Second)}, Known{"REGISTRY.example", ip, late}, Known{"", ip, late},
		Known{"registry.example", netip.IPv6Loopback(), late}, Known{"registry.example", netip.MustParseAddr("10.1.2.3"), late}))
	if err := g.echo("tcp", "93.184.216.34", time.Second); err != nil {
		t.Errorf("for a name of before: %v", err)
	}
	for _, to := range []string{"93.184.216.35", "10.1.2.3"} {
		if err := g.echo("tcp", to, time.Second); err == nil {
			t.Errorf("%s is there", to)
		}
	}
	known, _ = next.Known()
	for _, one := range known {
		if time.Until(one.Until) > mostKept {
			t.Errorf("%+v counts for ever", one)
		}
	}
	many := make([]Known, 3*maxNames)
	for i := range many {
		many[i] = Known{fmt.Sprintf("n%d.example", i), ip, late}
	}
	next.Recall(many)
	if known, _ = next.Known(); len(known) > maxNames {
		t.Errorf("%d names", len(known))
	}
}

// TestUnheardAnswers: ICMP errors of a guest that has closed its socket do not stop the resolver.
func TestUnheardAnswers(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	_, g := w.start(holt.NetworkPolicy{Egress: holt.EgressOff})
	at := full(net.JoinHostPort(Resolver.String(), "53"))
	q, err := new(dns.Msg).SetQuestion("nobody.example.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		c, err := gonet.DialUDP(g.ip, nil, &at, ipv4.ProtocolNumber)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(q)
		c.Close()
	}
	for began := time.Now(); g.ip.Stats().ICMP.V4.PacketsSent.DstUnreachable.Value() == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("every answer was waited for")
		}
	}
	if _, why := g.addresses("nobody.example"); !strings.HasPrefix(why, "NXDOMAIN") {
		t.Errorf("afterwards: %s", why)
	}
}
