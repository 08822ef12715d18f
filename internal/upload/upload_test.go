package upload

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// shelf is a target of uploads.
type shelf struct {
	mu      sync.Mutex
	written map[string][]byte
	wait    chan struct{} // Write waits until it is closed; nil: it does not
}

func (f *shelf) Known(_ context.Context, ref string) (string, error) { return ref, nil }

func (f *shelf) Write(ctx context.Context, ref, path string, _ holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	b, err := io.ReadAll(r)
	if f.wait != nil {
		select {
		case <-f.wait:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.written[path] = b
	}
	return holt.FileInfo{Path: holt.OSString(path), Size: int64(len(b))}, err
}

// world is a data directory.
type world struct {
	t   *testing.T
	dir string
	to  *shelf
	now time.Time
	cfg Config
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), to: &shelf{written: map[string][]byte{}}, now: time.Now()}
	d, err := db.Open(filepath.Join(w.dir, "control.db"), computer.Schema+Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	w.cfg = Config{DB: d, Keys: idempotency.New(d), Dir: filepath.Join(w.dir, "uploads"), Computers: w.to, Workspaces: w.to, Now: func() time.Time { return w.now }}
	return w
}

func (w *world) open() *Store {
	w.t.Helper()
	s, err := Open(w.t.Context(), w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	return s
}

func (w *world) create(s *Store, spec holt.UploadSpec) holt.Upload {
	w.t.Helper()
	spec.Workspace = "notes"
	u, err := s.Create(w.t.Context(), spec, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

var errKilled = errors.New("killed")

// TestKilled: if the daemon is killed during a piece or a commit, the next one continues from there, and commits what
// was sent. A failing step simulates the kill: nothing after it is written.
func TestKilled(t *testing.T) {
	data := random(5*pieceBytes + 1234)
	for _, point := range []string{"upload/append", "upload/written"} {
		for at := 1; at <= 6; at++ {
			w := newWorld(t)
			left := at
			w.cfg.Fail = func(p string) error {
				if p == point {
					if left--; left == 0 {
						return errKilled
					}
				}
				return nil
			}
			first := w.open()
			sum := sha256.Sum256(data)
			u := w.create(first, holt.UploadSpec{Path: "/file", Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])})
			_, err := first.Append(t.Context(), u.ID, 0, "", bytes.NewReader(data))
			if err == nil {
				_, err = first.Commit(t.Context(), u.ID, holt.UploadCommit{})
			}
			if !errors.Is(err, errKilled) && (point != "upload/written" || at == 1) {
				t.Fatalf("%s %d: %v", point, at, err)
			}
			first.Close()

			w.cfg.Fail = nil
			next := w.open()
			if u, err = next.Halt(t.Context(), u.ID); err != nil {
				t.Fatal(err)
			}
			if point == "upload/append" && u.Offset != int64(min(at*pieceBytes, len(data))) {
				t.Errorf("%s %d: the next daemon has %d bytes", point, at, u.Offset)
			}
			if u, err = next.Append(t.Context(), u.ID, u.Offset, "", bytes.NewReader(data[u.Offset:])); err != nil {
				t.Fatal(err)
			}
			if u, err = next.Commit(t.Context(), u.ID, holt.UploadCommit{}); err != nil || u.State != holt.UploadDone {
				t.Fatalf("%s %d: %+v %v", point, at, u, err)
			}
			if !bytes.Equal(w.to.written["/file"], data) {
				t.Errorf("%s %d: the file has the wrong content", point, at)
			}
			if entries, err := os.ReadDir(w.cfg.Dir); err != nil || len(entries) > 0 {
				t.Errorf("%s %d: left %v, %v", point, at, entries, err)
			}
		}
	}
}

// TestPieceKilled: an incomplete piece with a checksum does not count, also if the daemon is killed during it. The next
// daemon accepts a piece with or without a checksum at the same offset.
func TestPieceKilled(t *testing.T) {
	data := random(3*pieceBytes + 99)
	sum := func(b []byte) string {
		of := sha256.Sum256(b)
		return hex.EncodeToString(of[:])
	}
	for _, again := range []string{"", sum(data[100:])} {
		w := newWorld(t)
		s := w.open()
		u := w.create(s, holt.UploadSpec{Path: "/file", Size: int64(len(data)), SHA256: sum(data)})
		u, err := s.Append(t.Context(), u.ID, 0, sum(data[:100]), bytes.NewReader(data[:100]))
		if err != nil || u.Offset != 100 {
			t.Fatalf("%+v, %v", u, err)
		}
		s.Close()
		w.cfg.Fail = func(string) error { return errKilled }
		s = w.open()
		if _, err = s.Append(t.Context(), u.ID, 100, sum(data[100:]), bytes.NewReader(random(len(data)-100))); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		s.Close()
		if info, err := os.Stat(filepath.Join(w.cfg.Dir, string(u.ID))); err != nil || info.Size() != 100+pieceBytes {
			t.Fatalf("left: %+v, %v", info, err)
		}

		w.cfg.Fail = nil
		s = w.open()
		if u, err = s.Halt(t.Context(), u.ID); err != nil || u.Offset != 100 {
			t.Errorf("the incomplete piece counts: %+v, %v", u, err)
		}
		if u, err = s.Append(t.Context(), u.ID, 100, again, bytes.NewReader(data[100:])); err != nil || u.Offset != int64(len(data)) {
			t.Errorf("the piece again: %+v, %v", u, err)
		}
		if _, err = s.Commit(t.Context(), u.ID, holt.UploadCommit{}); err != nil || !bytes.Equal(w.to.written["/file"], data) {
			t.Errorf("the file has the wrong content: %v", err)
		}
	}
}

// dead is the body of a dead connection: it returns some bytes and then blocks.
type dead struct {
	bytes.Buffer
	left chan struct{}
	once sync.Once
}

func (d *dead) Abandon() { d.once.Do(func() { close(d.left) }) }

func (d *dead) Read(p []byte) (int, error) {
	if d.Len() > 0 {
		return d.Buffer.Read(p)
	}
	<-d.left
	return 0, errors.New("abandoned")
}

// TestTakenOver: a call that continues an upload does not wait for a dead connection, and every received byte counts.
func TestTakenOver(t *testing.T) {
	w := newWorld(t)
	s := w.open()
	data := random(3 * pieceBytes)
	for _, how := range []string{"halt", "append", "delete", "close"} {
		u := w.create(s, holt.UploadSpec{Path: "/" + holt.OSString(how), Size: int64(len(data))})
		body := &dead{left: make(chan struct{})}
		body.Write(data[:2*pieceBytes])
		ended := make(chan error, 1)
		go func() {
			_, err := s.Append(context.Background(), u.ID, 0, "", body)
			ended <- err
		}()
		for got := u; got.Offset < 2*pieceBytes; {
			var err error
			if got, err = s.Get(t.Context(), u.ID); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		switch how {
		case "halt":
			if u, err = s.Halt(t.Context(), u.ID); u.Offset != 2*pieceBytes {
				t.Errorf("halted at %d", u.Offset)
			}
		case "append":
			if u, err = s.Append(t.Context(), u.ID, 2*pieceBytes, "", bytes.NewReader(data[2*pieceBytes:])); err == nil {
				u, err = s.Commit(t.Context(), u.ID, holt.UploadCommit{})
			}
			if !bytes.Equal(w.to.written["/append"], data) {
				t.Error("the file has the wrong content")
			}
		case "delete":
			err = s.Delete(t.Context(), u.ID, "")
		case "close":
			s.Close()
		}
		if err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if err := <-ended; holt.CodeOf(err) != holt.Unavailable {
			t.Errorf("%s: the call that was taken over ended with %v", how, err)
		}
	}
}

// TestCommitWithoutCaller: a commit continues if its caller leaves, and a repeat gets its result.
func TestCommitWithoutCaller(t *testing.T) {
	w := newWorld(t)
	w.to.wait = make(chan struct{})
	s := w.open()
	u := w.create(s, holt.UploadSpec{Path: "/file", Size: 5})
	if _, err := s.Append(t.Context(), u.ID, 0, "", strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := s.Commit(ctx, u.ID, holt.UploadCommit{})
		left <- err
	}()
	for got := u; got.State != holt.UploadCommitting; {
		got, _ = s.Get(t.Context(), u.ID)
	}
	cancel()
	if err := <-left; err == nil {
		t.Error("the repeat did not wait for the commit")
	}
	again := make(chan holt.Upload)
	go func() {
		u, err := s.Commit(t.Context(), u.ID, holt.UploadCommit{})
		if err != nil {
			t.Error(err)
		}
		again <- u
	}()
	close(w.to.wait)
	if u := <-again; u.State != holt.UploadDone || string(w.to.written["/file"]) != "hello" {
		t.Errorf("%+v", u)
	}
}

// ending is a body that ends its caller's context after some bytes, or at its end, and can still be read.
type ending struct {
	bytes.Reader
	after int
	end   func()
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p[:min(len(p), 1<<10)])
	if read := int(e.Size()) - e.Len(); read == e.after && (err == io.EOF) == (e.Len() == 0) {
		e.end()
	}
	return n, err
}

// TestTokenEnds: when a call's token ends, no further byte counts and nothing is committed, not even by the last byte. A
// caller that only disconnects after the last byte still has the upload committed.
func TestTokenEnds(t *testing.T) {
	w := newWorld(t)
	s := w.open()
	data := random(3 * pieceBytes)
	gone := holt.Errorf(holt.Unauthenticated, "the token was revoked")
	for name, tt := range map[string]struct {
		after int
		cause error
		state holt.UploadState
	}{
		"/within":  {pieceBytes + 1<<10, gone, holt.UploadOpen},
		"/at-last": {len(data), gone, holt.UploadOpen},
		"/left":    {len(data), context.Canceled, holt.UploadDone},
	} {
		u := w.create(s, holt.UploadSpec{Path: holt.OSString(name), Size: int64(len(data)), AutoCommit: true})
		ctx, end := context.WithCancelCause(t.Context())
		body := &ending{after: tt.after, end: func() { end(tt.cause) }}
		body.Reset(data)
		_, _ = s.Append(ctx, u.ID, 0, "", body)
		got, err := s.Get(t.Context(), u.ID)
		for tt.state == holt.UploadDone && got.State != tt.state && err == nil { // the commit runs in the background
			got, err = s.Get(t.Context(), u.ID)
		}
		if err != nil || got.State != tt.state || got.Offset != int64(tt.after) {
			t.Errorf("%s: %s, at %d, %v", name, got.State, got.Offset, err)
		}
		if _, err := s.Commit(ctx, u.ID, holt.UploadCommit{}); tt.state == holt.UploadOpen && holt.CodeOf(err) != holt.Unauthenticated {
			t.Errorf("%s: a commit of that token: %v", name, err)
		}
		if _, there := w.to.written[name]; there != (tt.state == holt.UploadDone) {
			t.Errorf("%s: written %v", name, there)
		}
	}
}

// TestRoom: the declared sizes of a tenant take no room from another, its received bytes leave others room, and all
// uploads leave a part of the disk free.
func TestRoom(t *testing.T) {
	w := newWorld(t)
	const disk = 64 << 20
	w.cfg.Free = func() (int64, error) { // as of a disk
		free := int64(disk)
		entries, err := os.ReadDir(w.cfg.Dir)
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				free -= info.Size()
			}
		}
		return free, err
	}
	s := w.open()
	of := func(tenant string) context.Context {
		return holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: tenant})
	}
	begin := func(tenant string, size int64) (holt.Upload, error) {
		return s.Create(of(tenant), holt.UploadSpec{Workspace: "notes", Path: "/a", Size: size}, "")
	}
	var begun []holt.Upload
	for _, tenant := range []string{"greedy", "other", "third"} {
		u, err := begin(tenant, disk/2)
		if err != nil {
			t.Fatalf("%s: %v", tenant, err)
		}
		if _, err := begin(tenant, 1); holt.CodeOf(err) != holt.OutOfSpace {
			t.Errorf("%s, more than half: %v", tenant, err)
		}
		begun = append(begun, u)
	}
	if _, err := s.Append(of("greedy"), begun[0].ID, 0, "", bytes.NewReader(random(disk/2))); err != nil {
		t.Fatal(err)
	}
	if _, err := begin("late", disk/4); err != nil {
		t.Errorf("an upload of another tenant: %v", err)
	}
	if _, err := begin("late", 1); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("more than half of what is left: %v", err)
	}
	sent := random(disk / 2)
	u, err := s.Append(of("other"), begun[1].ID, 0, "", bytes.NewReader(sent))
	if holt.CodeOf(err) != holt.OutOfSpace || u.Offset != disk/4 {
		t.Errorf("the other tenant's upload stopped at %d: %v", u.Offset, err)
	}
	if err := s.Delete(of("greedy"), begun[0].ID, ""); err != nil {
		t.Fatal(err)
	}
	if u, err = s.Append(of("other"), u.ID, u.Offset, "", bytes.NewReader(sent[u.Offset:])); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if _, err = s.Commit(of("other"), u.ID, holt.UploadCommit{}); err != nil || !bytes.Equal(w.to.written["/a"], sent) {
		t.Errorf("the file has the wrong content: %v", err)
	}
}

// TestBounded: the size of a tenant's uploads is bounded, and abandoned uploads expire after a day.
func TestBounded(t *testing.T) {
	w := newWorld(t)
	w.cfg.Free = func() (int64, error) { return 2000, nil }
	s := w.open()
	u := w.create(s, holt.UploadSpec{Path: "/a", Size: 600})
	if _, err := s.Create(t.Context(), holt.UploadSpec{Workspace: "notes", Path: "/b", Size: 401}, ""); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("too much together: %v", err)
	}
	other := w.create(s, holt.UploadSpec{Path: "/b", Size: 400})
	if _, err := s.Append(t.Context(), u.ID, 0, "", bytes.NewReader(random(500))); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(holt.UploadKept - time.Minute)
	if _, err := s.Append(t.Context(), u.ID, 500, "", bytes.NewReader(random(50))); err != nil {
		t.Fatal(err)
	}
	idle, err := s.Append(t.Context(), other.ID, 0, "", bytes.NewReader(nil))
	if err != nil || !idle.ExpiresAt.Equal(other.ExpiresAt) {
		t.Errorf("an empty piece extended the expiry: %v, %v", idle.ExpiresAt, err)
	}
	w.now = w.now.Add(2 * time.Minute)
	if err := os.WriteFile(filepath.Join(w.cfg.Dir, "nobodys"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != u.ID || all[0].Offset != 550 {
		t.Errorf("after a day: %+v, %v", all, err)
	}
	w.now = w.now.Add(holt.UploadKept)
	s.Close()
	w.open()
	if entries, err := os.ReadDir(w.cfg.Dir); err != nil || len(entries) > 0 {
		t.Errorf("after another: %v, %v", entries, err)
	}
}

// TestLongPiece: an upload whose only call takes longer than a day survives a kill of the daemon during the call.
func TestLongPiece(t *testing.T) {
	w := newWorld(t)
	var later atomic.Int64
	w.cfg.Now = func() time.Time { return w.now.Add(time.Duration(later.Load())) }
	s := w.open()
	data := random(2 * pieceBytes)
	u := w.create(s, holt.UploadSpec{Path: "/long", Size: int64(len(data)) + 1})
	body, sender := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Append(context.Background(), u.ID, 0, "", body)
		ended <- err
	}()
	for sent := range 2 {
		if _, err := sender.Write(data[sent*pieceBytes:][:pieceBytes]); err != nil {
			t.Fatal(err)
		}
		for u.Offset < int64(sent+1)*pieceBytes {
			var err error
			if u, err = s.Get(t.Context(), u.ID); err != nil {
				t.Fatal(err)
			}
		}
		later.Add(int64(holt.UploadKept - time.Hour))
	}
	next := w.open() // without the memory of the first store
	if u, err := next.Get(t.Context(), u.ID); err != nil || u.Offset != int64(len(data)) {
		t.Errorf("at %d: %v", u.Offset, err)
	}
	sender.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestManyUploads: committed uploads do not count towards the limit, and the newest are kept for a while. The open uploads of a
// tenant limit only that tenant.
func TestManyUploads(t *testing.T) {
	w := newWorld(t)
	w.cfg.Free = func() (int64, error) { return 1 << 40, nil }
	s := w.open()
	var first, last holt.Upload
	for i := range holt.MostUploads + 2 {
		w.now = w.now.Add(time.Millisecond)
		u := w.create(s, holt.UploadSpec{Path: "/a"})
		done, err := s.Commit(t.Context(), u.ID, holt.UploadCommit{})
		if err != nil || done.State != holt.UploadDone {
			t.Fatal(i, done, err)
		}
		if last = done; i == 0 {
			first = done
		}
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != holt.MostUploads {
		t.Errorf("%d are kept, %v", len(all), err)
	}
	if _, err := s.Get(t.Context(), first.ID); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("the oldest: %v", err)
	}
	if again, err := s.Commit(t.Context(), last.ID, holt.UploadCommit{}); err != nil || again.State != holt.UploadDone {
		t.Errorf("the newest: %+v, %v", again, err)
	}
	for range holt.MostUploads {
		w.create(s, holt.UploadSpec{Path: "/a", Size: 1})
	}
	spec := holt.UploadSpec{Workspace: "notes", Path: "/a", Size: 1}
	if _, err := s.Create(t.Context(), spec, ""); holt.CodeOf(err) != holt.TooMany {
		t.Errorf("too many of a tenant: %v", err)
	}
	other := holt.WithActor(t.Context(), holt.Actor{Token: "tok_bbbbbbbbbbbbbbbb", Tenant: "other"})
	if _, err := s.Create(other, spec, ""); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

// TestTenants: a tenant cannot see another tenant's uploads, or whether they exist.
func TestTenants(t *testing.T) {
	w := newWorld(t)
	s := w.open()
	mine := holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: "mine"})
	other := holt.WithActor(t.Context(), holt.Actor{Token: "tok_bbbbbbbbbbbbbbbb", Tenant: "other"})
	u, err := s.Create(mine, holt.UploadSpec{Workspace: "notes", Path: "/a", Size: 5}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(other, u.ID)
	errs := []error{err}
	_, err = s.Append(other, u.ID, 0, "", strings.NewReader("hello"))
	errs = append(errs, err)
	_, err = s.Halt(other, u.ID)
	errs = append(errs, err)
	_, err = s.Commit(other, u.ID, holt.UploadCommit{})
	errs = append(errs, err, s.Delete(other, u.ID, ""))
	for i, err := range errs {
		if holt.CodeOf(err) != holt.NotFound {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if all, err := s.List(other); err != nil || len(all) != 0 {
		t.Errorf("listed %+v, %v", all, err)
	}
	if u, err = s.Get(mine, u.ID); err != nil || u.Offset != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}
