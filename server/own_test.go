package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"holt"
	"holt/server"
	"holt/server/servertest"
)

// TestOwn: a computer speaks of itself alone, and can give its forks nothing that it has not itself.
func TestOwn(t *testing.T) {
	nouns, ctx := memory(t).Nouns(), t.Context()
	made := map[string]holt.Computer{}
	for _, name := range []string{"curie", "bohr"} {
		made[name] = servertest.Must(nouns.Computers.Create(ctx, holt.ComputerSpec{Name: name, Network: &holt.NetworkPolicy{Egress: holt.EgressOff}}, ""))(t)
	}
	servertest.Must(nouns.Computers.Snapshot(ctx, "bohr", holt.SnapshotSpec{Name: "secret"}, ""))(t)
	s := server.New(servertest.Options(t, nouns))
	own := s.Own(made["curie"].ID)
	ask := func(method, path, body string, header ...string) (int, string) {
		t.Helper()
		r := httptest.NewRequest(method, "http://holt.internal"+path, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		own.ServeHTTP(w, r)
		b, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, string(b)
	}
	for _, c := range []struct{ method, path, body, has string }{
		{"GET", "/v1/self", "", `"name":"curie"`},
		{"GET", "/v1/self/network", "", `"egress":"off"`},
		{"GET", "/v1/self/network/traffic", "", `"destinations":[]`},
		{"POST", "/v1/self/checkpoint", `{"name":"mine"}`, `"mine"`},
		{"POST", "/v1/self/snapshot", `{"name":"dawn"}`, `"dawn"`},
		{"GET", "/v1/self/moments", "", `"dawn"`},
		{"POST", "/v1/self/fork", `{"name":"dirac"}`, `"dirac"`},
	} {
		if code, said := ask(c.method, c.path, c.body); code != http.StatusOK || !strings.Contains(said, c.has) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, said)
		}
	}
	if _, said := ask("GET", "/v1/self/moments", ""); strings.Contains(said, "secret") {
		t.Errorf("it sees the moments of another: %s", said)
	}
	if p := servertest.Must(nouns.Networks.Get(ctx, "dirac"))(t); p.Egress != holt.EgressOff {
		t.Errorf("its fork may reach %+v", p)
	}
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", "/v1/self/fork", `{"network":{"egress":"open"}}`, http.StatusBadRequest},
		{"POST", "/v1/self/fork", `{"at":"bohr@secret"}`, http.StatusBadRequest},
		{"POST", "/v1/self/fork", `{"name":"a b"}`, http.StatusBadRequest},
		{"POST", "/v1/self/fork", `{`, http.StatusBadRequest},
		{"POST", "/v1/self/snapshot", `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, http.StatusBadRequest},
		{"PUT", "/v1/self/network", `{"egress":"open"}`, http.StatusMethodNotAllowed},
		{"GET", "/v1/computers", "", http.StatusNotFound},
		{"DELETE", "/v1/self", "", http.StatusMethodNotAllowed},
	} {
		if code, said := ask(c.method, c.path, c.body); code != c.code || !strings.Contains(said, `"code"`) {
			t.Errorf("%s %s %.40s: %d %.200s", c.method, c.path, c.body, code, said)
		}
	}
	servertest.Must(nouns.Computers.Snapshot(ctx, "bohr", holt.SnapshotSpec{Name: "dusk"}, "key"))(t)
	if code, said := ask("POST", "/v1/self/snapshot", `{"name":"dusk"}`, "Idempotency-Key", "key"); code != http.StatusOK || !strings.Contains(said, string(made["curie"].ID)) {
		t.Errorf("with a key that another caller has used: %d %s", code, said)
	}
	if code, said := ask("POST", "/v1/self/pause", ""); code != http.StatusOK || !strings.Contains(said, `"paused"`) {
		t.Errorf("pause: %d %s", code, said)
	}
}
