package preview

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
)

func dialTo(addr string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
}

// certificate writes a certificate for names, signed by itself, and its key.
func certificate(t testing.TB, dir, serial string, names ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := new(big.Int).SetString(serial, 10)
	template := &x509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: "test"}, DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// selfSigned is TLS with a certificate for the previews below localhost.
func selfSigned(t testing.TB) *tls.Config {
	t.Helper()
	cert, key := certificate(t, t.TempDir(), "1", "*.localhost", "localhost")
	c, err := TLS(TLSOptions{Cert: cert, Key: key, Log: slog.Default()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTLS: a listener with TLS serves the API and previews. The cookie of a link has the prefix __Host-. A renewed
// certificate is used without a restart.
func TestTLS(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	dir := t.TempDir()
	cert, key := certificate(t, dir, "1", "*.localhost", "localhost")
	f := &files{cert: cert, key: key, log: slog.Default()}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	addr := w.serve(Serving{TLS: &tls.Config{GetCertificate: f.get, NextProtos: []string{"h2", "http/1.1"}}, API: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "the API") })})
	pool := x509.NewCertPool()
	b, _ := os.ReadFile(cert)
	pool.AppendCertsFromPEM(b)
	client := func() *http.Client {
		return &http.Client{Transport: &http.Transport{DialContext: dialTo(addr), DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	resp, err := client().Get("https://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "the API" || resp.ProtoMajor != 1 { // see [Door.versions]
		t.Errorf("%q %s", b, resp.Proto)
	}
	link := w.link("einstein", 3000)
	navigation, _ := http.NewRequest("GET", "https://3000-einstein.localhost/a?holt-link="+link.Token, nil)
	navigation.Header.Set("Sec-Fetch-Mode", "navigate")
	resp, err = client().Do(navigation)
	if err != nil {
		t.Fatal(err)
	}
	cookie := resp.Header.Get("Set-Cookie")
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "https://3000-einstein.localhost/a" || !strings.HasPrefix(cookie, "__Host-holt-preview="+link.Token+"; Path=/;") || !strings.Contains(cookie, "; Secure") || resp.Header.Get("Strict-Transport-Security") != "" {
		t.Error(resp.StatusCode, resp.Header)
	}
	r, _ := http.NewRequest("GET", "https://3000-einstein.localhost/", nil)
	r.Header.Set("Cookie", "x=y; __Host-holt-preview="+link.Token)
	resp, err = client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || resp.ProtoMajor != 2 || !strings.Contains(string(b), "Cookie: x=y\n") || !strings.Contains(string(b), "X-Forwarded-Proto: https\nX-Forwarded-Port: 443\n") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, serial := range []string{"1", "2"} { // a file that is half written leaves what there was
		if i == 1 {
			certificate(t, dir, "2", "localhost")
			b, _ := os.ReadFile(cert)
			pool.AppendCertsFromPEM(b)
		}
		f.mu.Lock()
		f.lookAt = time.Time{}
		f.mu.Unlock()
		resp, err = client().Get("https://localhost/")
		if err != nil || resp.TLS.PeerCertificates[0].SerialNumber.String() != serial {
			t.Error(i, err)
		}
	}
	if _, err := TLS(TLSOptions{Cert: key, Key: cert}); holt.CodeOf(err) != holt.InvalidArgument {
		t.Error(err)
	}
	if c, err := TLS(TLSOptions{}); c != nil || err != nil {
		t.Error(c, err)
	}
}
