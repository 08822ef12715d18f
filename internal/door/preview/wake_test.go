package preview

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
)

// until waits for a condition.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timeout waiting for:", what)
		}
	}
}

// TestWake: programs wait until a paused computer is awake, which is woken once. A browser gets a page that reloads by
// itself. Callers without access wake nothing. Requests beyond the limit are refused.
func TestWake(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	link := w.link("einstein", 3000)
	w.pause(einstein)
	w.hold = make(chan struct{})
	if got, _ := w.text("GET", page3000); got != strangers || len(w.door.waker.going) != 0 {
		t.Error("a stranger:", got)
	}
	browser := w.ask("GET", page3000, nil, "X-Holt-Token", link.Token, "Accept", "text/html,*/*", "Sec-Fetch-Mode", "navigate")
	if policy := browser.Header.Get("Content-Security-Policy"); browser.StatusCode != 503 || browser.Header.Get("Retry-After") != "2" || !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") {
		t.Error(browser.StatusCode, browser.Header)
	}
	var work sync.WaitGroup
	for range mostWaiting {
		work.Go(func() {
			if got, body := w.text("GET", page3000, "X-Holt-Token", link.Token); got != 200 {
				t.Error(got, body)
			}
		})
	}
	until(t, "requests that wait", func() bool {
		w.door.waker.mu.Lock()
		defer w.door.waker.mu.Unlock()
		return w.door.waker.waiting == mostWaiting
	})
	resp := w.ask("GET", page3000, nil, "X-Holt-Token", link.Token)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Error("one more:", resp.StatusCode, resp.Header)
	}
	close(w.hold)
	work.Wait()
	if w.wakes != 1 {
		t.Errorf("it was woken %d times", w.wakes)
	}
	if got, body := w.text("GET", "http://5000-einstein.localhost/", "Accept", "text/html", "X-Holt-Token", w.link("einstein", 5000).Token); got != 502 || !strings.Contains(body, `http-equiv="refresh"`) {
		t.Error("what may still be starting:", got, body)
	}
}

// TestNothingListens: visitors with a right to it see the ports in use.
func TestNothingListens(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	w.app(einstein, 8080, echo)
	w.set("einstein", 5000, true)
	const url = "http://5000-einstein.localhost/"
	got, body := w.text("GET", url, "X-Holt-Token", w.link("einstein", 5000).Token)
	if got != 502 || !strings.Contains(body, `"hint":"ports in use: 3000, 8080"`) || !strings.Contains(body, `"code":"unavailable"`) {
		t.Error(got, body)
	}
	got, body = w.text("GET", url, "X-Holt-Token", w.link("einstein", 5000).Token, "Accept", "text/html")
	if port := w.addr[strings.LastIndex(w.addr, ":"):]; got != 502 || !strings.Contains(body, `<a href="http://3000-einstein.localhost`+port+`/">3000</a>`) || strings.Contains(body, "refresh") {
		t.Error(got, body)
	}
	for _, accept := range []string{"text/html", "*/*"} {
		if got, body = w.text("GET", url, "Accept", accept); got != 502 || strings.Contains(body, "8080") || strings.Contains(body, "einstein") {
			t.Error("a stranger:", got, body)
		}
	}
}

// TestStrangersCannotKeepAwake: a crawler of a public preview keeps its computer awake for a bounded part of the time. An
// occasional visitor is never refused.
func TestStrangersCannotKeepAwake(t *testing.T) {
	w := newWaker()
	now := time.Unix(1_000_000, 0)
	counted := 0
	const minutes = 24 * 60
	for range minutes {
		if w.visit(einstein, now) {
			counted++
		}
		now = now.Add(time.Minute)
	}
	if counted > minutes*2/5 || counted < 60 {
		t.Errorf("a visit a minute counts for %d of %d minutes", counted, minutes)
	}
	now = now.Add(24 * time.Hour)
	for range 24 {
		for range 10 { // minutes of each hour
			if !w.visit(curie, now) {
				t.Fatal("an occasional visitor is refused")
			}
			now = now.Add(time.Minute)
		}
		now = now.Add(50 * time.Minute)
	}
	door := openWorld(t, nil)
	door.app(einstein, 3000, echo)
	door.set("einstein", 3000, true)
	door.door.waker.allowed[einstein] = &allowance{counted: time.Now().Add(time.Hour), visited: time.Now()}
	if got, body := door.text("GET", page3000); got != 200 {
		t.Error("while it runs, strangers see it:", got, body)
	}
	door.pause(einstein)
	if got, body := door.text("GET", page3000); got != 503 || !strings.Contains(body, `"code":"too_many"`) || door.wakes != 0 {
		t.Error(got, body)
	}
	if got, body := door.text("GET", page3000, "X-Holt-Token", door.link("einstein", 3000).Token); got != 200 {
		t.Error("who has a link:", got, body)
	}
}

// TestPausedBesideRequests: a computer that is paused after a use was marked is woken by the next connection.
func TestPausedBesideRequests(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Connection", "close") // each request has a connection of its own
		echo(rw, r)
	})
	link := w.link("einstein", 3000)
	for i := range 3 {
		if got, body := w.text("GET", page3000, "X-Holt-Token", link.Token); got != 200 || w.wakes != i {
			t.Fatal(i, got, body, w.wakes)
		}
		w.pause(einstein)
		if i == 2 {
			break
		}
		if got, body := w.text("GET", page3000, "X-Holt-Token", link.Token); got != 200 || w.wakes != i+1 {
			t.Fatal(i, got, body, w.wakes)
		}
	}
	w.door.leases.mu.Lock()
	if len(w.door.leases.set) > 1 {
		t.Error("requests that are alike do not share a mark:", w.door.leases.set)
	}
	w.door.leases.mu.Unlock()
	until(t, "the end of the mark", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.uses["preview of port 3000"] == 0
	})
}

// TestWakesOfATenant: a tenant with many computers that fail to wake does not delay another tenant's.
func TestWakesOfATenant(t *testing.T) {
	w := openWorld(t, nil)
	w.hold = make(chan struct{})
	waiting := 0
	for i := range wakesAtOnce + 1 {
		c := holt.Computer{ID: holt.ComputerID(fmt.Sprintf("cmp_%016d", i)), Name: fmt.Sprint("bell-", i), State: holt.ComputerPaused, Tenant: holt.DefaultTenant}
		w.mu.Lock()
		w.computers[c.ID] = &c
		w.mu.Unlock()
		for range mostWaiting {
			_, left, err := w.door.startWake(t.Context(), c, "")
			if err == nil {
				defer left()
				waiting++
			} else if holt.CodeOf(err) != holt.TooMany {
				t.Fatal(err)
			}
		}
	}
	if waiting != mostWaitAll/2 {
		t.Errorf("%d requests of a tenant's wait", waiting)
	}
	defer close(w.hold)
	until(t, "all that it can wake", func() bool { return len(w.door.waker.slots) >= wakesAtOnce-1 })
	other := *w.computers[curie]
	for range 20 {
		one, left, err := w.door.startWake(t.Context(), other, "")
		if err != nil {
			t.Fatal("another tenant's:", err)
		}
		select {
		case <-one.done:
		case <-time.After(20 * time.Second):
			t.Error("another tenant's waits")
		}
		left()
		if t.Failed() {
			return
		}
	}
}

// TestBounds: the numbers of open requests of a computer, of a tenant and in all are limited.
func TestBounds(t *testing.T) {
	var s streams
	var leave []func()
	of := func(i int) holt.Computer {
		return holt.Computer{ID: holt.ComputerID(fmt.Sprint("cmp_", i/mostOfOne)), Tenant: fmt.Sprint("team-", i/mostOfTenants)}
	}
	for i := range mostStreams {
		_, _, left, err := s.enter(t.Context(), of(i), 1, "")
		if err != nil {
			t.Fatal(i, err)
		}
		leave = append(leave, left)
	}
	full := func(what string, c holt.Computer) {
		t.Helper()
		if _, _, _, err := s.enter(t.Context(), c, 1, ""); holt.CodeOf(err) != holt.TooMany {
			t.Error(what, err)
		}
	}
	full("of all:", holt.Computer{ID: "cmp_new", Tenant: "team-new"})
	leave[0]()
	full("of one tenant:", holt.Computer{ID: "cmp_new", Tenant: "team-1"})
	leave[mostOfOne]() // another computer's of the same tenant
	full("of one computer:", of(2*mostOfOne))
	for i, f := range leave {
		if i != 0 && i != mostOfOne {
			f()
		}
	}
	if s.all != 0 || len(s.of) != 0 || len(s.tenants) != 0 {
		t.Error(s.all, len(s.of), s.tenants)
	}
	if status(holt.TooMany) != http.StatusServiceUnavailable {
		t.Error("it is said as another proxy would")
	}
}
