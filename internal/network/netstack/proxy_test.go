package netstack

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"holt"
)

const value = "sk-0123456789abcdef"

// client is an HTTP client in a guest that uses the proxy and trusts some CAs.
func (g *guest) client(roots *x509.CertPool, proxy bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(to)
		if all, _ := g.addresses(host); len(all) > 0 && net.ParseIP(host) == nil {
			to = net.JoinHostPort(all[0], port)
		}
		return g.dial(to)
	}}
	if proxy {
		tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: ProxyName + ":3128"})
	}
	g.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// do makes a request and returns status, header and body.
func (g *guest) do(c *http.Client, method, address string, header ...string) (int, http.Header, string) {
	g.t.Helper()
	q, err := http.NewRequest(method, address, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, one := range header {
		key, value, _ := strings.Cut(one, ": ")
		q.Header.Set(key, value)
	}
	a, err := c.Do(q)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		g.t.Errorf("%s %s: %v", method, address, err)
	}
	return a.StatusCode, a.Header, string(b)
}

// raw returns the raw response to a request to api.test through the proxy.
func (g *guest) raw(roots *x509.CertPool, path string) string {
	g.t.Helper()
	conn, err := g.dial("10.0.2.2:3128")
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(conn, "CONNECT api.test:443 HTTP/1.1\r\n\r\n")
	if a, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil); err != nil || a.StatusCode != 200 {
		g.t.Fatalf("CONNECT: %v, %v", a, err)
	}
	c := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "api.test"})
	io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n")
	b, err := io.ReadAll(c)
	if err != nil {
		g.t.Errorf("%s: %v", path, err)
	}
	return string(b)
}

func (w *world) secrets(s *Stack, all ...holt.HostSecret) {
	w.t.Helper()
	parsed, err := ParseSecrets(all)
	if err != nil {
		w.t.Fatal(err)
	}
	s.SetSecrets(parsed)
}

// proxyWorld is a world with a site whose certificates the stack trusts, and a
// guest that trusts only the computer's CA.
func proxyWorld(t *testing.T) (w *world, at *site, s *Stack, g *guest, trusting *x509.CertPool) {
	if w = inWorld(t); w == nil {
		return
	}
	at = w.site()
	for _, name := range []string{"api.test", "x.api.test", "other.test"} {
		w.name(name, "A "+shared)
	}
	certificate, key, err := NewCA("curie")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	s = w.stack(open, Options{CA: ca, Roots: at.roots})
	g = w.attach(s)
	code, _, body := g.do(g.client(nil, false), "GET", "http://holt.internal/ca.pem")
	if code != 200 || body != string(certificate) {
		t.Fatalf("ca.pem: %d %s", code, body)
	}
	trusting = x509.NewCertPool()
	trusting.AppendCertsFromPEM([]byte(body))
	return w, at, s, g, trusting
}

// TestSecret: the proxy adds secrets only to TLS requests to their hosts; the
// guest never sees them.
func TestSecret(t *testing.T) {
	w, at, s, g, trusting := proxyWorld(t)
	if w == nil {
		return
	}
	c := g.client(trusting, true)
	direct := g.client(at.roots, true)
	for _, one := range []struct {
		say    string
		secret holt.HostSecret
		client *http.Client
		to     string
		sends  []string
		header string // that the site should hear
		want   string
	}{
		{"bearer", holt.HostSecret{Host: "API.test", Value: value}, c, "https://api.test/", nil, "Authorization", "Bearer " + value},
		{"instead of what the guest sends", holt.HostSecret{Host: "api.test", Value: value}, c, "https://api.test/", []string{"Authorization: mine"}, "Authorization", "Bearer " + value},
		{"named header", holt.HostSecret{Host: "api.test", Header: "x-api-key", Value: value}, c, "https://api.test/", nil, "X-Api-Key", value},
		{"placeholder", holt.HostSecret{Host: "api.test", Placeholder: "HOLT_TOKEN", Value: value}, c, "https://api.test/", []string{"X-Token: token HOLT_TOKEN!"}, "X-Token", "token " + value + "!"},
		{"placeholder in Basic", holt.HostSecret{Host: "api.test", Placeholder: "HOLT_TOKEN", Value: value}, c, "https://api.test/",
			[]string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:HOLT_TOKEN"))}, "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+value))},
		{"at its port", holt.HostSecret{Host: "api.test:8443", Value: value}, c, "https://api.test:8443/", nil, "Authorization", "Bearer " + value},
		{"at another port", holt.HostSecret{Host: "api.test:8443", Value: value}, direct, "https://api.test/", nil, "Authorization", ""},
		{"name below", holt.HostSecret{Host: "api.test", Value: value}, direct, "https://x.api.test/", nil, "Authorization", ""},
		{"another tenant", holt.HostSecret{Host: "api.test", Value: value}, direct, "https://other.test/", nil, "Authorization", ""},
		{"plain, not granted", holt.HostSecret{Host: "api.test", Value: value}, c, "http://api.test/", nil, "Authorization", ""},
		{"plain, granted", holt.HostSecret{Host: "api.test", Value: value, Plain: true}, c, "http://api.test/", nil, "Authorization", "Bearer " + value},
		{"without the proxy", holt.HostSecret{Host: "api.test", Value: value}, g.client(at.roots, false), "https://api.test/", nil, "Authorization", ""},
	} {
		w.secrets(s, one.secret)
		code, header, body := g.do(one.client, "GET", one.to, one.sends...)
		u, _ := url.Parse(one.to)
		if code != 200 || body != "hello from "+u.Host+"\n" {
			t.Errorf("%s: %d %s", one.say, code, body)
		}
		if got := at.last().Get(one.header); got != one.want {
			t.Errorf("%s: the site heard %q", one.say, got)
		}
		if all := fmt.Sprint(header, body); strings.Contains(all, value) {
			t.Errorf("%s: the guest saw it: %s", one.say, all)
		}
		one.client.CloseIdleConnections()
	}
	if v := s.Traffic(); len(v) == 0 || v[0].Destination != "api.test" || v[0].Sent == 0 {
		t.Errorf("counted: %+v", v)
	}
}

// TestSecretIsNotRevealed: attempts of a guest to see or misuse a secret.
func TestSecretIsNotRevealed(t *testing.T) {
	w, at, s, g, trusting := proxyWorld(t)
	if w == nil {
		return
	}
	c := g.client(trusting, true)
	w.secrets(s, holt.HostSecret{Host: "api.test", Value: value})
	if code, header, _ := g.do(c, "GET", "https://api.test/back"); code != 200 || header.Get("X-Back") != "Bearer ***" {
		t.Errorf("a server that says it back: %d %v", code, header)
	}
	early, trailer := g.raw(trusting, "/early"), g.raw(trusting, "/trailer")
	if strings.Contains(early+trailer, value) || !strings.Contains(early, "Link: Bearer ***") || !strings.Contains(trailer, "X-Announced: Bearer ***") || !strings.Contains(trailer, "X-Other: Bearer ***") {
		t.Errorf("one that says it before its answer, or behind:\n%s\n%s", early, trailer)
	}
	for _, address := range []string{"https://api.test/", "http://api.test/"} {
		if code, _, body := g.do(c, "TRACE", address); code != http.StatusMethodNotAllowed {
			t.Errorf("TRACE of %s: %d %s", address, code, body)
		}
	}
	// The client follows a redirect: the request to the other host has no secret.
	both := x509.NewCertPool()
	both.AddCert(s.minter.Load().leaf)
	if code, _, body := g.do(g.client(both, true), "GET", "https://api.test/redirect?to=http://other.test/"); code != 200 || body != "hello from other.test\n" || at.last().Get("Authorization") != "" {
		t.Errorf("a redirect: %d %s, %v", code, body, at.last())
	}
	q, _ := http.NewRequest("GET", "https://api.test/", nil)
	q.Host = "other.test"
	if a, err := c.Do(q); err != nil || a.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another host inside: %v, %v", a, err)
	}
	w.policy(s, holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"other.test"}})
	c.CloseIdleConnections()
	if code, _, body := g.do(c, "GET", "https://api.test/"); code != 0 || !strings.Contains(body, notPermitted) {
		t.Errorf("against the policy: %d %s", code, body)
	}
	// A service of the host is reached directly, without a secret: nothing listens at this port.
	w.secrets(s, holt.HostSecret{Host: "api.test", Value: value}, holt.HostSecret{Host: HostName + ":8443", Value: value})
	if code, _, body := g.do(c, "GET", "https://"+HostName+":8443/"); code != 0 || !strings.Contains(body, notPermitted) {
		t.Errorf("a port of the host that is not granted: %d %s", code, body)
	}
	w.policy(s, holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{HostName + ":8443"}})
	if code, _, body := g.do(c, "GET", "https://"+HostName+":8443/"); code != http.StatusBadGateway {
		t.Errorf("one that is: %d %s", code, body)
	}
	w.policy(s, open)
	// A server with a wrong certificate gets no secret.
	heard := at.times()
	at.certified(t, "somebody else")
	s.web.transport.CloseIdleConnections()
	if code, _, body := g.do(c, "GET", "https://api.test/"); code != http.StatusBadGateway || !strings.Contains(body, "unknown authority") || at.times() != heard {
		t.Errorf("a server with a false certificate: %d %s", code, body)
	}
}

// TestSecretInBasic: the base64 of Basic credentials with a secret is masked too.
func TestSecretInBasic(t *testing.T) {
	w, at, s, g, trusting := proxyWorld(t)
	if w == nil {
		return
	}
	c, basic := g.client(trusting, true), func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	for _, one := range []struct {
		secret holt.HostSecret
		sends  []string
		hears  string
	}{
		{holt.HostSecret{Host: "api.test", Placeholder: "HOLT_TOKEN", Value: value}, []string{"Authorization: " + basic("me:HOLT_TOKEN")}, basic("me:" + value)},
		{holt.HostSecret{Host: "api.test", Placeholder: "HOLT_TOKEN", Value: "short"}, []string{"Authorization: " + basic("me:HOLT_TOKEN")}, basic("me:short")},
		{holt.HostSecret{Host: "api.test", Header: "Authorization", Value: basic("me:" + value)}, nil, basic("me:" + value)},
	} {
		w.secrets(s, one.secret)
		code, header, body := g.do(c, "GET", "https://api.test/back", one.sends...)
		if code != 200 || at.last().Get("Authorization") != one.hears {
			t.Fatalf("%d %s; the site heard %v", code, body, at.last())
		}
		_, made, _ := strings.Cut(one.hears, " ")
		if back := header.Get("X-Back") + " " + header.Get("X-Code"); strings.Contains(back, strings.TrimRight(made, "=")) || !strings.Contains(back, masked) {
			t.Errorf("a server that says it back: %s", back)
		}
	}
}

// TestSecretsGrow: placeholders that would exceed the maximum header are
// refused, without using more memory.
func TestSecretsGrow(t *testing.T) {
	w, at, s, g, trusting := proxyWorld(t)
	if w == nil {
		return
	}
	c := g.client(trusting, true)
	long := strings.Repeat("x", maxSecret)
	w.secrets(s, holt.HostSecret{Host: "api.test", Placeholder: "HOLT_TOKEN", Value: long})
	if code, _, body := g.do(c, "GET", "https://api.test/", "X-Token: HOLT_TOKEN"); code != 200 || at.last().Get("X-Token") != long {
		t.Errorf("one: %d %s", code, body)
	}
	heard := at.times()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, one := range []string{
		strings.Repeat("HOLT_TOKEN", 5000), "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+strings.Repeat("HOLT_TOKEN", 3000))),
	} {
		code, _, body := g.do(c, "POST", "https://api.test/", "X-Token: "+one)
		if code != http.StatusRequestHeaderFieldsTooLarge || !strings.Contains(body, "256 KiB") || strings.Contains(body, "xxx") {
			t.Errorf("many: %d %s", code, body)
		}
	}
	var fields []string // each but a little
	for i := range 20 {
		fields = append(fields, fmt.Sprintf("X-Token-%d: HOLT_TOKEN", i))
	}
	if code, _, body := g.do(c, "GET", "https://api.test/", fields...); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("many fields: %d %s", code, body)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 16<<20 {
		t.Errorf("%d MiB", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
	if at.times() != heard {
		t.Error("the site heard of it")
	}
	if code, _, body := g.do(c, "GET", "https://api.test/"); code != 200 {
		t.Errorf("afterwards: %d %s", code, body)
	}
	// Values that contain placeholders of other secrets.
	all := []holt.HostSecret{}
	for i := range maxSecrets {
		all = append(all, holt.HostSecret{Host: "api.test", Placeholder: fmt.Sprintf("HOLT_%03d", i), Value: strings.Repeat(fmt.Sprintf("HOLT_%03d", i+1), 1000)})
	}
	w.secrets(s, all...)
	if code, _, body := g.do(c, "GET", "https://api.test/", "X-Token: HOLT_000"); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("secrets of secrets: %d %s", code, body)
	}
}

// TestProxyStreams: bodies of any size are streamed both ways, and tunnels end with the policy.
func TestProxyStreams(t *testing.T) {
	w, _, s, g, trusting := proxyWorld(t)
	if w == nil {
		return
	}
	w.secrets(s, holt.HostSecret{Host: "api.test", Value: value})
	for _, address := range []string{"https://api.test/echo", "http://other.test/echo"} {
		const size = 4 << 20
		in, out := io.Pipe()
		var back http.Response
		done := make(chan error, 1)
		go func() {
			a, err := g.client(trusting, true).Post(address, "", in)
			if err == nil {
				back = *a
				var n int64
				if n, err = io.Copy(io.Discard, a.Body); n != size {
					err = errors.Join(err, fmt.Errorf("%d bytes came back", n))
				}
			}
			done <- err
		}()
		io.CopyN(out, zeros{}, size)
		out.Close()
		if err := <-done; err != nil || back.StatusCode != 200 {
			t.Errorf("%s: %v %v", address, back.Status, err)
		}
	}
	conn, err := g.dial("10.0.2.2:3128")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(conn, "CONNECT other.test:80 HTTP/1.1\r\n\r\n")
	r := bufio.NewReader(conn)
	if a, err := http.ReadResponse(r, nil); err != nil || a.StatusCode != 200 {
		t.Fatalf("CONNECT: %v, %v", a, err)
	}
	w.policy(s, holt.NetworkPolicy{Egress: holt.EgressOff})
	if _, err := r.ReadByte(); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("a tunnel after the policy has changed: %v", err)
	}
}

// TestHostRemovedFromPolicy: of responses from one address, those whose host is removed
// from the policy end; a kept-alive connection works for another request after
// its name has expired.
func TestHostRemovedFromPolicy(t *testing.T) {
	w, _, s, g, _ := proxyWorld(t)
	if w == nil {
		return
	}
	allow := func(all ...string) { w.policy(s, holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: all}) }
	allow("api.test", "other.test")
	answers := map[string]io.Reader{}
	for _, host := range []string{"api.test", "other.test"} {
		a, err := g.client(nil, false).Get("http://" + host + "/slow")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		answers[host] = a.Body
		if _, err := io.ReadFull(a.Body, make([]byte, len("begun\n"))); err != nil {
			t.Fatal(err)
		}
	}
	c := g.client(nil, false)
	if code, _, body := g.do(c, "GET", "http://api.test/"); code != 200 {
		t.Fatal(body)
	}
	s.names.age(mostKept)
	s.web.transport.CloseIdleConnections() // the server's end
	allow("api.test")
	if code, _, body := g.do(c, "GET", "http://api.test/"); code != 200 {
		t.Errorf("another request: %d %s", code, body)
	}
	if _, err := answers["other.test"].Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "deadline") {
		t.Errorf("the answer of a host that was taken away: %v", err)
	}
	done := make(chan error, 1)
	go func() { _, err := answers["api.test"].Read(make([]byte, 1)); done <- err }()
	select {
	case err := <-done:
		t.Errorf("the answer of one that is allowed: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestInternal: the handler of the stack serves holt.internal, with and without the proxy.
func TestInternal(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	s := w.stack(holt.NetworkPolicy{Egress: holt.EgressOff}, Options{Internal: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s of %s", r.URL.Path, r.Host)
	})})
	g := w.attach(s)
	for _, proxy := range []bool{false, true} {
		if code, _, body := g.do(g.client(nil, proxy), "GET", "http://holt.internal/me"); code != 200 || body != "/me of holt.internal" {
			t.Errorf("proxy %v: %d %s", proxy, code, body)
		}
	}
}

// TestFork: a guest that continues with another stack works there at once,
// though it sends no ARP requests, and its open connections are reset.
func TestFork(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	_, g := w.start(open)
	c, err := g.dial("93.184.216.34:7")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := there(c); err != nil {
		t.Fatal(err)
	}
	g.unplug()
	g.plug(w.stack(open, Options{}))
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if err := there(c); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("a connection of before: %v", err)
	}
	if err := g.echo("tcp", "93.184.216.34", time.Second); err != nil {
		t.Errorf("a new one: %v", err)
	}
}

// TestReset: connections that a restarted guest does not know are closed.
func TestReset(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	s, g := w.start(open)
	s.idle = 40 * time.Millisecond
	c, err := g.dial("93.184.216.34:7")
	if err != nil {
		t.Fatal(err)
	}
	if err := there(c); err != nil {
		t.Fatal(err)
	}
	g.unplug()
	w.attach(s)
	for began := time.Now(); s.flows.taken(inward)+s.flows.taken(outward) > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("it stays open")
		}
	}
}

// TestParseSecrets: invalid secrets are refused, without their values in the error.
func TestParseSecrets(t *testing.T) {
	for _, one := range []holt.HostSecret{
		{Host: "", Value: value}, {Host: "*.test", Value: value}, {Host: "10.1.2.3", Value: value}, {Host: "a.test:0", Value: value}, {Host: "a.test:x", Value: value},
		{Host: "a.test"}, {Host: "a.test", Value: value + "\r\nX: y"}, {Host: "a.test", Value: strings.Repeat("x", maxSecret+1)},
		{Host: "a.test", Value: value, Header: "a b"}, {Host: "a.test", Value: value, Header: "host"}, {Host: "a.test", Value: value, Placeholder: "x"},
	} {
		_, err := ParseSecrets([]holt.HostSecret{one})
		if holt.CodeOf(err) != holt.InvalidArgument || strings.Contains(err.Error(), value) || strings.Contains(holt.AsError(err).Hint, value) {
			t.Errorf("%+v: %v", one, err)
		}
	}
	short, err := ParseSecrets([]holt.HostSecret{{Host: "a.test", Value: "t"}})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Content-Type": {"text/plain"}}
	if mask(hidden(short.all, nil), h); h.Get("Content-Type") != "text/plain" {
		t.Errorf("a short secret spoils headers: %v", h)
	}
	if _, err := ParseSecrets(make([]holt.HostSecret, maxSecrets+1)); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("many: %v", err)
	}
}
