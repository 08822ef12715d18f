package netstack

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCAWithFirstSecret: a stack without a CA gets one with the first secret of its
// computer, and serves its certificate; other paths of holt.internal go to the
// handler.
func TestCAWithFirstSecret(t *testing.T) {
	s, err := New(Options{Upstreams: []string{"127.0.0.1:1"}, Internal: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		s.internal.ServeHTTP(w, httptest.NewRequest("GET", "http://holt.internal"+path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := ask("/ca.pem"); code != http.StatusNotFound {
		t.Errorf("without a CA: %d", code)
	}
	certificate, key, err := NewCA("curie")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetCA(ca); err != nil {
		t.Fatal(err)
	}
	first := s.minter.Load()
	if code, said := ask("/ca.pem"); code != http.StatusOK || said != string(certificate) {
		t.Errorf("ca.pem: %d %s", code, said)
	}
	if code, _ := ask("/v1/self"); code != http.StatusTeapot {
		t.Errorf("the rest: %d", code)
	}
	if err := s.SetCA(ca); err != nil || s.minter.Load() != first {
		t.Errorf("the same CA again: %v", err)
	}
	leaf, err := first.of("api.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetCA(*leaf); err == nil {
		t.Error("a certificate of a host is taken for a CA's")
	}
}
