package netstack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"holt"
)

// Addresses behind a router of the internet: it drops packets whose time to live ends, and has no route to the second.
const (
	routed     = "151.101.9.9"
	unroutable = "151.101.9.10"
)

// pings adds routes for pings, and permits the host to send them.
func (w *world) pings(groups string) {
	w.t.Helper()
	w.pingGroups(groups)
	w.there(func() {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
			w.t.Error(err)
		}
		w.ip("route add " + routed + "/32 via " + nearInternet)
		w.ip("route add unreachable " + unroutable + "/32")
	})
}

// pingGroups sets the groups of the host that may ping.
func (w *world) pingGroups(groups string) {
	w.t.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte(groups), 0); err != nil {
		w.t.Fatal(err)
	}
}

// heard is an ICMP message that a machine received.
type heard struct {
	kind, code byte
	from       string
	ttl        byte
	rest       []byte // behind the first 4 bytes
	took       time.Duration
}

func (h heard) String() string { return fmt.Sprintf("type %d code %d from %s", h.kind, h.code, h.from) }

// ping sends a packet from the machine and returns the first ICMP message that is about it.
func (m *machine) ping(to string, id, sequence uint16, payload []byte, ttl int, options ...func(fd int)) (heard, error) {
	message := make([]byte, 8, 8+len(payload))
	message[0] = byte(header.ICMPv4Echo)
	binary.BigEndian.PutUint16(message[4:], id)
	binary.BigEndian.PutUint16(message[6:], sequence)
	message = append(message, payload...)
	binary.BigEndian.PutUint16(message[2:], sum(append(message, make([]byte, len(message)%2)...)))
	return m.send(unix.IPPROTO_ICMP, to, message, ttl, options...)
}

func (m *machine) send(protocol int, to string, message []byte, ttl int, options ...func(fd int)) (h heard, err error) {
	m.in(func() { h, err = sendAndHear(protocol, to, message, ttl, options) })
	return h, err
}

func sendAndHear(protocol int, to string, message []byte, ttl int, options []func(fd int)) (h heard, err error) {
	in, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return h, err
	}
	defer unix.Close(in)
	out, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return h, err
	}
	defer unix.Close(out)
	for _, o := range options {
		o(out)
	}
	limit := unix.NsecToTimeval(int64(2 * time.Second))
	err = errors.Join(setTTL(out, uint8(ttl)), unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
	began := time.Now()
	if err = errors.Join(err, unix.Sendto(out, message, 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(to).As4()})); err != nil {
		return h, err
	}
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(in, b, 0)
		if err == unix.EINTR { // the runtime's signals; a socket with a time limit is not restarted
			continue
		}
		if err != nil {
			return h, err
		}
		ip := header.IPv4(b[:n])
		icmp := ip.Payload()
		h = heard{icmp[0], icmp[1], addrOf(ip.SourceAddress()).String(), ip.TTL(), bytes.Clone(icmp[4:]), time.Since(began)}
		if h.kind == byte(header.ICMPv4EchoReply) && bytes.Equal(h.rest[:4], message[4:8]) {
			return h, nil
		}
		if h.kind == byte(header.ICMPv4DstUnreachable) || h.kind == byte(header.ICMPv4TimeExceeded) {
			about := header.IPv4(h.rest[4:])
			if addrOf(about.DestinationAddress()).String() == to && bytes.Equal(h.rest[4+about.HeaderLength():][:8], message[:8]) {
				return h, nil
			}
		}
	}
}

// TestPing: a permitted ping gets the answer of its destination. ICMP errors come from the router that sent them. Refused
// pings get the error prohibited at once.
func TestPing(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	w.pings("0 0")
	s := w.stack(holt.NetworkPolicy{Egress: holt.EgressOpen}, Options{})
	m := w.machine(s)
	whether := func(fragment int) []func(int) {
		return []func(int){func(fd int) { unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, fragment) }}
	}
	whole := bytes.Repeat([]byte("ping"), 4000)
	const (
		answer, unreachable, exceeded = 0, 3, 11
	)
	for i, c := range []struct {
		what, to   string
		payload    []byte
		ttl        int
		kind, code byte
		from       string
		options    []func(int)
	}{
		{"somebody", public[0], []byte("hello"), 64, answer, 0, public[0], nil},
		{"nothing to say", public[0], nil, 64, answer, 0, public[0], nil},
		{"as much as the link takes", public[1], whole, 64, answer, 0, public[1], whether(unix.IP_PMTUDISC_DONT)},
		{"in pieces", public[1], bytes.Repeat(whole, 4)[:60001], 64, answer, 0, public[1], whether(unix.IP_PMTUDISC_DONT)},
		{"the gateway", Gateway.String(), []byte("hello"), 64, answer, 0, Gateway.String(), nil},
		{"too long to pass whole", public[0], whole, 64, unreachable, 4, Gateway.String(), whether(unix.IP_PMTUDISC_PROBE)},
		{"one hop", public[0], []byte("hello"), 1, exceeded, 0, Gateway.String(), nil},
		{"two hops, and who is there", public[0], []byte("hello"), 2, answer, 0, public[0], nil},
		{"two hops, and a router", routed, []byte("hello"), 2, exceeded, 0, farInternet, nil},
		{"no way", unroutable, []byte("hello"), 64, unreachable, 1, farInternet, nil},
		{"metadata", "169.254.169.254", []byte("hello"), 64, unreachable, 13, Gateway.String(), nil},
		{"beside the host", "192.168.7.7", []byte("hello"), 64, unreachable, 13, Gateway.String(), nil},
		{"the host", onHost[2], []byte("hello"), 64, unreachable, 13, Gateway.String(), nil},
		{"the host's loopback", "0.1.2.3", []byte("hello"), 64, unreachable, 13, Gateway.String(), nil},
	} {
		h, err := m.ping(c.to, 0x4242, uint16(i), c.payload, c.ttl, c.options...)
		if err != nil || h.kind != c.kind || h.code != c.code || h.from != c.from {
			t.Errorf("%s: %v, %v; want type %d code %d from %s", c.what, h, err, c.kind, c.code, c.from)
		}
		if err == nil && h.kind == answer && !bytes.Equal(h.rest[4:], c.payload) {
			t.Errorf("%s: another payload came back, of %d bytes", c.what, len(h.rest)-4)
		}
		if h.took > time.Second {
			t.Errorf("%s: the answer took %v", c.what, h.took)
		}
	}
	if w.leaks.Load() != 0 {
		t.Error("a forbidden address was reached")
	}
	var pinged, refused int64
	for _, one := range s.Traffic() {
		if one.Destination == public[0] {
			pinged = one.Sent
		}
		refused += one.Refused
	}
	if pinged == 0 || refused != 4 {
		t.Errorf("%d bytes of pings are counted, and %d refusals: %+v", pinged, refused, s.Traffic())
	}
	w.policy(s, holt.NetworkPolicy{Egress: holt.EgressOff}) // ends the open exchange
	if h, err := m.ping(public[0], 0x4242, 100, nil, 64); err != nil || h.kind != unreachable || h.code != 13 {
		t.Errorf("after the policy is off: %v, %v", h, err)
	}
}

// TestPingPolicy: a ping is permitted if any port of the address is allowed, by name or by network. If the host does not
// permit pings they get the error prohibited.
func TestPingPolicy(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	w.pings("0 0")
	w.name("allowed.example", "A "+public[0])
	s := w.stack(holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"allowed.example:443", "192.168.7.7:80"}}, Options{})
	m := w.machine(s)
	for _, c := range []struct {
		what, to string
		before   func()
		kind     byte
	}{
		{"a name that was not asked for", public[0], nil, 3},
		{"a name's address", public[0], func() { s.names.note("allowed.example", netip.MustParseAddr(public[0]), time.Minute) }, 0},
		{"another address", public[1], nil, 3},
		{"an address that is allowed", "192.168.7.7", nil, 0},
		{"another one beside the host", "172.16.5.5", nil, 3},
		{"while the host lets nobody ping", public[0], func() { w.pingGroups("1 0"); s.flows.end(func(*flow) bool { return true }) }, 3},
	} {
		if c.before != nil {
			c.before()
		}
		h, err := m.ping(c.to, 7, 1, []byte("hello"), 64)
		for deadline := time.Now().Add(5 * time.Second); c.what == "while the host lets nobody ping" && h.kind == 0 && time.Now().Before(deadline); {
			h, err = m.ping(c.to, 7, 1, []byte("hello"), 64) // its exchange ends in a snapshot
		}
		if err != nil || h.kind != c.kind || c.kind == 3 && (h.code != 13 || h.from != Gateway.String()) {
			t.Errorf("%s: %v, %v", c.what, h, err)
		}
	}
	for _, port := range []string{public[0] + ":0"} { // allowed are 443, and pings
		if err := m.echo("udp", port); err == nil {
			t.Errorf("UDP to %s passes", port)
		}
	}
}

// TestOtherProtocols: unsupported protocols get the error prohibited. ICMP errors and multicast get no answer.
func TestOtherProtocols(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	w.pings("0 0")
	s := w.stack(holt.NetworkPolicy{Egress: holt.EgressOpen}, Options{})
	m := w.machine(s)
	if h, err := m.send(unix.IPPROTO_SCTP, public[0], []byte("12345678"), 64); err != nil || h.kind != 3 || h.code != 13 || h.from != Gateway.String() {
		t.Errorf("SCTP: %v, %v", h, err)
	}
	sent := func() uint64 { return uint64(s.link.NumQueued()) }
	before := sent()
	for _, p := range []rawIP{
		{to: "224.0.0.22", protocol: 2, payload: []byte("12345678")},
		{to: "255.255.255.255", protocol: 1, payload: []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}},
		{to: public[0], protocol: 1, payload: append([]byte{3, 1, 0, 0, 0, 0, 0, 0}, make([]byte, 28)...)},
		{to: public[0], protocol: 1, payload: []byte{0, 0, 0xff, 0xff, 0, 0, 0, 0}},
		{to: public[0], protocol: 1, payload: []byte{8, 0, 1, 2, 0, 0, 0, 0}}, // wrong checksum
		{to: public[0], protocol: 1, payload: []byte{8, 0, 0xf7}},
		{to: public[0], protocol: 1, fragment: 100, payload: []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}},
	} {
		if err := m.frame(uint16(header.IPv4ProtocolNumber), gatewayMAC, p.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if h, err := m.ping(public[0], 2, 2, nil, 64); err != nil || h.kind != 0 {
		t.Errorf("a ping behind them: %v, %v", h, err)
	}
	if sent() != before {
		t.Error("one of them was answered")
	}
}

// TestTrueDatagrams: errors about a datagram come from their source: a router if the time to live ends, the destination
// if no program listens, and the gateway if the policy refuses it.
func TestTrueDatagrams(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	w.pings("0 0")
	s := w.stack(holt.NetworkPolicy{Egress: holt.EgressOpen}, Options{})
	m := w.machine(s)
	for _, c := range []struct {
		what, to   string
		ttl        uint8
		kind, code byte
		from       string
		errno      error
	}{
		{"one hop", public[0] + ":33434", 1, 11, 0, Gateway.String(), syscall.EHOSTUNREACH},
		{"a router", routed + ":33435", 2, 11, 0, farInternet, syscall.EHOSTUNREACH},
		{"nobody listens", public[0] + ":33436", 64, 3, 3, public[0], syscall.ECONNREFUSED},
		{"no way", unroutable + ":33437", 64, 3, 1, farInternet, syscall.EHOSTUNREACH},
		{"refused", "169.254.169.254:53", 64, 3, 13, Gateway.String(), syscall.EHOSTUNREACH},
	} {
		var e icmpError
		var failed error
		m.in(func() { e, failed = datagramError(c.to, c.ttl) })
		if byte(e.kind) != c.kind || byte(e.code) != c.code || e.from.String() != c.from || !errors.Is(failed, c.errno) {
			t.Errorf("%s: type %d code %d from %s, %v; want type %d code %d from %s, %v", c.what, e.kind, e.code, e.from, failed, c.kind, c.code, c.from, c.errno)
		}
	}
	if err := m.echo("udp", public[0]+":7"); err != nil {
		t.Errorf("an exchange afterwards: %v", err)
	}
}

// datagramError sends a datagram and returns the ICMP error about it.
func datagramError(to string, ttl uint8) (e icmpError, failed error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return e, err
	}
	defer unix.Close(fd)
	at := netip.MustParseAddrPort(to)
	limit := unix.NsecToTimeval(int64(2 * time.Second))
	err = errors.Join(wantErrors(fd), setTTL(fd, ttl), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}))
	if err == nil {
		_, err = unix.Write(fd, []byte(strings.Repeat("probe ", 5)))
	}
	if err != nil {
		return e, err
	}
	b := make([]byte, 1500)
	for {
		if _, failed = unix.Read(fd, b); failed != unix.EINTR {
			break
		}
	}
	e, _, _ = nextError(fd, b)
	return e, failed
}
