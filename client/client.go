// Package client is the Go client of holt's API: over the unix socket of a
// daemon on this machine, or over HTTP(S) with a token.
//
// It is not a cache and holds no state of the daemon. Its nouns (Computers,
// Runs, …) have the method sets of the server's nouns, so that what is true on
// one side of the wire is true on the other. Errors are [*holt.Error] as the
// daemon made them; a daemon that does not answer is Unavailable.
//
// A daemon may be restarted under its clients: a call whose connection breaks
// is sent again (with its idempotency key, which is made up when the caller
// gives none) until Options.Patience has passed, and a followed run or an attached terminal continues at
// the offset it had reached. Only a client that never had an answer, of any
// call, fails at once when its connection is refused: then there is no daemon.
// Standard input and file uploads are never sent twice, but they too wait for
// a daemon that was there to take the connection.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"holt"
	"holt/internal/api"
)

const (
	mostError = 1 << 20  // bytes of an error's JSON
	mostReply = 64 << 20 // bytes of any other JSON answer
	quiet     = 45 * time.Second
)

// Options say where the daemon is. Exactly one of Socket and Host is set.
type Options struct {
	Socket      string // path of the daemon's unix socket, of any length
	Host        string // host:port, or a URL beginning with http:// or https://
	Token       string // bearer token for Host
	Tenant      string // for which tenant an admin calls; "": its own
	CA          []byte // PEM certificates that the certificate of an https Host may be signed by, besides the system's
	Fingerprint string // SHA-256, hexadecimal, of the only certificate that it may show, signed or not; "": any that is signed

	Patience time.Duration // how long a daemon may be away before a call fails; 0: one minute
}

// Client calls one daemon. Its nouns may be used from many goroutines.
type Client struct {
	Computers      Computers
	Snapshots      Snapshots
	Runs           Runs
	Terminals      Terminals
	Ports          Ports
	Services       Services
	Files          Files
	Workspaces     Workspaces
	WorkspaceFiles Files // of workspaces: / is the top of one
	ArtifactFiles  Files // of artifacts that are directories: / is the top of one
	History        History
	Archive        Archive
	Images         Images
	Schedules      Schedules
	Jobs           Jobs
	Networks       Networks
	Limits         Limits
	Stats          Stats
	Secrets        Secrets
	SSH            SSH
	SSHKeys        SSHKeys
	S3Keys         S3Keys
	Previews       Previews
	Events         Events
	Uploads        Uploads
	Artifacts      Artifacts
	Tokens         Tokens
	Audit          Audit
	Daemon         Daemon

	http     *http.Client
	url      string // without a trailing slash
	place    string // for people: where the daemon should be
	token    string
	tenant   string
	patience time.Duration
	reached  atomic.Bool // something answered once
}

// New returns a client. It does no I/O.
func New(opt Options) (*Client, error) {
	c := &Client{token: opt.Token, tenant: opt.Tenant, patience: opt.Patience}
	if c.patience == 0 {
		c.patience = time.Minute
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     time.Minute, // the server waits longer, so that it never closes under a call
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
	switch {
	case (opt.Socket == "") == (opt.Host == ""):
		return nil, holt.Errorf(holt.InvalidArgument, "a client needs either a socket or a host")
	case opt.Socket != "":
		c.url, c.place = "http://holt", opt.Socket
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialSocket(ctx, opt.Socket)
		}
	default:
		u, err := parseHost(opt.Host)
		if err != nil {
			return nil, err
		}
		c.url, c.place = u, opt.Host
		transport.Proxy = http.ProxyFromEnvironment
		transport.DialContext = new(net.Dialer).DialContext
		if transport.TLSClientConfig, err = trust(opt); err != nil {
			return nil, err
		}
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect would carry the token elsewhere
	}}
	c.Computers, c.Snapshots, c.Networks, c.Limits, c.Stats, c.Secrets, c.Tokens, c.Audit = Computers{c}, Snapshots{c}, Networks{c}, Limits{c}, Stats{c}, Secrets{c}, Tokens{c}, Audit{c}
	c.Runs, c.Terminals, c.Files = Runs{c}, Terminals{c}, Files{c: c}
	c.Ports, c.Services, c.Previews = Ports{c}, Services{c}, Previews{c}
	c.SSH, c.SSHKeys, c.S3Keys = SSH{c}, SSHKeys{c}, S3Keys{c}
	c.Workspaces, c.WorkspaceFiles = Workspaces{c}, Files{c: c, workspaces: true}
	c.History, c.Archive, c.Events, c.Uploads, c.Artifacts, c.ArtifactFiles = History{c}, Archive{c}, Events{c}, Uploads{c}, Artifacts{c}, Files{c: c, artifacts: true}
	c.Images, c.Schedules, c.Jobs, c.Daemon = Images{c}, Schedules{c}, Jobs{c}, Daemon{c}
	return c, nil
}

// Close lets idle connections go.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func parseHost(host string) (string, error) {
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	u, err := url.Parse(host)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return "", holt.Errorf(holt.InvalidArgument, "%q is not a daemon's address", host).
			WithHint("use HOST:PORT, or http(s)://HOST:PORT")
	}
	return u.Scheme + "://" + u.Host, nil
}

// dialSocket connects through /proc/self/fd, since a socket's address holds at
// most 107 bytes and paths may be longer.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) < 100 {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
	}
	defer dir.Close()
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// call is one HTTP request to make.
type call struct {
	method string
	path   string // escaped; from join
	query  url.Values
	header http.Header
	key    string    // idempotency key; keyed says whether one is sent
	keyed  bool      // the call changes something
	body   any       // sent as JSON
	raw    io.Reader // sent as it comes, once
	size   int64     // bytes of raw; 0: unknown
}

// join makes a path of literal and caller-given segments.
func join(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// checkPath refuses what the way to the server would take for another path.
func checkPath(p string) error {
	for s := range strings.SplitSeq(p[1:], "/") {
		if s == "" || s == "." || s == ".." {
			return holt.Errorf(holt.InvalidArgument, "invalid name %q", s).
				WithHint("names are 1 to 63 characters a-z, 0-9 and -, and neither start nor end with -")
		}
	}
	return nil
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	if err := checkPath(k.path); err != nil {
		return nil, err
	}
	body := k.raw
	if k.body != nil {
		data, err := json.Marshal(k.body)
		if err != nil {
			return nil, fmt.Errorf("encode the call: %w", err)
		}
		body = bytes.NewReader(data)
	}
	target := c.url + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("make the call: %w", err)
	}
	for name, values := range k.header {
		r.Header[name] = values
	}
	if k.body != nil {
		r.Header.Set("Content-Type", "application/json")
	} else if k.raw != nil {
		r.Header.Set("Content-Type", "application/octet-stream")
		if k.size > 0 {
			r.ContentLength = k.size
		}
	}
	if k.keyed && k.key != "" {
		r.Header.Set("Idempotency-Key", k.key)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.tenant != "" {
		r.Header.Set("Holt-Tenant", c.tenant)
	}
	return r, nil
}

// open makes one attempt at a call and returns the answer's body if the daemon
// did not refuse.
func (c *Client) open(ctx context.Context, k call) (*http.Response, error) {
	r, err := c.request(ctx, k)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	c.reached.Store(true)
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, decodeError(resp)
	}
	return resp, nil
}

// json makes a call whose answer is JSON, again and again if its connection
// breaks. out may be nil.
func (c *Client) json(ctx context.Context, k call, out any) error {
	if k.keyed && k.key == "" {
		k.key = newKey()
	}
	var w wait
	for {
		err := c.once(ctx, k, out)
		var lost *lostError
		if !errors.As(err, &lost) || !c.again(ctx, &w, lost) {
			return err
		}
	}
}

func (c *Client) once(ctx context.Context, k call, out any) error {
	resp, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostReply+1))
	switch {
	case err != nil:
		return c.broken(ctx, err)
	case len(data) > mostReply:
		return holt.Errorf(holt.TooMany, "the daemon's answer is larger than %d MiB", mostReply>>20)
	case out == nil:
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // what has no type may be a 64-bit integer
	if err := dec.Decode(out); err != nil {
		return holt.Errorf(holt.Internal, "the daemon's answer is invalid: %w", err).
			WithHint("compare the versions of command and daemon: holt version")
	}
	return nil
}

// do makes a call that may be sent again if its connection breaks.
func do[In, Out any](ctx context.Context, c *Client, e api.Call[In, Out], in In) (out Out, err error) {
	k := callOf(e, in)
	if _, none := any(out).(api.None); none {
		return out, c.json(ctx, k, nil)
	}
	err = c.json(ctx, k, &out)
	return out, err
}

// doNone is [do] for calls without an answer.
func doNone[In any](ctx context.Context, c *Client, e api.Call[In, api.None], in In) error {
	_, err := do(ctx, c, e, in)
	return err
}

// callOf is the HTTP request of an endpoint's input.
func callOf[In, Out any](e api.Call[In, Out], in In) call { return encoded(e.Endpoint, e.Encode(&in)) }

// doList collects all pages of a list.
func doList[In, Item any](ctx context.Context, c *Client, e api.List[In, Item], in In) ([]Item, error) {
	r := e.Encode(&in)
	return list[Item](ctx, c, r.Path, r.Query)
}

// encoded is the HTTP request of an encoded input. A call that changes something has an idempotency key.
func encoded(e *api.Endpoint, r api.Request) call {
	key := r.Header.Get("Idempotency-Key")
	r.Header.Del("Idempotency-Key")
	return call{method: e.Method, path: r.Path, query: r.Query, header: r.Header, body: r.Body, keyed: e.Keyed(), key: key}
}

// sent makes a call that cannot be sent twice. It waits for a daemon that is
// being restarted only as long as no connection was made.
func sent[T any](ctx context.Context, c *Client, attempt func() (T, error)) (T, error) {
	var w wait
	for {
		out, err := attempt()
		var lost *lostError
		if !errors.As(err, &lost) || !lost.dial || !c.again(ctx, &w, lost) {
			return out, err
		}
	}
}

// list collects all pages.
func list[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	all := []T{}
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", "1000")
	for {
		var page holt.Page[T]
		if err := c.json(ctx, call{method: http.MethodGet, path: path, query: query}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" || page.Next == query.Get("cursor") {
			return all, nil
		}
		query.Set("cursor", page.Next)
	}
}

func newKey() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
