package netstack

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/miekg/dns"
)

const maxTries = 4 // addresses of a name

// newTransport returns the transport of the proxy's requests. Its connections are subject to the policy, it verifies TLS,
// and it ignores the host's proxy settings.
func (s *Stack) newTransport(o Options) *http.Transport {
	return &http.Transport{
		DialContext:            s.dial,
		TLSClientConfig:        &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    headerLimit,
		DisableCompression:     true,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        keepWeb,
		MaxResponseHeaderBytes: maxAnswerHead,
		ExpectContinueTimeout:  headerLimit,
	}
}

// dial opens a connection for a request, to an address or a name.
func (s *Stack) dial(ctx context.Context, _, hostport string) (net.Conn, error) {
	if a, _ := ctx.Value(arrivalKey{}).(*arrival); a != nil && a.out != nil && a.out.flow.to.String() == hostport {
		if a.taken.CompareAndSwap(false, true) {
			return a.out, nil
		}
		return s.again(ctx, a.out.flow)
	}
	out, err := s.dialName(ctx, hostport)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// again opens another flow with the names of a former one: a guest with an open connection does not resolve the name again.
func (s *Stack) again(ctx context.Context, former *flow) (net.Conn, error) {
	out, err := s.open(ctx, former.to, "", former)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Stack) dialName(ctx context.Context, hostport string) (*outside, error) {
	host, port, err := splitPort(hostport)
	if err != nil {
		return nil, err
	}
	all, name, err := s.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	err = &refusal{name: host}
	for _, ip := range all[:min(len(all), maxTries)] {
		var out *outside
		if out, err = s.open(ctx, netip.AddrPortFrom(ip, port), name, nil); err == nil {
			return out, nil
		}
		if errors.Is(err, errNotAllowed) {
			err = &refusal{name: net.JoinHostPort(host, strconv.Itoa(int(port)))}
		}
	}
	return nil, err
}

func splitPort(hostport string) (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	return host, uint16(n), err
}

// lookup finds the addresses of a host by the guest's resolver. name is "" for an address.
func (s *Stack) lookup(ctx context.Context, host string) (all []netip.Addr, name string, err error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, "", nil
	}
	name, ok := canonical(host)
	if !ok {
		return nil, "", &refusal{why: fmt.Sprintf("%q is not a host name", clip(host))}
	}
	q := new(dns.Msg)
	q.SetQuestion(name+".", dns.TypeA)
	q.SetEdns0(dns.MinMsgSize, false)
	a := s.resolver.answer(ctx, q)
	if a == nil {
		return nil, "", errTooMany
	}
	for _, rr := range a.Answer {
		if rr, ok := rr.(*dns.A); ok {
			if ip, ok := netip.AddrFromSlice(rr.A.To4()); ok {
				all = append(all, ip)
			}
		}
	}
	if len(all) > 0 {
		return all, name, nil
	}
	if o := a.IsEdns0(); o != nil {
		for _, one := range o.Option {
			if e, ok := one.(*dns.EDNS0_EDE); ok && (e.InfoCode == edeBlocked || e.InfoCode == edeFiltered) {
				return nil, "", &refusal{why: e.ExtraText}
			}
		}
	}
	return nil, "", fmt.Errorf("look up %s: %s", name, dns.RcodeToString[a.Rcode])
}

// proxy answers requests to the proxy.
func (s *Stack) proxy(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		s.tunnel(w, r)
		return
	case r.Method == http.MethodTrace:
		http.Error(w, "holt: the proxy does not forward TRACE", http.StatusMethodNotAllowed)
		return
	case r.URL.Scheme != "http" || r.URL.Host == "":
		http.Error(w, "holt: this is an HTTP proxy: send requests for http://HOST/, or CONNECT HOST:PORT", http.StatusBadRequest)
		return
	}
	host, port := r.URL.Hostname(), r.URL.Port()
	if port == "" {
		port = "80"
	}
	name, _ := canonical(host)
	if port == "80" && (name == InternalName || name == S3Name || host == Gateway.String()) {
		s.internal.ServeHTTP(w, r)
		return
	}
	s.pass(w, r, outgoing{scheme: "http", host: r.Host, dial: net.JoinHostPort(host, port), secrets: s.secrets.Load().of(name, port, true)})
}

// tunnel answers CONNECT: with a connection or, for hosts with a secret, by interception.
func (s *Stack) tunnel(w http.ResponseWriter, r *http.Request) {
	host, port, err := splitPort(r.Host)
	if err != nil {
		http.Error(w, "holt: CONNECT needs HOST:PORT", http.StatusBadRequest)
		return
	}
	name, _ := canonical(host)
	if len(s.secrets.Load().of(name, strconv.Itoa(int(port)), false)) > 0 {
		s.intercept(w, r, name, port)
		return
	}
	out, err := s.dialName(r.Context(), r.Host)
	if err != nil {
		explainTunnel(w, r, err)
		return
	}
	in, err := hijack(w)
	if err != nil {
		out.Close()
		return
	}
	s.carry(in, out)
}

// intercept terminates TLS with a certificate for the host, and forwards requests with the host's secrets.
func (s *Stack) intercept(w http.ResponseWriter, r *http.Request, name string, port uint16) {
	at := net.JoinHostPort(name, strconv.Itoa(int(port)))
	ca := s.issuer.Load()
	if ca == nil {
		http.Error(w, "holt: this computer's network has no CA for a certificate of "+name, http.StatusBadGateway)
		return
	}
	if p := s.policy.Load(); !p.name(name) && !(name == HostName && p.onHost(port)) {
		s.count.refuse(name)
		explainTunnel(w, r, &refusal{name: name})
		return
	}
	certificate, err := ca.of(name)
	if err != nil {
		explain(w, r, err)
		return
	}
	in, err := hijack(w)
	if err != nil {
		return
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch said, _ := canonical(hostOf(r.Host)); {
		case r.Method == http.MethodTrace || r.Method == http.MethodConnect:
			http.Error(w, "holt: the proxy does not forward "+r.Method, http.StatusMethodNotAllowed)
		case said != name:
			http.Error(w, "holt: this connection is for requests to "+name, http.StatusMisdirectedRequest)
		default:
			s.pass(w, r, outgoing{scheme: "https", host: r.Host, dial: at, secrets: s.secrets.Load().of(name, strconv.Itoa(int(port)), false)})
		}
	})
	s.web.serve(tls.Server(&arrival{half: in, handler: handler}, &tls.Config{
		Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
	}))
}

// hijack answers CONNECT with success and takes the connection from the server.
func hijack(w http.ResponseWriter) (half, error) {
	c, b, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		c.Close()
		return nil, err
	}
	first, err := buffered(b.Reader)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &replay{half: c.(*arrival), first: first}, nil
}

// buffered returns the bytes that were read after a request.
func buffered(r *bufio.Reader) ([]byte, error) {
	b := make([]byte, r.Buffered())
	_, err := io.ReadFull(r, b)
	return b, err
}
