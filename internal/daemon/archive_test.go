package daemon_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/archive"
	"holt/internal/daemon"
	"holt/internal/workspace"
)

// small makes segments small enough for tests to have many.
var small = workspace.Options{SegmentSize: 128 << 10, KeepSegments: 1, FlushInterval: time.Millisecond, PackRetry: 10 * time.Millisecond}

func packing(t *testing.T, dir string) daemon.Config {
	cfg := config(t, dir)
	cfg.Workspace = small
	return cfg
}

// lines is text that compresses, the same for the same seed.
func lines(seed uint64, n int) string {
	rng := rand.New(rand.NewPCG(seed, 0))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "line %d of many\n", rng.IntN(1<<20))
	}
	return b.String()[:n]
}

// spaces are the workspaces of a daemon, here or in another process.
type spaces interface {
	Create(t *testing.T, name string)
	Put(t *testing.T, ref, path, content string)
	Cat(t *testing.T, ref, path string) (string, error)
	Get(t *testing.T, ref string) holt.Workspace
	Flush(t *testing.T, ref string) // its index
}

type near struct{ *daemon.Daemon }

func (d near) Create(t *testing.T, name string) {
	t.Helper()
	if _, err := d.Workspaces().Create(t.Context(), holt.WorkspaceSpec{Name: name}, ""); err != nil {
		t.Fatal(err)
	}
}

func (d near) Put(t *testing.T, ref, path, content string) {
	t.Helper()
	if _, err := d.Workspaces().Files().Write(t.Context(), ref, path, holt.WriteSpec{}, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

func (d near) Cat(t *testing.T, ref, path string) (string, error) {
	t.Helper()
	var b strings.Builder
	err := d.Workspaces().Files().Read(t.Context(), ref, path, 0, -1, &b)
	return b.String(), err
}

func (d near) Get(t *testing.T, ref string) holt.Workspace {
	t.Helper()
	w, err := d.Workspaces().Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (d near) Flush(t *testing.T, ref string) {
	t.Helper()
	if _, err := d.Workspaces().Query(t.Context(), ref, holt.QuerySpec{SQL: "SELECT count(*) FROM files"}); err != nil {
		t.Fatal(err)
	}
}

const packedFiles = 16

// fillSpace writes files into a workspace that fill many segments, the same for the same seed.
func fillSpace(t *testing.T, s spaces, ref string, seed uint64) {
	t.Helper()
	for i := range uint64(packedFiles) {
		s.Put(t, ref, fmt.Sprint("/f", i), lines(seed+i, 60_000))
	}
}

func holdsSpace(t *testing.T, s spaces, ref string, seed uint64) {
	t.Helper()
	for i := range uint64(packedFiles) {
		if got, err := s.Cat(t, ref, fmt.Sprint("/f", i)); err != nil || got != lines(seed+i, 60_000) {
			t.Fatalf("%s/f%d: %d bytes, %v", ref, i, len(got), err)
		}
	}
}

// isPacked waits until all of a workspace is packed that should be: what its index
// has yet to hear of does not count as waiting, so that is flushed first.
func isPacked(t *testing.T, s spaces, ref string) holt.Workspace {
	t.Helper()
	s.Flush(t, ref)
	var w holt.Workspace
	within(t, "packing "+ref, func() bool {
		w = s.Get(t, ref)
		return w.Packed.Waiting == 0 && w.Packed.Bytes > 0
	})
	return w
}

// patience bounds how long a test waits for what must come; nothing asserts how
// long it takes. CI emulates its machines, beside other work.
const patience = 10 * time.Minute

// within waits for something to happen.
func within(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline, pause := time.Now().Add(patience), 5*time.Millisecond
	for !happened() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: still not", what)
		}
		time.Sleep(pause) // who asks all the time takes it from what it waits for
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// packsIn lists the packs below a directory.
func packsIn(t *testing.T, store string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(store, "pack", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestPacksOfWorkspaces: sealed segments go to one archive by themselves, what
// two workspaces hold is there once, it can be read after a restart, and goes
// with the last that needs it.
func TestPacksOfWorkspaces(t *testing.T) {
	dir := home(t)
	cfg := packing(t, dir)
	d := open(t, cfg)
	var first holt.Workspace
	for _, name := range []string{"one", "two"} {
		near{d}.Create(t, name)
		fillSpace(t, near{d}, name, 1)
		w := isPacked(t, near{d}, name)
		if w.Packed.Bytes < packedFiles*60_000/2 || w.Packed.Stored == 0 || w.Packed.Stored > w.Packed.Bytes/2 {
			t.Errorf("%s: %+v", name, w.Packed)
		}
		segments, err := filepath.Glob(filepath.Join(dir, "workspaces", string(w.ID), "journal", "*"))
		if err != nil || len(segments) > 4 {
			t.Errorf("%s: still in the journal: %v %v", name, segments, err)
		}
		if name == "one" {
			first = w
		}
	}
	a, err := d.Archive().Get(t.Context())
	if err != nil || a.Spaces != 2 || a.Unique > a.Content*2/3 || a.Content < 2*first.Packed.Bytes*9/10 || a.Ratio < 4 || a.Stored == 0 {
		t.Errorf("%+v %v", a, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = up(t, cfg)
	holdsSpace(t, near{d}, "one", 1)
	holdsSpace(t, near{d}, "two", 1)
	for _, name := range []string{"one", "two"} {
		if err := d.Workspaces().Delete(t.Context(), name, ""); err != nil {
			t.Fatal(err)
		}
		if name == "one" {
			holdsSpace(t, near{d}, "two", 1)
		}
	}
	if _, err := d.Archive().Collect(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if left := packsIn(t, filepath.Join(dir, "archive", "store")); len(left) != 0 {
		t.Errorf("left of deleted workspaces: %v", left)
	}
}

// TestArchiveIsMine: a store that is another's, or is not there, is refused.
func TestArchiveIsMine(t *testing.T) {
	far := t.TempDir()
	cfg := packing(t, home(t))
	cfg.Archive.Dir = far
	d := open(t, cfg)
	near{d}.Create(t, "one")
	fillSpace(t, near{d}, "one", 1)
	isPacked(t, near{d}, "one")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	other := packing(t, home(t))
	other.Archive.Dir = far
	_, err := daemon.Open(t.Context(), other)
	wantCode(t, err, holt.Conflict)
	moved := far + "-moved"
	if err := os.Rename(far, moved); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(moved) })
	_, err = daemon.Open(t.Context(), cfg)
	wantCode(t, err, holt.Unavailable)
	cfg.Archive.Dir = moved
	d = up(t, cfg)
	holdsSpace(t, near{d}, "one", 1)
}

// TestFarArchive: packs elsewhere are read through a cache whose size on the
// local disk is bounded, whatever is read.
func TestFarArchive(t *testing.T) {
	const bound = 2 << 20
	dir := home(t)
	cfg := packing(t, dir)
	cfg.Archive = archive.Place{Dir: t.TempDir(), CacheBytes: bound}
	d := open(t, cfg)
	near{d}.Create(t, "one")
	want := map[string]string{}
	for i := range uint64(20) { // bytes that do not compress
		b := make([]byte, 400_000)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(b)
		name := fmt.Sprint("/f", i)
		want[name] = string(b)
		near{d}.Put(t, "one", name, want[name])
	}
	isPacked(t, near{d}, "one")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = up(t, cfg)
	for name, content := range want {
		if got, err := (near{d}).Cat(t, "one", name); err != nil || got != content {
			t.Fatalf("%s: %d bytes, %v", name, len(got), err)
		}
		used := int64(0)
		cached, err := filepath.Glob(filepath.Join(dir, "archive", "cache", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range cached {
			if info, err := os.Stat(path); err == nil {
				used += info.Size()
			}
		}
		a, err := d.Archive().Get(t.Context())
		if err != nil || a.Cached > bound || used > bound || a.Place != cfg.Archive.Dir {
			t.Fatalf("%d bytes cached, %+v %v", used, a, err)
		}
	}
	if a, err := d.Archive().Get(t.Context()); err != nil || a.Cached == 0 || a.Stored < 2*bound {
		t.Errorf("%+v %v", a, err)
	}
	if left := packsIn(t, filepath.Join(dir, "archive", "store")); len(left) != 0 {
		t.Errorf("packs here too: %v", left)
	}
}
