package daemon

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"holt"
	"holt/internal/image"
)

// TestOwnOf: the directory of a computer's machine says whose calls come there; nobody answers another's. What answers
// is made once.
func TestOwnOf(t *testing.T) {
	d, made := &Daemon{}, 0
	id := holt.ComputerID("cmp_x7d2oikgns5tysjk")
	computer, template := d.ownOf(filepath.Join("/x", string(id))), d.ownOf("/x/"+"0123456789abcdef0123456789abcdef")
	ask := func(h http.Handler) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://holt.internal/v1/self", nil))
		return w.Code
	}
	if code := ask(computer); code != http.StatusServiceUnavailable {
		t.Errorf("before anybody answers: %d", code)
	}
	d.Own(func(who holt.ComputerID) http.Handler {
		made++
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if who != id {
				t.Errorf("%s is asked", who)
			}
		})
	})
	for range 3 {
		if code := ask(computer); code != http.StatusOK {
			t.Errorf("a computer: %d", code)
		}
		if code := ask(template); code != http.StatusServiceUnavailable {
			t.Errorf("a template: %d", code)
		}
	}
	if made != 1 {
		t.Errorf("it was made %d times", made)
	}
}

// TestReachEnds: what is looked up is known to who asks first, and ends with the daemon.
func TestReachEnds(t *testing.T) {
	r := openReach(slog.New(slog.DiscardHandler), func() []image.PackageHost {
		return []image.PackageHost{{Host: "10.1.2.3", Port: 80}, {Host: "93.184.216.34", Port: 80}}
	})
	if got := r.get(t.Context()); !slices.Equal(got, []netip.AddrPort{netip.MustParseAddrPort("10.1.2.3:80")}) {
		t.Errorf("%v", got)
	}
	r.close()
	began := make(chan struct{})
	r = openReach(slog.New(slog.DiscardHandler), func() []image.PackageHost {
		close(began)
		return nil
	})
	<-began
	r.close()
}
