package preview

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	pebbledb "github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"

	"holt"
)

// authority is Let's Encrypt's CA for tests, on loopback. It checks every name at a port of the loopback.
func authority(t *testing.T, tlsPort int) http.Handler {
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)})
		}
		w.WriteMsg(m)
	})}
	go names.ActivateAndServe()
	t.Cleanup(func() { names.Shutdown() })
	quiet := log.New(io.Discard, "", 0)
	if os.Getenv("HOLT_TEST_LOG") != "" {
		quiet = log.New(os.Stderr, "authority ", 0)
	}
	db := pebbledb.NewMemoryStore()
	root := ca.New(quiet, db, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "default", ValidityPeriod: 3600}})
	proofs := va.New(quiet, 0, tlsPort, false, l.Addr().String(), db)
	front := wfe.New(quiet, db, proofs, root, []string{"pebble.letsencrypt.org"}, false, false, 1, 1)
	return front.Handler()
}

// TestACME: names of the daemon get a certificate at the first request. For other names none is requested.
func TestACME(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	w.set("einstein", 3000, true)
	if _, err := w.store.SetDomain(t.Context(), "einstein", "app.example.com", holt.PreviewDomainSpec{Port: 3000}); err != nil {
		t.Fatal(err)
	}
	var handler http.Handler
	directory := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	t.Cleanup(directory.Close)
	trusted := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: directory.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := TLS(TLSOptions{ACME: "you@example.com", CA: directory.URL + wfe.DirectoryPath, Root: trusted, Dir: filepath.Join(t.TempDir(), "certificates"), Store: w.store, Log: slog.New(slog.NewTextHandler(&w.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	addr := w.serve(Serving{TLS: config, API: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "the API") })})
	_, port, _ := net.SplitHostPort(addr)
	n, err := holt.ParsePort(port)
	if err != nil {
		t.Fatal(err)
	}
	handler = authority(t, n)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dialTo(addr), DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the names are checked below
	for host, want := range map[string]string{"app.example.com": "X-Forwarded-Host: app.example.com\n", "api.example.com": "the API"} {
		resp, err := client.Get("https://" + host + "/")
		if err != nil {
			t.Fatal(host, err, w.log.String())
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		cert := resp.TLS.PeerCertificates[0]
		if !strings.Contains(string(b), want) || cert.VerifyHostname(host) != nil || !strings.Contains(cert.Issuer.CommonName, "Pebble") {
			t.Errorf("%s: %q %v of %v", host, b, cert.DNSNames, cert.Issuer)
		}
	}
	for _, host := range []string{"other.example.com", "3001-einstein.localhost", "einstein.localhost"} {
		if _, err := client.Get("https://" + host + "/"); err == nil {
			t.Errorf("%s has a certificate", host)
		}
	}
	if err := w.store.certifiable(t.Context(), "3000-EINSTEIN.localhost"); err != nil {
		t.Error("an existing preview:", err)
	}
}
