package httpapi_test

import (
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"holt"
	"holt/client"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

// TestConformance calls a daemon over its unix socket.
func TestConformance(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) httpapi.Nouns {
		d := servertest.Serve(t, servertest.Of(t, servertest.Open(t)), "")
		return servertest.ClientNouns(d.Client(t, time.Minute))
	})
}

// TestTCP calls a daemon over TCP and over TLS, with a token of its own: both answer it, and no other token.
func TestTCP(t *testing.T) {
	d := servertest.Open(t)
	token := servertest.Must(d.Nouns().Tokens.Create(t.Context(), holt.TokenSpec{Name: "ci"}, ""))(t)
	opt := servertest.Of(t, d)
	opt.Tokens = d.Tokens()
	at := servertest.Serve(t, opt, "")
	secure := httptest.NewTLSServer(at.Server.TCP())
	defer secure.Close()
	fingerprint := fmt.Sprintf("%x", sha256.Sum256(secure.Certificate().Raw))
	for name, to := range map[string]client.Options{"tcp": {Host: at.Addr}, "tls": {Host: secure.URL, Fingerprint: fingerprint}} {
		for secret, code := range map[string]holt.Code{token.Secret: "", servertest.Secret: holt.Unauthenticated} {
			to.Token = secret
			c, err := client.New(to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: name}, ""); holt.CodeOf(err) != code {
				t.Errorf("%s: %v, want code %q", name, err, code)
			}
		}
	}
	if all := servertest.Must(d.Nouns().Workspaces.List(t.Context()))(t); len(all) != 2 {
		t.Errorf("made %+v", all)
	}
}
