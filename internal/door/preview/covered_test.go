package preview

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/access"
)

// TestNamesAreTenants: if two tenants have computers with the same name, a host leads to that of its tenant.
func TestNamesAreTenants(t *testing.T) {
	w := openWorld(t, nil)
	const theirs = holt.ComputerID("cmp_cccccccccccccccc")
	w.computers[theirs] = &holt.Computer{ID: theirs, Name: "einstein", State: holt.ComputerRunning, Tenant: "acme"}
	says := func(what string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, what) }
	}
	w.app(einstein, 3000, says("ours"))
	w.app(theirs, 3000, says("theirs"))
	w.set(string(einstein), 3000, true)
	w.set(string(theirs), 3000, true)
	for url, want := range map[string]string{
		page3000: "ours", "http://3000-einstein--acme.localhost/": "theirs", "http://3000-cmp-cccccccccccccccc.localhost/": "theirs", "http://3000-cmp-aaaaaaaaaaaaaaaa.localhost/": "ours",
	} {
		if status, got := w.text("GET", url); status != 200 || got != want {
			t.Errorf("%s: %d %q", url, status, got)
		}
	}
	if status, got := w.text("GET", "http://3000-einstein--umbra.localhost/"); status != strangers {
		t.Errorf("a tenant without such a computer: %d %q", status, got)
	}
	_, foreign, err := w.tokens.CreateFor(t.Context(), "acme", "theirs", 0)
	if err != nil {
		t.Fatal(err)
	}
	w.set(string(einstein), 3000, false)
	if status, got := w.text("GET", page3000, "X-Holt-Token", foreign); status != 404 {
		t.Errorf("a token of the other tenant: %d %q", status, got)
	}
}

// recorded collects audit entries.
type recorded struct {
	mu  sync.Mutex
	all []string
}

func (r *recorded) add(ctx context.Context, e holt.AuditEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who := e.Actor + " " + e.Name
	if e.Actor == "" { // as the audit log does
		a, _ := holt.ActorOf(ctx)
		who = "token " + a.Name
	}
	r.all = append(r.all, who+": "+e.Op+" "+e.Ref+" "+e.Code)
}

func (r *recorded) has(one string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.all, one)
}

// TestTokensOpenWhatTheyCover: an API token opens a preview only if it covers the port. Otherwise the error is that of a
// missing computer. Visitors, refusals and connections are recorded.
func TestTokensOpenWhatTheyCover(t *testing.T) {
	w := openWorld(t, nil)
	var log recorded
	w.store.cfg.May = func(ctx context.Context, id holt.ComputerID, port int) error {
		if a, _ := holt.ActorOf(ctx); a.Rights.ReadOnly || !a.Rights.Port(id, port) {
			return holt.Errorf(holt.Forbidden, "the token does not cover this")
		}
		return nil
	}
	w.store.cfg.Record = log.add
	w.app(einstein, 3000, echo)
	w.raw(einstein, 4000, answerUpgrade)
	secrets := map[string]string{}
	for name, scopes := range map[string][]holt.Scope{
		"all": nil, "looks": {"read-only"}, "port": {holt.Scope("port:" + einstein + ":3000")}, "other port": {holt.Scope("port:" + einstein + ":4000")}, "other": {holt.Scope("computer:" + curie)},
	} {
		var err error
		if _, secrets[name], err = w.tokens.CreateFor(t.Context(), holt.DefaultTenant, name, 0, scopes...); err != nil {
			t.Fatal(err)
		}
	}
	_, none := w.text("GET", "http://3000-nobody.localhost/", "X-Holt-Token", secrets["other"])
	for name, want := range map[string]int{"all": 200, "looks": 404, "port": 200, "other port": 404, "other": 404} {
		status, body := w.text("GET", page3000, "X-Holt-Token", secrets[name])
		if status != want || status == 404 && body != none {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if status, body := w.text("GET", "http://5000-einstein.localhost/", "X-Holt-Token", secrets["all"]); status != 502 || !strings.Contains(body, "3000") {
		t.Errorf("a token for the computer does not see the ports in use: %d %s", status, body)
	}
	if status, body := w.text("GET", "http://5000-einstein.localhost/", "X-Holt-Token", secrets["port"]); status != 404 || strings.Contains(body, "3000") {
		t.Errorf("a token for one port sees others: %d %s", status, body)
	}
	if status, _ := w.text("GET", page3000, "X-Holt-Token", secrets["all"]+"x"); status != strangers {
		t.Error("a wrong token:", status)
	}
	if status, _ := w.text("GET", page3000); status != strangers {
		t.Error("a stranger:", status)
	}
	w.upgrade(4000, "X-Holt-Token", secrets["other port"]).Close()
	for _, want := range []string{
		"token all: visit cmp_aaaaaaaaaaaaaaaa port=3000 begun", "token port: visit cmp_aaaaaaaaaaaaaaaa port=3000 begun", "token other port: connect cmp_aaaaaaaaaaaaaaaa port=4000 ok",
		"nobody : visit cmp_aaaaaaaaaaaaaaaa port=3000 " + string(holt.NotFound),
	} {
		for end := time.Now().Add(10 * time.Second); !log.has(want); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%q is not among %q", want, log.all)
			}
		}
	}
	for _, one := range log.all {
		if strings.HasSuffix(one, string(holt.Unauthenticated)) && strings.Contains(one, "curie") || strings.Contains(one, "holt_") {
			t.Errorf("written down: %q", one)
		}
	}
}

// TestLinkEndsWithItsMaker: a link expires no later than the token that made it.
func TestLinkEndsWithItsMaker(t *testing.T) {
	w := openWorld(t, nil)
	token, _, err := w.tokens.CreateFor(t.Context(), holt.DefaultTenant, "brief", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.store.Link(holt.WithActor(t.Context(), token.Actor()), "einstein", 3000, holt.PreviewLinkSpec{ExpiresInMS: 3_600_000})
	if err != nil || l.ExpiresAt.After(*token.ExpiresAt) {
		t.Errorf("the token ends at %v, its link at %v: %v", token.ExpiresAt, l.ExpiresAt, err)
	}
}

// TestTriersAreSlowedDown: a client with many invalid tokens must wait. Links and valid tokens from the same address still
// work.
func TestTriersAreSlowedDown(t *testing.T) {
	w := openWorld(t, func(o *Options) { o.Failures = &access.Rate{PerSecond: 0.001, Burst: 3} })
	w.app(einstein, 3000, echo)
	_, mine, err := w.tokens.Create(t.Context(), "mine", 0)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := w.text("GET", page3000, "X-Holt-Token", mine); status != 200 {
		t.Fatal(status)
	}
	for i, want := range []int{strangers, strangers, strangers, http.StatusServiceUnavailable, http.StatusServiceUnavailable} {
		if status, body := w.text("GET", page3000, "X-Holt-Token", mine+"x"); status != want {
			t.Errorf("try %d: %d %s", i, status, body)
		}
	}
	if status, body := w.text("GET", page3000, "X-Holt-Token", mine); status != 200 {
		t.Errorf("a valid token: %d %s", status, body)
	}
	if status, body := w.text("GET", page3000, "X-Holt-Token", w.link("einstein", 3000).Token); status != 200 {
		t.Errorf("a link: %d %s", status, body)
	}
	if status, body := w.text("GET", page3000); status != strangers {
		t.Errorf("a stranger: %d %s", status, body)
	}
}
