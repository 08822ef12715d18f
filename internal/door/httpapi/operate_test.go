package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"holt"
	"holt/internal/access"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/metric"
)

// onSocket is a client of a unix socket.
func onSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}, DisableKeepAlives: true}}
}

func fetched(t *testing.T, c *http.Client, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestOperatorsDoor: metrics are behind the socket or an operator's token, profiles behind the socket only, and
// the two probes tell everybody one word.
func TestOperatorsDoor(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Metrics = new(metric.Registry)
	var unready atomic.Bool
	opt.Ready = func(context.Context) error {
		if unready.Load() {
			return holt.Errorf(holt.OutOfSpace, "the disk at /secret/place is full")
		}
		return nil
	}
	d := servertest.Serve(t, opt, "")
	local, tcp := onSocket(d.Socket), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	far := "http://" + d.Addr
	for _, c := range []struct {
		c          *http.Client
		url, token string
		status     int
		says       string
	}{
		{local, "http://holt/healthz", "", 200, "ok\n"},
		{local, "http://holt/readyz", "", 200, "ok\n"},
		{tcp, far + "/healthz", "", 200, "ok\n"},
		{tcp, far + "/readyz", "", 200, "ok\n"},
		{local, "http://holt/metrics", "", 200, "holt_http_requests_total"},
		{tcp, far + "/metrics", "", 401, "the call has no token"},
		{tcp, far + "/metrics", "wrong", 401, "unauthenticated"},
		{tcp, far + "/metrics", servertest.Secret, 200, "holt_http_requests_total"},
		{local, "http://holt/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile"},
		{tcp, far + "/debug/pprof/goroutine?debug=1", servertest.Secret, 404, "no such path"},
		{tcp, far + "/debug/pprof/", "", 401, "the call has no token"},
	} {
		status, body := fetched(t, c.c, c.url, c.token)
		if status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s (token %v): %d %.200q", c.url, c.token != "", status, body)
		}
	}
	unready.Store(true)
	if status, body := fetched(t, tcp, far+"/readyz", ""); status != 503 || body != "not ready\n" {
		t.Errorf("over TCP a full disk is %d %q", status, body)
	}
	if status, body := fetched(t, local, "http://holt/readyz", ""); status != 503 || !strings.Contains(body, "is full") {
		t.Errorf("on the socket a full disk is %d %q", status, body)
	}
	if status, body := fetched(t, tcp, far+"/healthz", ""); status != 200 || body != "ok\n" {
		t.Errorf("it lives, and says %d %q", status, body)
	}
}

// limited knows one token, that of a tenant and with rights of its own.
type limited struct {
	servertest.Tokens
	tenant string
	rights holt.Rights
}

func (k limited) Check(ctx context.Context, secret string) (access.Token, error) {
	is, err := k.Tokens.Check(ctx, secret)
	is.Tenant, is.Rights = k.tenant, k.rights
	return is, err
}

// TestTenantsSeeNoMetrics: what is counted is everybody's, so only an admin's token does.
func TestTenantsSeeNoMetrics(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	for _, c := range []struct {
		who    limited
		status int
	}{
		{limited{tenant: "acme"}, 403}, {limited{tenant: holt.DefaultTenant}, 403}, {limited{tenant: holt.DefaultTenant, rights: holt.Rights{ReadOnly: true}}, 403},
		{limited{tenant: holt.DefaultTenant, rights: holt.Rights{Admin: true}}, 200},
	} {
		opt := servertest.Options(t, nouns)
		opt.Metrics = new(metric.Registry)
		opt.Tokens = c.who
		d := servertest.Serve(t, opt, "")
		status, body := fetched(t, http.DefaultClient, "http://"+d.Addr+"/metrics", servertest.Secret)
		if status != c.status || strings.Contains(body, "holt_http") != (status == 200) {
			t.Errorf("%+v gets %d %.200q", c.who, status, body)
		}
	}
}

// TestCallsAreCounted: by operation and status, whatever a caller writes into a path.
func TestCallsAreCounted(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Metrics = new(metric.Registry)
	d := servertest.Serve(t, opt, "")
	local := onSocket(d.Socket)
	for i := range 3 {
		fetched(t, local, "http://holt/v1/computers", "")
		fetched(t, local, fmt.Sprintf("http://holt/v1/computers/nobody-%d", i), "")
		fetched(t, local, fmt.Sprintf("http://holt/x%%22%%0a/%d", i), "")
	}
	var page bytes.Buffer
	if err := opt.Metrics.Write(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`holt_http_requests_total{operation="listComputers",status="200"} 3`,
		`holt_http_requests_total{operation="getComputer",status="404"} 3`,
		`holt_http_requests_total{operation="none",status="404"} 3`,
		`holt_http_request_seconds_count{operation="listComputers"} 3`,
		"holt_http_requests_in_flight 0",
	} {
		if !strings.Contains(page.String(), want+"\n") {
			t.Errorf("there is no %s in\n%s", want, page.String())
		}
	}
	if strings.Contains(page.String(), "nobody") {
		t.Error("a caller's words are in a label")
	}
}

// TestMetricsDoor: what needs no token has metrics only, and for its own names only.
func TestMetricsDoor(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Metrics = new(metric.Registry)
	d := servertest.Serve(t, opt, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.Server.ServeMetrics(l) }()
	at := "http://" + l.Addr().String()
	if status, body := fetched(t, http.DefaultClient, at+"/metrics", ""); status != 200 || !strings.Contains(body, "holt_http_requests_in_flight 1") {
		t.Errorf("metrics are %d %.200q", status, body)
	}
	for _, path := range []string{"/v1/computers", "/debug/pprof/", "/healthz", "/", "/docs"} {
		if status, body := fetched(t, http.DefaultClient, at+path, ""); status != 404 {
			t.Errorf("%s is %d %.200q", path, status, body)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "rebound.example"
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 403 {
		t.Errorf("another name is answered with %d", resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := errors.Join(d.Server.Shutdown(t.Context()), <-served); err != nil {
		t.Error(err)
	}
}
