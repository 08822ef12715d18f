package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// knowing are computers of which the host knows more than they should.
type knowing struct {
	nouns.Computers
	curie holt.Computer
	wrong error
}

func (k knowing) Get(context.Context, string) (holt.Computer, error) {
	now, c := time.Now(), k.curie
	c.Template, c.PausedBy, c.WokenBy, c.WokenAt, c.Reason = "/host/recipes/mine.json", "token alice", "run by token alice", &now, "see /host/data/qemu.log"
	c.Parent, c.Tenant = &holt.Origin{ID: "cmp_parent", Name: "parent"}, "alice"
	return c, nil
}

func (k knowing) Snapshot(context.Context, string, holt.SnapshotSpec, string) (holt.Snapshot, error) {
	return holt.Snapshot{}, k.wrong
}

func (k knowing) Pause(ctx context.Context, ref, _ string) (holt.Computer, error) {
	return k.Get(ctx, ref)
}

// TestOwnIsToldLittle: a computer is told what it is, and nothing of its host, of its owner, or of others.
func TestOwnIsToldLittle(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	curie := servertest.Must(nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""))(t)
	know := &knowing{Computers: nouns.Computers, curie: curie}
	nouns.Computers = know
	own := httpapi.New(servertest.Options(t, nouns)).Own(curie.ID)
	ask := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		own.ServeHTTP(w, httptest.NewRequest(method, "http://holt.internal/v1/self"+path, nil))
		return w.Code, w.Body.String()
	}
	quiet := func(what, said string) {
		t.Helper()
		for _, one := range []string{"alice", "host/", "parent", "bohr"} {
			if strings.Contains(said, one) {
				t.Errorf("%s: it is told of %s: %s", what, one, said)
			}
		}
	}
	for _, c := range []struct{ method, path string }{{"GET", ""}, {"POST", "/pause"}} {
		code, said := ask(c.method, c.path)
		if code != http.StatusOK || !strings.Contains(said, `"curie"`) || !strings.Contains(said, `"mine.json"`) || !strings.Contains(said, `"fork":true`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, said)
		}
		quiet(c.method+c.path, said)
	}
	for _, c := range []struct {
		wrong error
		code  int
		says  string
	}{
		{holt.Errorf(holt.OutOfSpace, "/host/data has 3 MiB").WithHint("remove bohr"), http.StatusInsufficientStorage, "out_of_space"},
		{holt.Errorf(holt.TooMany, "alice has 3 computers: bohr"), http.StatusTooManyRequests, "too_many"},
		{holt.Errorf(holt.Conflict, `open "/host/data/x y": it is stopped`).WithHint("look at /host/data"), http.StatusConflict, "it is stopped"},
		{context.DeadlineExceeded, http.StatusGatewayTimeout, "timeout"},
		{http.ErrServerClosed, http.StatusInternalServerError, "internal"},
	} {
		know.wrong = c.wrong
		code, said := ask("POST", "/snapshot")
		if code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%v: %d %s", c.wrong, code, said)
		}
		quiet(c.wrong.Error(), said)
	}
}
