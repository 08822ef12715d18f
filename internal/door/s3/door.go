package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"holt"
	"holt/internal/access"
)

// Keys judges the keys that requests are signed with.
type Keys interface {
	// Of returns the token of a key, and its secret; Unauthenticated: there is no such key.
	Of(ctx context.Context, id string) (access.Token, string, error)
	// Used notes that a request had a valid signature with a key of the token.
	Used(ctx context.Context, token access.Token)
	// Hold returns a context for a request with the token: it ends when that is revoked or expires.
	Hold(ctx context.Context, token access.Token) (context.Context, context.CancelFunc)
}

// Objects is what clients reach. version "" is the newest; it may be a delete marker.
type Objects interface {
	Buckets(ctx context.Context) ([]holt.Bucket, error)
	Bucket(ctx context.Context, name string) (holt.Bucket, error)
	CreateBucket(ctx context.Context, spec holt.BucketSpec, key string) (holt.Bucket, error)
	UpdateBucket(ctx context.Context, name string, change holt.BucketChange, key string) (holt.Bucket, error)
	RemoveBucket(ctx context.Context, name string) error
	// BucketSettings are a text that only this package reads.
	BucketSettings(ctx context.Context, bucket string) (string, error)
	ChangeBucketSettings(ctx context.Context, bucket string, change func(string) (string, error)) error

	Objects(ctx context.Context, q holt.ObjectQuery) (holt.ObjectPage, error)
	Object(ctx context.Context, bucket, name string, version holt.ArtifactID) (holt.Object, error)
	// ObjectPart returns the nth part that an object was made of, and its offset.
	ObjectPart(ctx context.Context, o holt.Object, n int) (holt.ObjectPart, int64, error)
	ReadObject(ctx context.Context, o holt.Object, off, n int64, w io.Writer) error
	PutObject(ctx context.Context, spec holt.ObjectPut, r io.Reader) (holt.Object, error)
	// ChangeObject changes tags, retention, hold and headers: change sets them.
	ChangeObject(ctx context.Context, bucket, name string, version holt.ArtifactID, change func(*holt.Object) error) error
	DeleteObject(ctx context.Context, d holt.ObjectDelete) (holt.Object, error)

	CreateUpload(ctx context.Context, spec holt.ObjectPut) (holt.ObjectUpload, error)
	Uploads(ctx context.Context, bucket string) ([]holt.ObjectUpload, error)
	Parts(ctx context.Context, bucket, name string, id holt.ArtifactID, from, limit int) (holt.ObjectUpload, []holt.ObjectPart, error)
	PutPart(ctx context.Context, bucket, name string, id holt.ArtifactID, number int, r io.Reader, late func() map[string]string) (holt.ObjectPart, error)
	AbortUpload(ctx context.Context, bucket, name string, id holt.ArtifactID) error
	CompleteUpload(ctx context.Context, bucket, name string, id holt.ArtifactID, parts []holt.ObjectPart, c holt.ObjectCondition, headers map[string]string) (holt.Object, error)
}

// Options configure a [Door]. Keys and Objects must be set.
type Options struct {
	Keys     Keys
	Objects  Objects
	Names    []string       // host names, below which buckets are host names too
	Calls    *access.Rate   // of each token; nil: any number
	Tenants  *access.Rate   // of all tokens of a tenant but an admin's; nil: any number
	Failures *access.Rate   // of requests without a valid signature, by where they come from; nil: any number
	Trusted  access.Proxies // in front of the door, whose word on who calls is taken
	Patience time.Duration  // timeout of one read or write of a slow client; 0: a minute
	Open     int            // requests of a token that are open at once; 0: 200
	Now      func() time.Time
	Log      *slog.Logger
	// Record writes down what a request did; nil: nothing is.
	Record func(ctx context.Context, e holt.AuditEntry)
}

// Door answers on any number of listeners.
type Door struct {
	opt    Options
	log    *slog.Logger
	now    func() time.Time
	server *http.Server
	open   access.Counts
	own    access.Rate // of each computer
}

// New returns a door.
func New(opt Options) *Door {
	if opt.Patience == 0 {
		opt.Patience = time.Minute
	}
	if opt.Open == 0 {
		opt.Open = 200
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	d := &Door{opt: opt, log: opt.Log, now: opt.Now, open: access.Counts{What: "requests"}, own: access.Rate{PerSecond: 50, Burst: 500}}
	d.server = &http.Server{
		Handler: d, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(opt.Log.Handler(), slog.LevelDebug),
	}
	return d
}

// Serve answers requests of a listener. It returns nil after Shutdown or Close.
func (d *Door) Serve(l net.Listener) error {
	if err := d.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown refuses new requests and waits for those in flight, until ctx ends.
func (d *Door) Shutdown(ctx context.Context) error { return d.server.Shutdown(ctx) }

// Close cuts every request at once.
func (d *Door) Close() error { return d.server.Close() }

// call is one request and its answer.
type call struct {
	http.ResponseWriter
	d      *Door
	r      *http.Request
	ctx    context.Context // with the caller
	slow   *slow
	id     string
	query  url.Values
	own    bool // a computer's
	remote string

	bucket, key string
	op          string
	payload     string  // hash of the body, or what stands for it
	signer      *signer // of its chunks; nil: they are not signed
	status      int
	err         error
	code        string // of S3, of err
}

// ServeHTTP answers a request with a signature.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.serve(w, r, nil) }

// Own answers a computer's requests, which reach what it has published. who returns the computer.
func (d *Door) Own(who func(context.Context) (holt.Actor, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, who) })
}

func (d *Door) serve(w http.ResponseWriter, r *http.Request, who func(context.Context) (holt.Actor, error)) {
	began := time.Now()
	c := &call{d: d, r: r, id: holt.NewRequestID(), own: who != nil, remote: d.opt.Trusted.Remote(r)}
	c.slow = &slow{ResponseWriter: w, ctl: http.NewResponseController(w), in: r.Body, patience: d.opt.Patience}
	c.slow.ended.Store(r.ContentLength == 0)
	c.ResponseWriter = c.slow
	c.ctx = holt.WithRequestID(r.Context(), c.id)
	c.Header().Set("X-Amz-Request-Id", c.id)
	r.Body = c.slow
	_ = c.slow.ctl.SetWriteDeadline(time.Time{}) // of the connection's request before
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			d.log.Error("panic", "request", c.id, "panic", p, "stack", string(debug.Stack()))
			c.code = "InternalError"
			if c.status == 0 {
				c.refuse(errors.New("panic"))
			} else {
				c.ended(began)
				panic(http.ErrAbortHandler)
			}
		} else if p != nil {
			c.ended(began)
			panic(p)
		}
		c.ended(began)
	}()
	if err := c.admitted(who); err != nil {
		c.refuse(err)
	}
}

// admitted checks who sends a request, and answers it.
func (c *call) admitted(who func(context.Context) (holt.Actor, error)) error {
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return fail("InvalidURI", "The query is not valid.")
	}
	if err := c.place(); err != nil {
		return err
	}
	if c.r.Method == http.MethodOptions {
		return c.failed(c.preflight())
	}
	if who != nil {
		actor, err := who(c.ctx)
		if err != nil {
			return err
		}
		c.ctx, c.payload = holt.WithActor(c.ctx, actor), c.r.Header.Get(contentHash)
		if wait := c.d.own.Take(string(actor.Computer)); wait > 0 {
			return fail("SlowDown", "This computer makes too many requests.")
		}
		c.answer()
		return nil
	}
	token, err := c.authenticate()
	if err != nil {
		return c.failed(err)
	}
	c.ctx = holt.WithActor(c.ctx, token.Actor())
	if c.d.opt.Calls.Take(string(token.ID)) > 0 || !token.Rights.Admin && c.d.opt.Tenants.Take(token.Tenant) > 0 {
		return fail("SlowDown", "The token, or its tenant, makes too many requests.")
	}
	shares := []access.Share{{Of: " of the token " + string(token.ID), Most: c.d.opt.Open}}
	if !token.Rights.Admin {
		shares = append(shares, access.Share{Of: " of the tenant " + token.Tenant, Most: 2 * c.d.opt.Open})
	}
	leave, err := c.d.open.Enter(shares...)
	if err != nil {
		return fail("SlowDown", "%s", err)
	}
	defer leave()
	ctx, end := c.d.opt.Keys.Hold(c.ctx, token)
	defer end()
	c.ctx = ctx
	defer context.AfterFunc(ctx, func() {
		if holt.CodeOf(context.Cause(ctx)) == holt.Unauthenticated {
			c.slow.cut()
		}
	})()
	c.answer()
	return nil
}

// failed counts a request without a valid signature that failed.
func (c *call) failed(err error) error {
	if err != nil && c.d.opt.Failures.Take(holt.Source(c.remote)) > 0 {
		return fail("SlowDown", "This address made too many requests without a valid signature.")
	}
	return err
}

// answer answers a request while its context lasts.
func (c *call) answer() {
	if err := hoisted(c.r.Header, c.query); err != nil {
		c.refuse(err)
		return
	}
	if c.bucket != "" && c.r.Header.Get("Origin") != "" {
		if s, err := c.settings(); err == nil {
			c.share(s.CORS, c.r.Method, nil)
		}
	}
	if err := c.route(); err != nil {
		c.refuse(err)
	}
}

// place finds the bucket and the key of a request, by its host or its path.
func (c *call) place() error {
	path := strings.TrimPrefix(c.r.URL.Path, "/")
	host := strings.ToLower(c.r.Host)
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	for _, name := range c.d.opt.Names {
		if bucket, below := strings.CutSuffix(host, "."+name); below && !c.own && !c.named(host) {
			c.bucket, c.key = bucket, path
			return c.valid()
		}
	}
	c.bucket, c.key, _ = strings.Cut(path, "/")
	return c.valid()
}

// named reports whether a host is the door itself.
func (c *call) named(host string) bool {
	for _, name := range c.d.opt.Names {
		if host == name {
			return true
		}
	}
	return false
}

func (c *call) valid() error {
	if !utf8.ValidString(c.key) || !utf8.ValidString(c.query.Get("prefix")+c.query.Get("delimiter")) {
		return fail("InvalidURI", "Names must be UTF-8.")
	}
	if len(c.key) > holt.MostArtifactName {
		return fail("KeyTooLongError", "Your key is too long")
	}
	return nil
}

func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *call) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	return c.ResponseWriter.Write(p)
}

func (c *call) bodyEnded() bool { return c.slow.ended.Load() }

// xml answers with a document.
func (c *call) xml(status int, v any) {
	c.Header().Set("Content-Type", "application/xml")
	c.WriteHeader(status)
	_, _ = io.WriteString(c, xml.Header) // a caller who hung up needs no answer
	_ = xml.NewEncoder(c).Encode(v)
}

// ended logs a request, and writes down what it changed or was refused.
func (c *call) ended(began time.Time) {
	took := time.Since(began)
	looked := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead || c.r.Method == http.MethodOptions
	c.d.log.Debug("s3 request", "request", c.id, "method", c.r.Method, "op", c.op, "bucket", holt.Clip(c.bucket, 80), "status", c.status, "code", c.code, "ms", took.Milliseconds())
	refused := c.status == http.StatusForbidden || c.code == "SlowDown"
	if c.d.opt.Record == nil || looked && !refused {
		return
	}
	e := holt.AuditEntry{Door: "s3", Remote: c.remote, Op: c.op, Noun: "artifacts", Ref: c.bucket + "/" + c.key, Code: "ok", Status: c.status, Request: c.id, TookMS: float64(took.Microseconds()) / 1000}
	if e.Op == "" {
		e.Op = c.r.Method
	}
	if c.own {
		e.Door = "guest"
	}
	if c.err != nil {
		e.Code = string(holt.CodeOf(c.err))
		if f := (*failure)(nil); errors.As(c.err, &f) {
			e.Code = f.code
		}
	}
	c.d.opt.Record(context.WithoutCancel(c.ctx), e)
}
