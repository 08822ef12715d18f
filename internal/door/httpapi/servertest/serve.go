package servertest

import (
	"context"
	"net"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/client"
	"holt/internal/access"
	"holt/internal/api"
	"holt/internal/door/httpapi"
	"holt/internal/nouns"
)

// Secret is the token that the server of [Serve] takes over TCP.
const Secret = "holt_test_secret"

// secretID is the id of its token.
const secretID holt.TokenID = "tok_aaaaaaaaaaaaaaaa"

// Tokens takes exactly [Secret].
type Tokens struct{}

// Check is httpapi.Tokens.
func (Tokens) Check(_ context.Context, secret string) (access.Token, error) {
	if secret != Secret {
		return access.Token{}, holt.Errorf(holt.Unauthenticated, "the token is not valid").WithHint("make one with holt token create")
	}
	return access.Token{ID: secretID, Tenant: holt.DefaultTenant, Rights: holt.Rights{Admin: true}}, nil
}

// Hold is httpapi.Tokens.
func (Tokens) Hold(ctx context.Context, _ access.Token) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// Everything lets everybody make every call.
type Everything struct{}

// Check is api.Authorizer.
func (Everything) Check(ctx context.Context, _ *api.Endpoint, _ any) (context.Context, error) {
	return ctx, nil
}

// Seen is api.Authorizer.
func (Everything) Seen(context.Context, *api.Endpoint, any) error { return nil }

// Door is a server on a unix socket and a TCP port.
type Door struct {
	Server *httpapi.Server
	Socket string
	Addr   string // of TCP

	wg sync.WaitGroup
}

// Options returns a test's server options for some nouns. Warnings and errors are in
// the test's log, with HOLT_TEST_LOG set every request.
func Options(t testing.TB, nouns nouns.Set) httpapi.Options {
	opt := httpapi.Options{Nouns: nouns, Authorize: Everything{}, Tokens: Tokens{}, Version: "test", Log: Log(logTo{t})}
	if log, ok := nouns.Audit.(httpapi.Auditor); ok { // it is one that has not been put behind anything
		opt.Audit = log
	}
	return opt
}

// logTo writes a log into a test's, as long as that runs.
type logTo struct{ t testing.TB }

func (l logTo) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(string(p))
	}
	return len(p), nil
}

// Serve starts a server at the given socket, or at a fresh one if it is "".
// The test's end closes it.
func Serve(t testing.TB, opt httpapi.Options, socket string) *Door {
	t.Helper()
	if socket == "" {
		socket = filepath.Join(t.TempDir(), "holt.sock")
	}
	local, err := httpapi.ListenLocal(socket)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &Door{Server: httpapi.New(opt), Socket: socket, Addr: tcp.Addr().String()}
	d.wg.Go(func() { report(t, d.Server.ServeLocal(local)) })
	d.wg.Go(func() { report(t, d.Server.ServeTCP(tcp)) })
	t.Cleanup(d.Kill)
	return d
}

func report(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}

// Kill cuts all connections, as the daemon's death does, and waits until
// nothing listens any more.
func (d *Door) Kill() {
	_ = d.Server.Close() // listeners that are closed twice
	d.wg.Wait()
}

// Client returns a client of the unix socket that waits up to patience for a
// daemon that is restarted.
func (d *Door) Client(t testing.TB, patience time.Duration) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Socket: d.Socket, Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// ClientNouns are the server's nouns on the other side of the wire: each is the client's field of the same name.
func ClientNouns(c *client.Client) (set nouns.Set) {
	from, to := reflect.ValueOf(c).Elem(), reflect.ValueOf(&set).Elem()
	for i := range to.NumField() {
		to.Field(i).Set(from.FieldByName(to.Type().Field(i).Name))
	}
	return set
}
