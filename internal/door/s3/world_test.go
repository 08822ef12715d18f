package s3_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"holt"
	"holt/internal/access"
	"holt/internal/artifact"
	"holt/internal/authz"
	"holt/internal/control"
	"holt/internal/door/s3"
	"holt/internal/idempotency"
	"holt/internal/nouns"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

// world is a door on a real listener, over real artifacts, tokens and an archive. Its computers have names only.
type world struct {
	t       testing.TB
	db      *db.DB
	archive *chunk.Archive
	store   *artifact.Store
	tokens  *access.Tokens
	keys    *access.S3Keys
	door    *s3.Door
	addr    string
	fail    func(point string) error
	of      map[holt.ComputerID]holt.Computer
}

type computers struct {
	artifact.Computers
	w *world
}

func (c computers) Get(_ context.Context, ref string) (holt.Computer, error) {
	one, ok := c.w.of[holt.ComputerID(ref)]
	if !ok {
		return one, holt.Errorf(holt.NotFound, "there is no computer %s", ref)
	}
	return one, nil
}

func openWorld(t testing.TB) *world {
	t.Helper()
	dir, w := t.TempDir(), &world{t: t, of: map[holt.ComputerID]holt.Computer{}}
	var err error
	if w.db, err = db.Open(filepath.Join(dir, "holt.db"), control.Schema, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.db.Close() })
	packs, err := chunk.OpenDir(filepath.Join(dir, "packs"))
	if err != nil {
		t.Fatal(err)
	}
	if w.archive, err = chunk.Open(t.Context(), dir, chunk.Options{Store: packs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.archive.Close() })
	w.tokens = access.New(w.db)
	if w.keys, err = access.OpenS3Keys(w.tokens, filepath.Join(dir, "s3.key")); err != nil {
		t.Fatal(err)
	}
	w.open()
	t.Cleanup(func() { w.store.Close() })
	return w
}

// open opens the store and the door, as a daemon does that follows one that was killed.
func (w *world) open() {
	w.t.Helper()
	var err error
	w.store, err = artifact.Open(context.Background(), artifact.Config{DB: w.db, Keys: idempotency.New(w.db), Archive: w.archive, Computers: computers{nil, w}, Log: slog.New(slog.DiscardHandler),
		Fail: func(point string) error {
			if w.fail != nil {
				return w.fail(point)
			}
			return nil
		}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.door = s3.New(s3.Options{Keys: w.keys, Objects: authz.Objects(nouns.Set{}, w.store), Names: []string{"s3.test", "localhost"}, Log: slog.New(slog.DiscardHandler)})
	server := httptest.NewServer(w.door)
	w.t.Cleanup(server.Close)
	w.addr = server.Listener.Addr().String()
}

// key makes a token of a tenant, and a key of it.
func (w *world) key(tenant string, scopes ...holt.Scope) (id, secret string) {
	w.t.Helper()
	ctx := context.Background()
	token, _, err := w.tokens.CreateFor(ctx, tenant, "test", 0, scopes...)
	if err != nil {
		w.t.Fatal(err)
	}
	k, err := w.keys.Create(ctx, string(token.ID), func(*db.Tx, string) error { return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	return k.ID, w.keys.Secret(k.ID)
}

// client is a client of S3 with a key of its own.
func (w *world) client(tenant string, scopes ...holt.Scope) *minio.Client {
	w.t.Helper()
	id, secret := w.key(tenant, scopes...)
	c, err := minio.New(w.addr, &minio.Options{Creds: credentials.NewStaticV4(id, secret, ""), Region: "us-east-1"})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// ours is a context of the door's owner, for calls past the door.
func ours(t testing.TB) context.Context {
	return holt.WithActor(t.Context(), holt.Actor{Tenant: holt.DefaultTenant})
}

func noise(seed uint64, n int) []byte {
	b, r := make([]byte, n), rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// put stores an object.
func put(t testing.TB, c *minio.Client, bucket, name string, body []byte, opt minio.PutObjectOptions) minio.UploadInfo {
	t.Helper()
	info, err := c.PutObject(t.Context(), bucket, name, bytes.NewReader(body), int64(len(body)), opt)
	if err != nil {
		t.Fatalf("put %s/%s: %v", bucket, name, err)
	}
	return info
}

// get reads an object.
func get(t testing.TB, c *minio.Client, bucket, name string, opt minio.GetObjectOptions) ([]byte, error) {
	t.Helper()
	o, err := c.GetObject(t.Context(), bucket, name, opt)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return io.ReadAll(o)
}

// code is the code of S3 of an error.
func code(err error) string {
	if err == nil {
		return ""
	}
	return minio.ToErrorResponse(err).Code
}

func wantCode(t testing.TB, err error, want string) {
	t.Helper()
	if got := code(err); got != want {
		t.Errorf("the error is %q (%v), not %q", got, err, want)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// as sends requests of a computer.
func (w *world) as(id holt.ComputerID, method, path, body string) (int, string) {
	w.t.Helper()
	h := w.door.Own(func(ctx context.Context) (holt.Actor, error) {
		c, err := computers{nil, w}.Get(ctx, string(id))
		return holt.Actor{Computer: id, Name: c.Name, Tenant: c.Tenant}, err
	})
	r := httptest.NewRequest(method, "http://s3.holt.internal"+path, strings.NewReader(body))
	out := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
		}()
		h.ServeHTTP(out, r)
	}()
	return out.Code, fmt.Sprint(out.Body)
}

// hostStyle is a client that has buckets in host names.
func (w *world) hostStyle(id, secret string) *minio.Client {
	w.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, w.addr)
	}}
	c, err := minio.New("s3.test", &minio.Options{Creds: credentials.NewStaticV4(id, secret, ""), Region: "us-east-1", BucketLookup: minio.BucketLookupDNS, Transport: transport})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}
