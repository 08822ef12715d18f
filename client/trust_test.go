package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holt"
)

// TestTrust: an https server is known by its certificates' issuer or by its fingerprint, and one that is not is refused
// at once, not tried again.
func TestTrust(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		io.WriteString(w, `{"status":"ok","version":"1"}`)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	plain := httptest.NewServer(s.Config.Handler)
	defer plain.Close()
	cert := s.Certificate()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	sum := sha256.Sum256(cert.Raw)
	sha := hex.EncodeToString(sum[:])
	var colons []string
	for i := 0; i < len(sha); i += 2 {
		colons = append(colons, strings.ToUpper(sha[i:i+2]))
	}
	for name, c := range map[string]struct {
		opt  Options
		code holt.Code
		hint string
	}{
		"its own CA":              {opt: Options{Host: s.URL, CA: ca}},
		"its fingerprint":         {opt: Options{Host: s.URL, Fingerprint: sha}},
		"as openssl prints it":    {opt: Options{Host: s.URL, Fingerprint: strings.Join(colons, ":")}},
		"nobody's":                {Options{Host: s.URL}, holt.Unauthenticated, "--ca-file"},
		"another's fingerprint":   {Options{Host: s.URL, Fingerprint: strings.Repeat("ab", 32)}, holt.Unauthenticated, "fingerprint"},
		"its CA, not its print":   {Options{Host: s.URL, CA: ca, Fingerprint: strings.Repeat("ab", 32)}, holt.Unauthenticated, "fingerprint"},
		"TLS to one without":      {Options{Host: strings.Replace(plain.URL, "http:", "https:", 1)}, holt.Unavailable, "http://"},
		"one with TLS, without":   {Options{Host: strings.Replace(s.URL, "https:", "http:", 1)}, holt.Unavailable, "https://"},
		"a fingerprint of others": {Options{Host: s.URL, Fingerprint: "sha256"}, holt.InvalidArgument, "openssl"},
		"no certificate":          {Options{Host: s.URL, CA: []byte("x")}, holt.InvalidArgument, "PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			c.opt.Token = "secret"
			began := time.Now()
			client, err := New(c.opt)
			if err == nil {
				defer client.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = client.Daemon.Health(ctx)
			}
			if c.code == "" && err != nil || c.code != "" && (holt.CodeOf(err) != c.code || !strings.Contains(holt.AsError(err).Hint, c.hint)) {
				t.Errorf("%v (%s), hint %q", err, holt.CodeOf(err), holt.AsError(err).Hint)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v to say so", took)
			}
		})
	}
}
