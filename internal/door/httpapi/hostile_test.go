package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/door/httpapi/servertest"
)

// raw sends bytes as they are, and returns what comes back until the server closes or is quiet.
func rawCall(t *testing.T, addr, send string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, send); err != nil {
		return ""
	}
	_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	b, _ := io.ReadAll(conn)
	return string(b)
}

// TestSmuggledRequests: what two programs could take for different requests is refused, and no second answer
// follows. (Of a length beside chunks the chunks count, as RFC 9112 has it; net/http does not say that there was one.)
func TestSmuggledRequests(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	auth := "Host: localhost\r\nAuthorization: Bearer " + servertest.Secret + "\r\n"
	inner := "GET /v1/health HTTP/1.1\r\n" + auth + "\r\n"
	for name, send := range map[string]string{
		"two lengths":             "POST /v1/computers HTTP/1.1\r\n" + auth + "Content-Length: 2\r\nContent-Length: 90\r\n\r\n{}" + inner,
		"odd transfer encoding":   "POST /v1/computers HTTP/1.1\r\n" + auth + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"encoding of two":         "POST /v1/computers HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
		"space before the colon":  "POST /v1/computers HTTP/1.1\r\n" + auth + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
		"negative length":         "POST /v1/computers HTTP/1.1\r\n" + auth + "Content-Length: -1\r\n\r\n" + inner,
		"length that is no count": "POST /v1/computers HTTP/1.1\r\n" + auth + "Content-Length: +2\r\n\r\n{}" + inner,
		"bad chunk":               "POST /v1/computers HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + inner,
		"two hosts":               "GET /v1/computers HTTP/1.1\r\n" + auth + "Host: localhost\r\n\r\n" + inner,
		"no host":                 "GET /v1/computers HTTP/1.1\r\nAuthorization: Bearer " + servertest.Secret + "\r\n\r\n" + inner,
		"control in a value":      "GET /v1/computers HTTP/1.1\r\n" + auth + "X-A: a\x00b\r\n\r\n" + inner,
		"large headers":           "GET /v1/computers HTTP/1.1\r\n" + auth + "X-A: " + strings.Repeat("a", 100<<10) + "\r\n\r\n" + inner,
	} {
		got := rawCall(t, d.Addr, send)
		if strings.Contains(got, "HTTP/1.1 200") || strings.Count(got, "HTTP/1.1 ") > 1 {
			t.Errorf("%s: %.300q", name, got)
		}
	}
}

// TestPathsStayPaths: no form of .. in a path's parameters reaches anything but an error or another name.
func TestPathsStayPaths(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	c := overTCP(t, d)
	for _, ref := range []string{"..", "%2e%2e", "..%2f..%2fetc", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a%00b", "%ff", "..%5c..", "a%2f..%2fb", "%0d%0aX-Evil:%201"} {
		for _, path := range []string{"/v1/computers/%s", "/v1/computers/%s/files?path=/", "/v1/workspaces/%s", "/v1/workspaces/%s/checkpoints/x", "/v1/computers/x/terminals/%s", "/v1/computers/x/services/%s",
			"/v1/computers/x/secrets/%s", "/v1/runs/%s", "/v1/jobs/%s", "/v1/schedules/%s", "/v1/snapshots/%s", "/v1/tokens/%s", "/v1/limits/%s"} {
			status, header, body := c.do("GET", fmt.Sprintf(path, ref), "")
			if status < 300 && !strings.Contains(path, "limits") || status >= 500 || header.Get("X-Evil") != "" || strings.Contains(body, "root:") {
				t.Errorf("%s of %s: %d %s", path, ref, status, body)
			}
		}
	}
}

// TestRatesOfCallers: who comes without a valid token is turned away after some tries; who has one is bounded by it
// alone, whatever else comes from where he is. Pages of other sites do not count: anybody's browser sends what they like.
func TestRatesOfCallers(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Failures, opt.Calls = &access.Rate{PerSecond: 0.001, Burst: 3}, &access.Rate{PerSecond: 0.001, Burst: 5}
	d := servertest.Serve(t, opt, "")
	c := overTCP(t, d)
	for range 10 {
		for _, page := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://evil.example"} {
			c.refused(403, holt.Forbidden, "GET", "/v1/x", "", "Authorization: ", page)
		}
	}
	for i := range 5 {
		status, header, body := c.do("GET", "/v1/health", "", "Authorization: Bearer wrong")
		if want := map[bool]int{true: 401, false: 429}[i < 3]; status != want || want == 429 && header.Get("Retry-After") == "" {
			t.Error(i, status, body)
		}
	}
	for range 5 {
		if status, _, body := c.do("GET", "/v1/health", ""); status != 200 {
			t.Fatal(status, body)
		}
	}
	status, header, body := c.do("GET", "/v1/health", "")
	if e := decode[holt.Error](t, body); status != 429 || e.Code != holt.TooMany || header.Get("Retry-After") == "" {
		t.Error(status, header, body)
	}
	if status, _, _ := overSocket(t, d).do("GET", "/v1/health", ""); status != 200 {
		t.Error("the socket is bounded, too:", status)
	}
}

// TestRatesOfChildren: a token gains little by making others; other tenants, and admins, are not bounded by what they do.
func TestRatesOfChildren(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Tokens = children{}
	opt.Calls, opt.Tenants = &access.Rate{PerSecond: 0.001, Burst: 2}, &access.Rate{PerSecond: 0.001, Burst: 5}
	c := overTCP(t, servertest.Serve(t, opt, ""))
	for i := range 8 {
		status, header, body := c.do("GET", "/v1/health", "", fmt.Sprint("Authorization: Bearer team-a/", i))
		if want := map[bool]int{true: 200, false: 429}[i < 5]; status != want || want == 429 && header.Get("Retry-After") == "" {
			t.Error(i, status, body)
		}
	}
	for i := range 8 {
		if status, _, body := c.do("GET", "/v1/health", "", fmt.Sprint("Authorization: Bearer admins/", i)); status != 200 {
			t.Error("an admin's:", status, body)
		}
	}
	for i := range 3 {
		if status, _, body := c.do("GET", "/v1/health", "", "Authorization: Bearer team-b/one"); status != map[bool]int{true: 200, false: 429}[i < 2] {
			t.Error("another tenant's:", i, status, body)
		}
	}
}

// TestOpenCalls: what follows without end is bounded, for a token and for a tenant; others, and the socket, come in beside it.
func TestOpenCalls(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Tokens, opt.Open = children{}, 3
	d := servertest.Serve(t, opt, "")
	c := overTCP(t, d)
	opened := 0
	follow := func(token string) (end func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", c.base+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := c.client.Do(r)
		if err != nil || answer.StatusCode != 200 {
			t.Fatalf("%s, after %d: %+v, %v", token, opened, answer, err)
		}
		opened++
		end = func() { cancel(); answer.Body.Close() }
		t.Cleanup(end)
		return end
	}
	refused := func(token string) {
		t.Helper()
		c.refused(429, holt.TooMany, "GET", "/v1/health", "", "Authorization: Bearer "+token)
	}
	var end func()
	for range 3 {
		end = follow("team-a/one")
	}
	refused("team-a/one")
	for range 3 {
		follow("team-a/two")
	}
	refused("team-a/three") // the tenant has all that it may
	for i := range 6 {
		follow(fmt.Sprint("team-b/", i))
	}
	for range 2 { // of each team all but one count among all
		follow("team-c/one")
		follow("team-d/one")
	}
	refused("team-c/one") // and all have
	follow("team-e/one")  // which keeps nobody out
	for i := range 3 {
		follow("admins/one")
		if status, _, _ := overSocket(t, d).do("GET", "/v1/health", ""); status != 200 {
			t.Error("the socket is bounded, too:", i, status)
		}
	}
	refused("admins/one")
	end()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if status, _, _ := c.do("GET", "/v1/health", "", "Authorization: Bearer team-a/one"); status == 200 {
			break
		} else if time.Since(began) > time.Minute {
			t.Fatal("one that ended counts:", status)
		}
	}
}

// TestFloodsAreAuditedSeldom: the log of what was done has little of what anybody, or a token beyond its rate, can have refused.
func TestFloodsAreAuditedSeldom(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Failures, opt.Calls = &access.Rate{PerSecond: 0.001, Burst: 3}, &access.Rate{PerSecond: 0.001, Burst: 5}
	d := servertest.Serve(t, opt, "")
	c := overTCP(t, d)
	for range 40 {
		c.do("GET", "/v1/health", "", "Host: evil.example")
		c.do("GET", "/v1/health", "", "Authorization: Bearer wrong")
		c.do("GET", "/v1/health", "", "Authorization: ", "Sec-Fetch-Site: cross-site")
		c.do("GET", "/v1/health", "")
	}
	_, _, body := overSocket(t, d).do("GET", "/v1/audit?limit=1000", "")
	seen := map[string]int{}
	for _, e := range decode[holt.Page[holt.AuditEntry]](t, body).Items {
		seen[fmt.Sprint(e.Actor, " ", e.Status)]++
	}
	want := map[string]int{"nobody 401": 1, "nobody 403": 1, "nobody 429": 1, "token 429": 1}
	if !maps.Equal(seen, want) {
		t.Errorf("the log has %v, want %v", seen, want)
	}
}

// TestTokenIsNotLogged: wherever somebody puts a secret, it is not in the log.
func TestTokenIsNotLogged(t *testing.T) {
	var log strings.Builder
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	secret := "holt_" + strings.Repeat("a", 16) + "_" + strings.Repeat("b", 52)
	d := servertest.Serve(t, opt, "")
	c := overTCP(t, d)
	c.do("GET", "/v1/health", "", "Authorization: Bearer "+secret)
	c.do("GET", "/v1/tokens/"+secret, "")
	c.do("GET", "/v1/computers/"+secret, "")
	c.do("GET", "/nowhere/"+secret, "")
	c.do("GET", "/v1/health", "", "Host: "+secret)
	c.do("POST", "/v1/computers", `{"name":"`+secret+`"}`)
	c.do("GET", "/v1/health?token="+secret, "")
	d.Kill()
	if strings.Contains(log.String(), strings.Repeat("b", 52)) || !strings.Contains(log.String(), "request") {
		t.Error(log.String())
	}
}

// TestSlowHeaders: who sends a header byte by byte is let go of.
func TestSlowHeaders(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	conn, err := net.Dial("tcp", d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	go func() {
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(conn, "%s", "GET / HTTP/1.1\r\nX-A: "[i%21:i%21+1]); err != nil {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	_ = conn.SetReadDeadline(began.Add(30 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && resp.StatusCode < 400 {
		t.Error(resp.Status)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("let go of after %s", took)
	}
}
