package artifact

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

// world is a store with a clock that the test moves.
type world struct {
	*Store
	t   *testing.T
	cfg Config
	now atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	d, err := db.Open(filepath.Join(dir, "holt.db"), Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	place, err := chunk.OpenDir(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	archive, err := chunk.Open(t.Context(), dir, chunk.Options{Store: place})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { archive.Close() })
	w := &world{t: t}
	w.now.Store(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	w.cfg = Config{DB: d, Keys: idempotency.New(d), Archive: archive, Now: func() time.Time { return time.Unix(0, w.now.Load()) }, Log: slog.New(slog.DiscardHandler)}
	w.open()
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	s, err := Open(w.t.Context(), w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Store = s
}

func (w *world) later(d time.Duration) {
	w.t.Helper()
	w.now.Add(int64(d))
	if err := w.rulesOnce(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) bucket(spec holt.BucketSpec) {
	w.t.Helper()
	if _, err := w.CreateBucket(w.t.Context(), spec, ""); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) put(bucket, name string, retain time.Duration) holt.Artifact {
	w.t.Helper()
	a, err := w.Put(w.t.Context(), holt.ArtifactPut{Bucket: bucket, Name: name, RetainMS: retain.Milliseconds()}, strings.NewReader(name))
	if err != nil {
		w.t.Fatal(err)
	}
	w.now.Add(1)
	return a
}

// has compares the artifacts of a bucket; * is the newest of a name.
func (w *world) has(bucket, want string) {
	w.t.Helper()
	page, err := w.List(w.t.Context(), holt.ArtifactQuery{Bucket: bucket, Versions: true})
	if err != nil {
		w.t.Fatal(err)
	}
	var got []string
	for _, a := range page.Items {
		name := a.Name + "=" + a.Tags["v"]
		if a.Newest {
			name += "*"
		}
		got = append(got, name)
	}
	if said := strings.Join(got, " "); said != want {
		w.t.Errorf("%s has %q, not %q", bucket, said, want)
	}
}

func (w *world) change(ref string, change holt.ArtifactChange) {
	w.t.Helper()
	if _, err := w.Update(w.t.Context(), ref, change, ""); err != nil {
		w.t.Fatal(err)
	}
}

// version is put of a version with a tag that names it.
func (w *world) version(bucket, name, v string, retain time.Duration) string {
	w.t.Helper()
	a := w.put(bucket, name, retain)
	w.change(string(a.ID), holt.ArtifactChange{Tags: map[string]*string{"v": &v}})
	return string(a.ID)
}

// TestExpiry: artifacts are deleted at their age, but not while they are retained or on hold, and the newest of a name is right.
func TestExpiry(t *testing.T) {
	w := newWorld(t)
	on, off := true, false
	w.bucket(holt.BucketSpec{Name: "logs", ExpireMS: time.Hour.Milliseconds()})
	w.bucket(holt.BucketSpec{Name: "other"})
	w.version("other", "a", "1", 0)
	w.version("logs", "a", "1", 0)
	w.version("logs", "retained", "1", 2*time.Hour)
	held := w.version("logs", "held", "1", 0)
	w.version("logs", "held", "2", 0)
	w.change(held, holt.ArtifactChange{Hold: &on})
	w.later(59 * time.Minute)
	w.has("logs", "a=1* held=2* held=1 retained=1*")
	w.later(2 * time.Minute)
	w.has("logs", "held=1* retained=1*")
	w.version("logs", "young", "1", 0)
	w.later(time.Hour - time.Minute)
	w.has("logs", "held=1* young=1*")
	// A change of the setting counts for those that are there; one that was due, and is not by now, stays.
	day := 24 * time.Hour.Milliseconds()
	if b, err := w.UpdateBucket(t.Context(), "logs", holt.BucketChange{ExpireMS: &day}, ""); err != nil || b.ExpireMS != day {
		t.Fatal(b, err)
	}
	w.change(held, holt.ArtifactChange{Hold: &off})
	w.later(0)
	w.has("logs", "held=1* young=1*")
	w.later(24 * time.Hour)
	w.has("logs", "")
	w.has("other", "a=1*")
}

// TestKeep: of a name the newest versions are kept, those that were retained or on hold are deleted when that ends, and a change
// of the setting counts for the versions that are there. The loop does it by itself.
func TestKeep(t *testing.T) {
	w := newWorld(t)
	w.bucket(holt.BucketSpec{Name: "builds", Keep: 2})
	w.version("builds", "app", "1", time.Hour)
	for _, v := range []string{"2", "3", "4"} {
		w.version("builds", "app", v, 0)
	}
	w.version("builds", "lib", "1", 0)
	w.has("builds", "app=4* app=3 app=1 lib=1*")
	w.later(61 * time.Minute)
	w.has("builds", "app=4* app=3 lib=1*")
	one := 1
	if _, err := w.UpdateBucket(t.Context(), "builds", holt.BucketChange{Keep: &one}, ""); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		b, err := w.Bucket(t.Context(), "builds")
		if err != nil || time.Now().After(end) {
			t.Fatal(b, err)
		}
		if b.Artifacts == 2 {
			break
		}
	}
	w.has("builds", "app=4* lib=1*")
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []holt.BucketChange{{}, {Keep: ptr(-1)}, {Keep: ptr(1001)}, {ExpireMS: ptr(int64(-1))}, {QuotaMB: ptr(int64(-1))}, {RetainMS: ptr(int64(-1))}, {Scan: ptr("relative")},
		{Scan: ptr("/no/such/program")}, {Scan: ptr("http://")}, {Scan: ptr("https://user:secret@host/")}, {Scan: ptr("/bin/true\n")}, {Scan: ptr(plain)}} {
		if _, err := w.UpdateBucket(t.Context(), "builds", wrong, ""); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// TestManyExpire: more artifacts than a transaction changes.
func TestManyExpire(t *testing.T) {
	w := newWorld(t)
	w.bucket(holt.BucketSpec{Name: "many", ExpireMS: 1000})
	err := w.cfg.DB.Write(t.Context(), func(tx *db.Tx) error {
		return tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
			INSERT INTO artifact (id, bucket, name, version, newest, state, size, body, type, created, computer, called) SELECT 'art_' || i, 1, 'name/' || (i / 5), i, i % 5 = 4, 'ready', 1, x'00', '', ?, '', '' FROM n`, w.now.Load())
	})
	if err != nil {
		t.Fatal(err)
	}
	w.later(2 * time.Second)
	b, err := w.Bucket(t.Context(), "many")
	if err != nil || b.Artifacts != 0 || w.used("many") != 0 {
		t.Errorf("%+v, %d bytes are used: %v", b, w.used("many"), err)
	}
}

func (w *world) used(name string) (n int64) {
	w.t.Helper()
	err := w.cfg.DB.Read(w.t.Context(), func(tx *db.Tx) error {
		return tx.Query(`SELECT used FROM bucket WHERE name = ?`, []any{name}, func(r *db.Row) error { n = r.Int64(0); return nil })
	})
	if err != nil {
		w.t.Error(err)
	}
	return n
}

// endless is a reader that fails the test if it is read beyond a number of bytes.
type endless struct {
	t    *testing.T
	left int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left -= len(p); e.left < 0 {
		e.t.Error("it was read on, although its bucket is full")
		return 0, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

// TestQuota: concurrent puts do not exceed the quota of a bucket, an endless one ends at it, and one of a known size is not read.
func TestQuota(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.bucket(holt.BucketSpec{Name: "small", QuotaMB: 2})
	_, err := w.Put(ctx, holt.ArtifactPut{Bucket: "small", Name: "known", Size: 3 << 20}, &endless{t, 0})
	if holt.CodeOf(err) != holt.OutOfSpace {
		t.Error(err)
	}
	if _, err := w.Put(ctx, holt.ArtifactPut{Bucket: "small", Name: "endless"}, &endless{t, 3 << 20}); holt.CodeOf(err) != holt.OutOfSpace {
		t.Error(err)
	}
	var wg sync.WaitGroup
	var stored atomic.Int64
	for i := range 16 {
		wg.Go(func() {
			spec := holt.ArtifactPut{Bucket: "small", Name: fmt.Sprint(i)}
			if i%2 == 0 {
				spec.Size = 300 << 10
			}
			_, err := w.Put(ctx, spec, bytes.NewReader(bytes.Repeat([]byte{byte(i)}, 300<<10)))
			if err == nil {
				stored.Add(300 << 10)
			} else if holt.CodeOf(err) != holt.OutOfSpace {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b, err := w.Bucket(ctx, "small")
	if err != nil || b.Bytes != stored.Load() || b.Bytes > 2<<20 || b.Bytes == 0 || w.used("small") != b.Bytes {
		t.Errorf("%+v with %d bytes, %d used: %v", b, stored.Load(), w.used("small"), err)
	}
	page, err := w.List(ctx, holt.ArtifactQuery{Bucket: "small"})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range page.Items {
		if err := w.Delete(ctx, string(a.ID), ""); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.Put(ctx, holt.ArtifactPut{Bucket: "small", Name: "fits"}, bytes.NewReader(make([]byte, 2<<20))); err != nil {
		t.Errorf("after all are deleted, %d used: %v", w.used("small"), err)
	}
	if _, err := w.Put(ctx, holt.ArtifactPut{Bucket: "small", Name: "one more"}, strings.NewReader("x")); holt.CodeOf(err) != holt.OutOfSpace {
		t.Error(err)
	}
	// A quota that is set while bytes arrive counts too.
	w.bucket(holt.BucketSpec{Name: "later"})
	r, in := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := w.Put(ctx, holt.ArtifactPut{Bucket: "later", Name: "a"}, r)
		done <- err
	}()
	in.Write(make([]byte, 2<<20))
	if _, err := w.UpdateBucket(ctx, "later", holt.BucketChange{QuotaMB: ptr(int64(1))}, ""); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := <-done; holt.CodeOf(err) != holt.OutOfSpace {
		t.Error(err)
	}
	_, err = w.Get(ctx, "later/a")
	if holt.CodeOf(err) != holt.NotFound {
		t.Error(err)
	}
}
