package netstack

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"holt"
)

// fuzzed returns a stack for all inputs of a fuzz test.
func fuzzed(f *testing.F, allow ...string) *Stack {
	f.Helper()
	s, err := New(Options{Log: quiet, Upstreams: []string{"127.0.0.1:1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Close)
	p, err := ParsePolicy(holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: allow})
	if err != nil {
		f.Fatal(err)
	}
	s.SetPolicy(p)
	return s
}

// FuzzFrames: with any frames the stack does not panic, and it accepts only frames of the guest.
func FuzzFrames(f *testing.F) {
	s := fuzzed(f)
	ip := func(p rawIP) []byte {
		return append([]byte("\x52\x55\x0a\x00\x02\x02\x52\x54\x00\x68\x6f\x6c\x08\x00"), p.bytes()...)
	}
	frames := [][]byte{
		ip(rawIP{to: "10.0.2.3", protocol: 17, payload: udpPacket(4242, 53, "no question")}),
		ip(rawIP{to: "10.0.2.2", protocol: 6, payload: synPacket(Guest.String(), "10.0.2.2", 1, 3128, 2)}),
		ip(rawIP{to: "10.0.2.2", protocol: 1, payload: []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}}),
		ip(rawIP{to: "93.184.216.34", protocol: 17, fragment: 0x2000, payload: make([]byte, 64)}),
		ip(rawIP{to: "93.184.216.34", protocol: 1, payload: []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}}),
		ip(rawIP{to: "93.184.216.34", protocol: 1, fragment: 0x2000, payload: []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}}),
		ip(rawIP{to: "93.184.216.34", protocol: 1, fragment: 1, payload: []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}}),
		ip(rawIP{to: "93.184.216.34", protocol: 1, payload: []byte{13, 0}}),
		ip(rawIP{to: "93.184.216.34", protocol: 132, payload: []byte{1}}),
		ip(rawIP{to: "10.0.2.2", options: []byte{131, 7, 4, 10, 1, 2, 3, 0}, protocol: 17, payload: udpPacket(1, 2, "")}),
		[]byte("\x52\x55\x0a\x00\x02\x02\x52\x54\x00\x68\x6f\x6c\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01\x52\x54\x00\x68\x6f\x6c\x0a\x00\x02\x0f\x00\x00\x00\x00\x00\x00\x0a\x00\x02\x02"),
	}
	for _, one := range frames {
		f.Add(append([]byte{0, 0, byte(len(one) >> 8), byte(len(one))}, one...))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0x50, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		receive(bytes.NewReader(b), s.link, s.neighbourly())
		s.link.Drain()
		if admitted(b) && (len(b) < 34 || b[12] != 8) {
			t.Errorf("%x was admitted", b)
		}
	})
}

// FuzzQuestion: each query gets a valid answer, and only allowed names are sent upstream.
func FuzzQuestion(f *testing.F) {
	s := fuzzed(f)
	for _, name := range []string{"example.com.", "holt.internal.", ".", "a..b.", "db.corp.", "1.0-31.168.192.in-addr.arpa.", "com."} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeANY, dns.TypeHTTPS, dns.TypePTR} {
			q := new(dns.Msg)
			q.SetQuestion(name, kind)
			q.SetEdns0(1232, true)
			b, _ := q.Pack()
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q := new(dns.Msg)
		if q.Unpack(b) != nil {
			return
		}
		a := s.resolver.answer(context.Background(), q)
		if a == nil || !a.Response || a.Id != q.Id {
			t.Fatalf("%v is answered %v", q, a)
		}
		if _, err := a.Pack(); err != nil && len(q.Question) <= 1 {
			t.Errorf("%v is answered with what cannot be sent: %v", q, err)
		}
	})
}

// FuzzAnswer: for any upstream answer the guest gets no address that it may not reach.
func FuzzAnswer(f *testing.F) {
	s := fuzzed(f, "*.example", "10.1.0.0/16")
	for _, records := range [][]string{{"A 93.184.216.34"}, {"A 169.254.169.254", "A 1.1.1.1"}, {"CNAME b.example.", "A 10.2.0.1"}, {"AAAA ::1", "HTTPS 1 . ipv4hint=127.0.0.1", "TXT x"}, {"SRV 0 0 389 dc1.corp.", "PTR db.lan.", "NAPTR 1 1 \"\" \"\" \"\" x.home.arpa."}} {
		a := new(dns.Msg)
		a.SetQuestion("a.example.", dns.TypeA)
		a.Response = true
		for _, one := range records {
			rr, err := dns.NewRR("a.example. 1 IN " + one)
			if err != nil {
				f.Fatal(err)
			}
			a.Answer = append(a.Answer, rr)
		}
		b, _ := a.Pack()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, q := new(dns.Msg), new(dns.Msg)
		if a.Unpack(b) != nil {
			return
		}
		q.SetQuestion("a.example.", dns.TypeA)
		out := s.resolver.sift(q, a, "a.example")
		if len(out.Ns)+len(out.Extra) > 1 {
			t.Errorf("more than answers: %v", out)
		}
		for _, rr := range out.Answer {
			switch rr := rr.(type) {
			case *dns.A:
				ip, _ := netip.AddrFromSlice(rr.A.To4())
				if !s.mayReach(s.newFlow(netip.AddrPortFrom(ip, 443), nil)) {
					t.Errorf("%v is told", rr)
				}
			case *dns.CNAME, *dns.DNAME: // lead to an address
			default:
				if !slices.Contains(resolvedTypes, rr.Header().Rrtype) || !s.mayTell(s.policy.Load(), rr) {
					t.Errorf("%v is told", rr)
				}
			}
		}
	})
}

// heardByTLS returns the name that Go's own server finds in a ClientHello, if it accepts it.
func heardByTLS(b []byte) (name string, ok bool) {
	tls.Server(overBytes{Reader: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, errors.New("enough")
	}}).Handshake()
	return name, ok
}

type overBytes struct {
	net.Conn
	io.Reader
}

func (o overBytes) Read(b []byte) (int, error)  { return o.Reader.Read(b) }
func (o overBytes) Write(b []byte) (int, error) { return len(b), nil }

// hello returns the ClientHello of a Go client.
func hello(name string) []byte {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		tls.Client(far, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		far.Close()
	}()
	b := make([]byte, 4096)
	n, _ := near.Read(b)
	return b[:n]
}

// FuzzHello: the result does not depend on how the bytes arrive, and a TLS name
// is the one that a server finds.
func FuzzHello(f *testing.F) {
	for _, one := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "SSH-2.0-x\r\n", "PRI * HTTP/2.0\r\n\r\n", "\r\n\r\nFETCH /", "\x80\x2e\x01\x03\x01", "0032git-upload-pack /a\x00"} {
		f.Add([]byte(one))
	}
	whole := hello("api.example.com")
	f.Add(whole)
	f.Add(hello(""))
	f.Add(append([]byte{22, 3, 1, 0, 1, 1, 22, 3, 1, whole[3], whole[4] - 1}, whole[6:]...)) // in two records
	f.Fuzz(func(t *testing.T, b []byte) {
		said := understand(b)
		if len(b) > 0 {
			if before := understand(b[:len(b)-1]); before.speech != unsure && before != said {
				t.Errorf("%v became %v", before, said)
			}
		}
		if name, ok := heardByTLS(b); ok {
			want, valid := canonical(name)
			switch {
			case said.speech == broken || said.speech == unsure && len(b) > maxHello:
			case said.speech != spokenTLS:
				t.Errorf("a server hears %q, and we %v", name, said)
			case valid && said.name != want, !valid && said.name != "":
				t.Errorf("a server hears %q, and we %q", name, said.name)
			}
		}
	})
}

// FuzzPolicy: a valid policy never allows the loopback or an address that it does not name.
func FuzzPolicy(f *testing.F) {
	for _, one := range []string{"example.com", "*.example.com:443", "10.0.0.0/8", "0.0.0.0/0:80", "host.holt.internal:8080", "127.0.0.1", "::1", "192.0.2.1:"} {
		f.Add(one)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		p, err := ParsePolicy(holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{entry}})
		if err != nil {
			if holt.CodeOf(err) != holt.InvalidArgument || len(err.Error()) > 600 {
				t.Errorf("%q: %v", entry, err)
			}
			return
		}
		for _, ip := range []string{"127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1"} {
			if p.granted(netip.MustParseAddr(ip), 0, false) {
				t.Errorf("%q opens %s", entry, ip)
			}
		}
		if p.granted(netip.MustParseAddr("169.254.169.254"), 0, false) && !strings.HasPrefix(entry, "169.254.") {
			t.Errorf("%q opens the metadata", entry)
		}
	})
}
