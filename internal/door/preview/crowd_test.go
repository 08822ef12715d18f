package preview

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// holds answers at once, or holds a request until its client disconnects.
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

// TestStrangersLeaveRoom: public visitors of a preview leave room for visitors with a link. Idle connections to other
// ports do not block requests.
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
		t.Error("public visitors can use up the limit")
	}
}

// TestWaitsForAConnection: a request that gets no connection to a port fails after a time.
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
