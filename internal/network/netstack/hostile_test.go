package netstack

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"holt"
)

const metadata = "169.254.169.254"

// way is an attempt of a hostile guest to reach a forbidden address. No error: it succeeded.
type way struct {
	name string
	try  func() error
}

// hostile is a malicious guest with a kernel and root.
type hostile struct {
	*machine
	w    *world
	site *site
}

// wayMark begins the log line of each attempt.
const wayMark = "tried: "

var errSent = errors.New("sent; nothing said")

// TestHostile: a guest with its own kernel and root tries all known ways to the
// host and its networks. All forbidden addresses have listeners, so that a
// success is detected.
func TestHostile(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	h := &hostile{w: w, site: w.site()}
	h.names()
	s := w.stack(open, Options{})
	h.machine = w.machine(s)
	h.control(s)
	tried, different := 0, 0
	for i, p := range []holt.NetworkPolicy{
		open,
		{Egress: holt.EgressAllow, Allow: []string{"*.example", "localhost", "93.184.216.0/27"}},
		{Egress: holt.EgressAllow, Allow: []string{"*.example", "0.0.0.0/0", "93.184.216.96/29"}},
		{Egress: holt.EgressOff, Allow: []string{"10.0.0.0/8", "host.holt.internal:7"}},
	} {
		w.policy(s, p)
		ways := h.ways(i == 1)
		different = max(different, len(ways))
		for _, one := range ways {
			err := one.try()
			t.Logf(wayMark+"%-5s %-58s %v", p.Egress, one.name, err)
			if err == nil {
				t.Errorf("%s: %s came through", p.Egress, one.name)
			}
			if n := w.leaks.Swap(0); n > 0 {
				t.Errorf("%s: %s was heard", p.Egress, one.name)
			}
			tried++
		}
	}
	h.control(s) // what came late is heard before
	if h.site.hears("evil.test") {
		t.Errorf("the other tenant of an address was reached: %v", h.site.heard)
	}
	t.Logf("counts: %d tries of %d different ways, none heard; what is granted was heard before and after", tried, different)
}

// control shows that the listeners detect allowed traffic, so that the test can fail.
func (h *hostile) control(s *Stack) {
	h.t.Helper()
	if n := h.w.leaks.Swap(0); n > 0 {
		h.t.Errorf("%d were heard", n)
	}
	h.w.policy(s, holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"10.1.2.0/24", "169.254.169.254", "host.holt.internal:7"}})
	for i, err := range []error{
		h.echo("tcp", "10.1.2.3:7"), h.echo("udp", metadata+":7"), h.echo("tcp", "10.0.2.2:7"), h.proxied("http://169.254.169.254/"),
		h.send(rawIP{to: "10.1.2.3", protocol: 17, payload: udpPacket(4242, 7, "hello")}),
	} {
		if err != nil && !errors.Is(err, errSent) {
			h.t.Errorf("control %d: %v", i, err)
		}
	}
	for began := time.Now(); h.w.leaks.Load() < 5; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			h.t.Fatalf("of 5 controls %d were heard", h.w.leaks.Load())
		}
	}
	h.w.leaks.Store(0)
}

func (h *hostile) names() {
	w := h.w
	for i, a := range forbidden {
		w.name(fmt.Sprintf("inner%d.example", i), "A "+a)
	}
	w.name("own.example", "A 93.184.216.99")
	w.name("chain.example", "CNAME chain2.example.", "A 10.1.2.3")
	w.name("many.example", append(slices.Repeat([]string{"A 10.1.2.3"}, 40), "A "+metadata, "A 127.0.0.1", "A 0.0.0.0")...)
	w.name("zero.example", "A 0.0.0.0")
	w.name("six.example", "AAAA ::1", "AAAA fd00:ec2::254", "AAAA ::ffff:169.254.169.254")
	w.name("hint.example", "HTTPS 1 . ipv4hint=169.254.169.254")
	w.name("localhost", "A 127.0.0.1")
	w.name("2852039166", "A "+metadata)
	w.name("shared.example", "A "+shared)
	w.name("evil.test", "A "+shared)
}

// ways returns all attempts, with those of a guest that may reach one tenant of an address.
func (h *hostile) ways(names bool) []way {
	all := slices.Concat(h.direct(), h.rawWays(), h.nameWays(), h.proxyWays(), h.gatewayWays())
	if names {
		all = append(all, h.lies()...)
	}
	return all
}

// direct are connections and datagrams of an ordinary kernel: each is refused at once.
func (h *hostile) direct() (out []way) {
	for _, to := range forbidden {
		if strings.HasPrefix(to, "127.") {
			continue // the machine's own; see rawWays
		}
		out = append(out, way{"TCP to " + to, func() error { return h.refused(h.echo("tcp", to+":7")) }})
		out = append(out, way{"UDP to " + to, func() error { return h.refused(h.echo("udp", to+":7")) }})
	}
	for _, to := range []string{"[fd00:ec2::254]:80", "[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::1]:80", "[::ffff:169.254.169.254]:80", "[fec0::2]:7"} {
		out = append(out, way{"TCP to " + to, func() error { return h.brief("tcp", to) }})
		out = append(out, way{"UDP to " + to, func() error { return h.brief("udp", to) }})
	}
	for _, to := range []string{"240.0.0.1:7", "224.0.0.1:7", "239.255.255.250:1900", "224.0.0.251:5353", "10.0.2.99:7"} {
		out = append(out, way{"UDP to " + to, func() error { return h.brief("udp", to) }})
	}
	return out
}

// refused returns errors that a tool understands at once: for TCP a reset, for
// UDP prohibited or port unreachable; other errors fail the test.
func (h *hostile) refused(err error) error {
	var op *net.OpError
	prohibited := errors.As(err, &op) && op.Net == "udp" && errors.Is(err, syscall.EHOSTUNREACH)
	if !errors.Is(err, syscall.ECONNREFUSED) && !prohibited {
		h.t.Errorf("not refused, but %v", err)
	}
	return err
}

// brief uses a short timeout: the machine's kernel gets no answer.
func (h *hostile) brief(network, to string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	c, err := h.dial(ctx, network, to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(50 * time.Millisecond))
	return there(c)
}

// send sends a packet unchanged.
func (h *hostile) send(p rawIP) error {
	if err := h.frame(0x0800, gatewayMAC, p.bytes()); err != nil {
		return err
	}
	return errSent
}

// rawWays are packets that no kernel would send.
func (h *hostile) rawWays() []way {
	datagram := udpPacket(4242, 7, "raw")
	ip := func(name string, p rawIP) way { return way{name, func() error { return h.send(p) }} }
	udp := func(name, from, to string) way {
		return ip(name, rawIP{from: from, to: to, protocol: 17, payload: datagram})
	}
	syn := func(name, from, to string, flags byte) way {
		src := from
		if src == "" {
			src = Guest.String()
		}
		return ip(name, rawIP{from: from, to: to, protocol: 6, payload: synPacket(src, to, 4343, 7, flags)})
	}
	return []way{
		syn("raw SYN to the host's 127.0.0.1", "", "127.0.0.1", 2), udp("raw datagram to 127.0.0.1", "", "127.0.0.1"), udp("raw datagram to 127.1.2.3", "", "127.1.2.3"),
		syn("raw SYN to 0.0.0.0", "", "0.0.0.0", 2), udp("raw datagram to 0.0.0.0", "", "0.0.0.0"),
		udp("broadcast", "", "255.255.255.255"), udp("broadcast of the subnet", "", "10.0.2.255"), udp("broadcast of a private network", "", "10.255.255.255"),
		udp("spoofed source 127.0.0.1", "127.0.0.1", "10.1.2.3"), udp("spoofed source of the host", "93.184.216.99", metadata),
		udp("spoofed source of the gateway", Gateway.String(), "10.1.2.3"), syn("spoofed SYN of another guest", "10.0.2.16", metadata, 2),
		udp("source 0.0.0.0", "0.0.0.0", "10.1.2.3"), udp("source and target the same", metadata, metadata),
		syn("SYN with FIN, URG and PSH", "", metadata, 2|1|32|8), syn("ACK without a connection", "", metadata, 16), syn("SYN and ACK", "", metadata, 18), syn("no flags", "", metadata, 0),
		ip("strict source route", rawIP{to: "93.184.216.34", options: []byte{137, 7, 4, 169, 254, 169, 254, 0}, protocol: 17, payload: datagram}),
		ip("loose source route", rawIP{to: "10.0.2.2", options: []byte{131, 7, 4, 10, 1, 2, 3, 0}, protocol: 17, payload: datagram}),
		ip("record route and router alert", rawIP{to: metadata, options: []byte{7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 0}, protocol: 17, payload: datagram}),
		{"fragments, the first without ports", func() error { return h.fragments(metadata) }},
		{"fragments that overlap with another target", func() error { return h.overlap() }},
		ip("IP in IP", rawIP{to: "10.0.2.2", protocol: 4, payload: rawIP{to: metadata, protocol: 17, payload: datagram}.bytes()}),
		ip("IPv6 in IP (6to4)", rawIP{to: "10.0.2.2", protocol: 41, payload: ipv6("::1", datagram)}),
		ip("GRE", rawIP{to: "10.0.2.2", protocol: 47, payload: append([]byte{0, 0, 8, 0}, rawIP{to: metadata, protocol: 17, payload: datagram}.bytes()...)}),
		ip("SCTP", rawIP{to: metadata, protocol: 132, payload: make([]byte, 32)}), ip("UDP-Lite", rawIP{to: metadata, protocol: 136, payload: datagram}),
		ip("ICMP echo to an inner address", rawIP{to: metadata, protocol: 1, payload: []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}}),
		ip("ICMP redirect of the gateway", rawIP{to: Gateway.String(), protocol: 1, payload: append([]byte{5, 1, 0, 0, 10, 1, 2, 3}, rawIP{to: "93.184.216.34", protocol: 17, payload: datagram}.bytes()...)}),
		ip("ICMP unreachable about somebody else", rawIP{to: Gateway.String(), protocol: 1, payload: append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, rawIP{from: metadata, to: "10.1.2.3", protocol: 17, payload: datagram}.bytes()...)}),
		{"ARP that claims the gateway", func() error { return h.arp(2, Gateway.String(), Guest.String()) }},
		{"ARP that claims 169.254.169.254", func() error { return h.arp(2, metadata, Gateway.String()) }},
		{"ARP for an inner address", func() error { return h.arp(1, Guest.String(), metadata) }},
		{"IPv6 frame to ::1", func() error { return sent(h.frame(0x86dd, gatewayMAC, ipv6("::1", datagram))) }},
		{"IPv6 frame to fd00:ec2::254", func() error { return sent(h.frame(0x86dd, gatewayMAC, ipv6("fd00:ec2::254", datagram))) }},
		{"a frame with a VLAN tag", func() error {
			return sent(h.frame(0x8100, gatewayMAC, append([]byte{0, 1, 8, 0}, rawIP{to: metadata, protocol: 17, payload: datagram}.bytes()...)))
		}},
		{"a frame to everybody", func() error {
			return sent(h.frame(0x0800, net.HardwareAddr{255, 255, 255, 255, 255, 255}, rawIP{to: metadata, protocol: 17, payload: datagram}.bytes()))
		}},
		{"a header longer than its packet", func() error {
			b := rawIP{to: metadata, protocol: 17, payload: datagram}.bytes()
			b[0] = 0x4f
			return sent(h.frame(0x0800, gatewayMAC, b))
		}},
	}
}

func sent(err error) error {
	if err == nil {
		err = errSent
	}
	return err
}

// fragments sends a datagram in fragments of eight bytes.
func (h *hostile) fragments(to string) error {
	whole := udpPacket(4242, 7, "a datagram that comes in pieces.")
	for at := 0; at < len(whole); at += 8 {
		more := uint16(0x2000)
		if at+8 >= len(whole) {
			more = 0
		}
		h.send(rawIP{to: to, protocol: 17, fragment: more | uint16(at/8), payload: whole[at:min(at+8, len(whole))]})
	}
	return errSent
}

// overlap sends overlapping fragments with different ports, to an allowed and a forbidden address.
func (h *hostile) overlap() error {
	whole := udpPacket(4242, 7, strings.Repeat("x", 40))
	h.send(rawIP{to: "93.184.216.34", protocol: 17, fragment: 0x2000, payload: whole[:24]})
	h.send(rawIP{to: metadata, protocol: 17, fragment: 0x2001, payload: whole[8:32]})
	return h.send(rawIP{to: metadata, protocol: 17, fragment: 3, payload: whole[24:]})
}

func ipv6(to string, payload []byte) []byte {
	b := make([]byte, 40, 40+len(payload))
	b[0], b[6], b[7] = 0x60, 17, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	copy(b[8:], net.ParseIP("fec0::15"))
	copy(b[24:], net.ParseIP(to))
	return append(b, payload...)
}

func (h *hostile) arp(op byte, sender, target string) error {
	b := append([]byte{0, 1, 8, 0, 6, 4, 0, op}, h.mac...)
	b = append(append(b, net.ParseIP(sender).To4()...), gatewayMAC...)
	if err := h.frame(0x0806, gatewayMAC, append(b, net.ParseIP(target).To4()...)); err != nil {
		return err
	}
	return h.send(rawIP{to: metadata, protocol: 17, payload: udpPacket(4242, 7, "after ARP")})
}

// ask queries a resolver for records of a name, of any type.
func (h *hostile) ask(network, server, name string, kind uint16) (all []string, err error) {
	c, err := h.dial(context.Background(), network, server)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), kind)
	a, _, err := (&dns.Client{Timeout: time.Second}).ExchangeWithConnContext(context.Background(), q, &dns.Conn{Conn: c})
	if err != nil {
		return nil, err
	}
	for _, rr := range a.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			all = append(all, rr.A.String())
		case *dns.AAAA:
			all = append(all, rr.AAAA.String())
		case *dns.HTTPS:
			all = append(all, rr.String())
		}
	}
	if len(all) == 0 {
		err = errors.New(dns.RcodeToString[a.Rcode])
	}
	return all, err
}

// nameWays are names of inner addresses, at this resolver and at another one.
func (h *hostile) nameWays() (out []way) {
	here := net.JoinHostPort(Resolver.String(), "53")
	byName := func(network, server, name string, kind uint16) error {
		all, err := h.ask(network, server, name, kind)
		for _, one := range all {
			if err = h.echo("tcp", net.JoinHostPort(one, "7")); err == nil {
				return nil
			}
		}
		return err
	}
	for i, a := range forbidden { // to be told is to come through
		name := fmt.Sprintf("inner%d.example", i)
		out = append(out, way{"a name of " + a, func() error {
			_, err := h.ask("udp", here, name, dns.TypeA)
			return err
		}})
	}
	for _, name := range []string{"own.example", "chain.example", "many.example", "zero.example", "localhost", "2852039166"} {
		out = append(out, way{"the name " + name, func() error { return byName("udp", here, name, dns.TypeA) }})
		out = append(out, way{"the name " + name + " by TCP", func() error { return byName("tcp", here, name, dns.TypeANY) }})
	}
	return append(out,
		way{"AAAA of ::1 and others", func() error { return byName("udp", here, "six.example", dns.TypeAAAA) }},
		way{"hints of HTTPS records", func() error { return byName("udp", here, "hint.example", dns.TypeHTTPS) }},
		way{"rebinding", func() error {
			h.w.name("rebound.example", "A 93.184.216.34")
			h.ask("udp", here, "rebound.example", dns.TypeA)
			h.w.name("rebound.example", "A "+metadata)
			return byName("udp", here, "rebound.example", dns.TypeA)
		}},
		way{"a resolver of its own choice, UDP", func() error { return byName("udp", resolving, "inner2.example", dns.TypeA) }},
		way{"a resolver of its own choice, TCP", func() error { return byName("tcp", resolving, "inner6.example", dns.TypeA) }},
		way{"DNS over TLS to an inner resolver", func() error { return h.refused(h.echo("tcp", "10.1.2.3:853")) }},
		way{"DNS to an inner resolver", func() error { return byName("udp", "192.168.7.7:53", "inner2.example", dns.TypeA) }},
	)
}

// proxied requests a URL through the proxy and follows redirects. No error: the
// answer is not the proxy's own refusal.
func (h *hostile) proxied(address string) error {
	return h.get(address, http.ProxyURL(&url.URL{Scheme: "http", Host: "10.0.2.2:3128"}))
}

func (h *hostile) get(address string, proxy func(*http.Request) (*url.URL, error)) error {
	tr := &http.Transport{DialContext: h.dial, Proxy: proxy, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	a, err := (&http.Client{Transport: tr, Timeout: 3 * time.Second}).Get(address)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	b, _ := io.ReadAll(a.Body)
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", a.Status, strings.TrimSpace(string(b)))
	}
	return nil
}

// says sends text to the proxy, or to another address, and returns the first line of the answer.
func (h *hostile) says(to, text string) error {
	c, err := h.dial(context.Background(), "tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	io.WriteString(c, text)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.Contains(line, " 200 ") {
		return nil
	}
	return errors.New(strings.TrimSpace(line))
}

const proxyAt = "10.0.2.2:3128"

// proxyWays are requests to the proxy, with all spellings of addresses.
func (h *hostile) proxyWays() (out []way) {
	spelled := []string{
		metadata, "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe", "169.254.43518", "169.254.169.254.",
		"127.0.0.1:7", "127.1", "0", "0.0.0.0", "localhost", "[::1]", "[::ffff:169.254.169.254]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[fd00:ec2::254]", "[fe80::1%25eth0]",
		"10.1.2.3", "93.184.216.99", "inner2.example", "inner6.example", "chain.example", "many.example", "own.example", "six.example", "host.holt.internal:22",
	}
	for _, host := range spelled {
		out = append(out, way{"the proxy, to http://" + host, func() error {
			return h.says(proxyAt, "GET http://"+host+"/ HTTP/1.1\r\nHost: harmless.example\r\n\r\n")
		}})
		to := strings.ReplaceAll(host, "%25", "%")
		if _, _, err := net.SplitHostPort(to); err != nil {
			to += ":80"
		}
		out = append(out, way{"the proxy, CONNECT " + to, func() error { return h.says(proxyAt, "CONNECT "+to+" HTTP/1.1\r\nHost: harmless.example\r\n\r\n") }})
	}
	return append(out,
		way{"the proxy, to itself", func() error { return h.says(proxyAt, "CONNECT 10.0.2.2:3128 HTTP/1.1\r\n\r\n") }},
		way{"the proxy, to the resolver", func() error { return h.says(proxyAt, "CONNECT 10.0.2.3:53 HTTP/1.1\r\n\r\n") }},
		way{"the proxy, as if it were a server", func() error { return h.says(proxyAt, "GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n") }},
		way{"the proxy, ftp", func() error { return h.says(proxyAt, "GET ftp://169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n") }},
		way{"the proxy, file", func() error { return h.says(proxyAt, "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n") }},
		way{"the proxy, a name with a user before it", func() error {
			return h.says(proxyAt, "GET http://shared.example@169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n")
		}},
		way{"a redirect, followed by the proxy's client", func() error { return h.proxied("http://shared.example/redirect?to=http://169.254.169.254/") }},
		way{"a redirect to a name", func() error { return h.proxied("http://shared.example/redirect?to=http://inner6.example/") }},
		way{"a redirect, followed directly", func() error { return h.get("http://"+shared+"/redirect?to=http://169.254.169.254/", nil) }},
		way{"a redirect to TLS by the proxy", func() error { return h.proxied("http://shared.example/redirect?to=https://10.1.2.3/") }},
	)
}

// gatewayWays are the other ports of the virtual network's own addresses.
func (h *hostile) gatewayWays() (out []way) {
	for _, to := range []string{"10.0.2.2:7", "10.0.2.2:22", "10.0.2.2:53", "10.0.2.2:2375", "10.0.2.2:6443", "10.0.2.3:7", "10.0.2.3:80", "10.0.2.3:3128"} {
		out = append(out, way{"TCP to " + to, func() error { return h.refused(h.echo("tcp", to)) }})
	}
	for _, to := range []string{"10.0.2.2:7", "10.0.2.3:7", "10.0.2.2:80"} {
		out = append(out, way{"UDP to " + to, func() error { return h.refused(h.echo("udp", to)) }})
	}
	return append(out, way{"holt.internal with the name of another host", func() error {
		return h.says("10.0.2.2:80", "GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
	}})
}

// lies are attempts of a guest that may reach one tenant of an address to reach another.
func (h *hostile) lies() []way {
	h.ask("udp", net.JoinHostPort(Resolver.String(), "53"), "shared.example", dns.TypeA)
	overTLS := func(address, sni string) error {
		c, err := h.dial(context.Background(), "tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(2 * time.Second))
		return tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true}).Handshake()
	}
	at, web := shared+":443", shared+":80"
	for _, err := range []error{overTLS(at, "shared.example"), h.says(web, "GET / HTTP/1.1\r\nHost: shared.example\r\n\r\n")} {
		if err != nil {
			h.t.Errorf("what is allowed: %v", err)
		}
	}
	return []way{
		{"TLS to an allowed address with another name", func() error { return overTLS(at, "evil.test") }},
		{"TLS to an allowed address without a name", func() error { return overTLS(at, "") }},
		{"TLS at another port", func() error { return overTLS(shared+":8443", "evil.test") }},
		{"TLS by the proxy's tunnel", func() error {
			c, err := h.dial(context.Background(), "tcp", proxyAt)
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(2 * time.Second))
			io.WriteString(c, "CONNECT shared.example:443 HTTP/1.1\r\n\r\n")
			if a, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || a.StatusCode != http.StatusOK {
				h.t.Errorf("CONNECT to what is allowed: %v, %v", a, err)
			}
			return tls.Client(c, &tls.Config{ServerName: "evil.test", InsecureSkipVerify: true}).Handshake()
		}},
		{"HTTP to an allowed address with another Host", func() error { return h.says(web, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n") }},
		{"HTTP with the host in the request's line", func() error { return h.says(web, "GET http://evil.test/ HTTP/1.1\r\nHost: shared.example\r\n\r\n") }},
		{"HTTP with two Hosts", func() error { return h.says(web, "GET / HTTP/1.1\r\nHost: shared.example\r\nHost: evil.test\r\n\r\n") }},
		{"HTTP of an odd method", func() error { return h.says(web, "FETCH / HTTP/1.1\r\nHost: evil.test\r\n\r\n") }},
		{"HTTP behind empty lines", func() error { return h.says(web, "\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n") }},
		{"HTTP without a Host", func() error { return h.says(web, "GET / HTTP/1.0\r\n\r\n") }},
		{"HTTP/2 without TLS", func() error { return h.says(web, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") }},
		{"another host in the second request", func() error { return h.second(web, "GET / HTTP/1.1\r\nHost: shared.example\r\n\r\n") }},
		{"another host behind a body of two lengths", func() error {
			return h.second(web, "POST / HTTP/1.1\r\nHost: shared.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
		}},
		{"HTTP/3 to an allowed address", func() error { return h.refused(h.echo("udp", at)) }},
	}
}

// second sends two requests on one connection, the second to another tenant.
func (h *hostile) second(to, first string) error {
	c, err := h.dial(context.Background(), "tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	io.WriteString(c, first+"GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
	all, err := io.ReadAll(c)
	if strings.Contains(string(all), "hello from evil.test") {
		return nil
	}
	return fmt.Errorf("%d bytes of answers: %w", len(all), errors.Join(err, errSent))
}
