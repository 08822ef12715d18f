package preview

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// holds answers at once, but for what is held until the client leaves.
func holds(began *atomic.Int64) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/held" {
			io.WriteString(rw, "here")
			return
		}
		began.Add(1)
		http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}
}

const held3000 = "GET /held HTTP/1.1\r\nHost: 3000-einstein.localhost\r\n\r\n"

// TestStrangersLeaveRoom: strangers, however many, of a public preview keep nobody with a link from it, and connections
// that are idle at other ports keep nobody at all.
func TestStrangersLeaveRoom(t *testing.T) {
	w := openWorld(t, nil)
	w.most = mostPublic + 2
	began := new(atomic.Int64)
	w.app(einstein, 3000, holds(began))
	w.app(einstein, 4000, holds(began))
	w.app(einstein, 5000, holds(began))
	w.set("einstein", 3000, true)
	for _, port := range []int{4000, 5000} { // each leaves a connection
		if got, body := w.text("GET", fmt.Sprintf("http://%d-einstein.localhost/", port), "X-Holt-Token", w.link("einstein", port).Token); got != 200 {
			t.Fatal(got, body)
		}
	}
	for range mostPublic {
		w.say(held3000)
	}
	until(t, "all strangers", func() bool { return began.Load() == mostPublic })
	if got, body := w.text("GET", page3000); got != 503 || !strings.Contains(body, `"code":"too_many"`) {
		t.Error("one more stranger:", got, body)
	}
	if got, body := w.text("GET", page3000, "X-Holt-Token", w.link("einstein", 3000).Token); got != 200 {
		t.Error("who has a link:", got, body)
	}
	if mostPublic >= mostOfPort || mostPublic >= mostOfOne {
		t.Error("strangers may have all")
	}
}

// TestWaitsForAConnection: who gets no connection to a port is told so, and does not wait without end.
func TestWaitsForAConnection(t *testing.T) {
	t.Parallel()
	w := openWorld(t, nil)
	w.door.transport.MaxConnsPerHost = 1
	began := new(atomic.Int64)
	w.app(einstein, 3000, holds(began))
	w.set("einstein", 3000, true)
	w.say(held3000)
	until(t, "the one connection", func() bool { return began.Load() == 1 })
	if got, body := w.text("GET", page3000, "X-Holt-Token", w.link("einstein", 3000).Token); got != 503 || !strings.Contains(body, `"code":"too_many"`) {
		t.Error(got, body)
	}
}
