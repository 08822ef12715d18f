package httpapi_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"holt"
	"holt/internal/access"
	"holt/internal/door/httpapi/servertest"
)

// lockedLog is a log that a test reads while it is written.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestCallersBehindAProxy: who calls through a trusted proxy is himself for the rate of failures, the audit log and
// the log; what anybody else says of himself is not heard.
func TestCallersBehindAProxy(t *testing.T) {
	for _, trusted := range []bool{true, false} {
		opt := servertest.Options(t, servertest.New(t).Nouns())
		opt.Failures = &access.Rate{PerSecond: 0.001, Burst: 2}
		log := new(lockedLog)
		opt.Log = slog.New(slog.NewTextHandler(log, nil))
		if trusted {
			opt.Trusted = access.Proxies{netip.MustParsePrefix("127.0.0.0/8")}
		}
		d := servertest.Serve(t, opt, "")
		c := overTCP(t, d)
		for range 3 {
			c.do("POST", "/v1/computers", `{}`, "Authorization: Bearer wrong", "X-Forwarded-For: 198.51.100.7")
		}
		c.refused(429, holt.TooMany, "GET", "/v1/health", "", "Authorization: Bearer wrong", "X-Forwarded-For: 203.0.113.1, 198.51.100.7")
		want := map[bool]int{true: 401, false: 429}[trusted]
		if status, _, body := c.do("GET", "/v1/health", "", "Authorization: Bearer wrong", "X-Forwarded-For: 198.51.100.8"); status != want {
			t.Errorf("trusted %v: another caller got %d %s", trusted, status, body)
		}
		_, _, body := overSocket(t, d).do("GET", "/v1/audit", "", "X-Forwarded-For: 198.51.100.7")
		page := decode[holt.Page[holt.AuditEntry]](t, body)
		if len(page.Items) == 0 {
			t.Fatal("nothing is in the audit log")
		}
		for _, e := range page.Items {
			if of := strings.HasPrefix(e.Remote, "198.51.100."); of != trusted || !trusted && !strings.HasPrefix(e.Remote, "127.0.0.1:") {
				t.Errorf("trusted %v: the audit log has %q", trusted, e.Remote)
			}
		}
		if logged := strings.Contains(log.String(), "from=198.51.100.7 "); logged != trusted {
			t.Errorf("trusted %v: the log has\n%s", trusted, log)
		}
	}
}
