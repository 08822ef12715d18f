package netstack

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// site is a web server with many tenants at one public address.
type site struct {
	mu     sync.Mutex
	heard  []string // host and, with TLS, the name that was asked for
	header []http.Header
	mint   atomic.Pointer[minter]
	roots  *x509.CertPool
}

const shared = "151.101.1.2"

// site serves at an address's ports 80 and 443, and 8443.
func (w *world) site() *site {
	w.t.Helper()
	out := &site{roots: x509.NewCertPool()}
	out.roots.AppendCertsFromPEM(out.certified(w.t, "the world"))
	server := &http.Server{Handler: out, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			out.note("tls " + h.ServerName)
			return out.mint.Load().of(h.ServerName)
		},
	}}
	w.t.Cleanup(func() { server.Close() })
	w.there(func() {
		w.ip("addr add " + shared + "/32 dev lo")
		for _, port := range []int{80, 443, 8443} {
			l, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", shared, port))
			switch {
			case err != nil:
				w.t.Error(err)
			case port == 80:
				go server.Serve(l)
			default:
				go server.ServeTLS(l, "", "")
			}
		}
	})
	return out
}

// certified issues the site's certificates by a new authority, whose certificate is returned.
func (s *site) certified(t *testing.T, by string) []byte {
	t.Helper()
	certificate, key, err := NewCA(by)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	mint, err := newMinter(ca)
	if err != nil {
		t.Fatal(err)
	}
	s.mint.Store(mint)
	return certificate
}

func (s *site) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, what)
}

// hears reports whether a tenant was reached.
func (s *site) hears(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.heard {
		if strings.Contains(one, name) {
			return true
		}
	}
	return false
}

// times returns the number of requests.
func (s *site) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.header)
}

func (s *site) last() http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.header) == 0 {
		return http.Header{}
	}
	return s.header[len(s.header)-1]
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.note("host " + r.Host)
	s.mu.Lock()
	s.header = append(s.header, r.Header.Clone())
	s.mu.Unlock()
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	case "/echo":
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	case "/back":
		w.Header().Set("X-Back", r.Header.Get("Authorization"))
		_, code, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		w.Header().Set("X-Code", strings.TrimRight(code, "="))
		fmt.Fprintln(w, "see the header")
	case "/early":
		w.Header().Set("Link", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprintln(w, "see what came before")
	case "/trailer":
		w.Header().Set("Trailer", "X-Announced")
		fmt.Fprintln(w, "see the trailers")
		w.Header().Set("X-Announced", r.Header.Get("Authorization"))
		w.Header().Set(http.TrailerPrefix+"X-Other", r.Header.Get("Authorization"))
	case "/slow":
		fmt.Fprintln(w, "begun")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		fmt.Fprintf(w, "hello from %s\n", r.Host)
	}
}
