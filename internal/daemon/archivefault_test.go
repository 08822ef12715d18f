package daemon_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holt"
)

// TestChunkIndexLost: the chunk index is rebuilt from packs, manifests and
// spaces when it is missing or damaged.
func TestChunkIndexLost(t *testing.T) {
	dir := home(t)
	cfg := packing(t, dir)
	d := open(t, cfg)
	near{d}.Create(t, "one")
	fillSpace(t, near{d}, "one", 1)
	before := isPacked(t, near{d}, "one")
	index := filepath.Join(dir, "archive", "chunks.db")
	for _, damage := range []func() error{
		func() error { return os.Remove(index) },
		func() error { return os.WriteFile(index, bytes.Repeat([]byte("no database "), 4000), 0o600) },
	} {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"-wal", "-shm"} {
			_ = os.Remove(index + suffix)
		}
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		d = open(t, cfg)
		holdsSpace(t, near{d}, "one", 1)
		if w := (near{d}).Get(t, "one"); w.Packed != before.Packed {
			t.Errorf("%+v, then %+v", before.Packed, w.Packed)
		}
	}
	down(t, d)
}

// TestChunkIndexDamaged: while the daemon runs, too, and nobody notices more
// than a read that takes longer.
func TestChunkIndexDamaged(t *testing.T) {
	dir := home(t)
	log := &kept{}
	cfg := packing(t, dir)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	d := open(t, cfg)
	near{d}.Create(t, "one")
	fillSpace(t, near{d}, "one", 1)
	isPacked(t, near{d}, "one")
	for _, suffix := range []string{"", "-wal"} { // by another process: closing the file here would drop SQLite's locks
		cmd := exec.Command("dd", "of="+filepath.Join(dir, "archive", "chunks.db"+suffix), "conv=notrunc", "bs=64k")
		cmd.Stdin = strings.NewReader(strings.Repeat("no database ", 400_000))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	within(t, "the damage to be noticed", func() bool {
		_, _ = d.Archive().Collect(t.Context(), "") // it writes
		holdsSpace(t, near{d}, "one", 1)
		return log.has("chunk index is rebuilt")
	})
	near{d}.Create(t, "two")
	fillSpace(t, near{d}, "two", 2)
	isPacked(t, near{d}, "two")
	holdsSpace(t, near{d}, "two", 2)
	if r, err := d.Archive().Check(t.Context()); err != nil || len(r.Problems) > 0 {
		t.Error(r.Problems, err)
	}
	down(t, d)
}

// kept is a log, or what else a program says, that can be searched.
type kept struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.Write(p)
}

func (k *kept) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.String()
}

func (k *kept) has(parts ...string) bool {
	for line := range strings.Lines(k.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			return true
		}
	}
	return false
}

// TestPackLostOrDamaged: bytes of a pack that is gone or was changed are an
// error with a line in the log that names it, never other bytes; both checks
// name it; and nothing else suffers.
func TestPackLostOrDamaged(t *testing.T) {
	dir := home(t)
	log := &kept{}
	cfg := packing(t, dir)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	d := open(t, cfg)
	near{d}.Create(t, "hurt")
	fillSpace(t, near{d}, "hurt", 1)
	isPacked(t, near{d}, "hurt")
	store := filepath.Join(dir, "archive", "store")
	packs := packsIn(t, store)
	near{d}.Create(t, "well")
	fillSpace(t, near{d}, "well", 100)
	isPacked(t, near{d}, "well")
	for _, damage := range []func(path string, b []byte) error{
		func(path string, _ []byte) error { return os.Remove(path) },
		func(path string, b []byte) error {
			b = bytes.Clone(b)
			for i := 24; i < len(b)-200; i += 64 {
				b[i] ^= 1
			}
			return os.WriteFile(path, b, 0o600)
		},
		func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
	} {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		whole := map[string][]byte{}
		for _, path := range packs {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			whole[path] = b
			if err := damage(path, b); err != nil {
				t.Fatal(err)
			}
		}
		d = open(t, cfg)
		holdsSpace(t, near{d}, "well", 100)
		failed := 0
		for i := range uint64(packedFiles) {
			switch got, err := (near{d}).Cat(t, "hurt", fmt.Sprint("/f", i)); {
			case err != nil:
				failed++
			case got != lines(1+i, 60_000):
				t.Fatal("other bytes")
			}
		}
		if failed == 0 {
			t.Error("nothing failed")
		}
		named := func(problems []string) bool {
			for _, path := range packs {
				if strings.Contains(strings.Join(problems, "\n"), filepath.Base(path)) {
					return true
				}
			}
			return false
		}
		report, err := d.Workspaces().Check(t.Context(), "hurt")
		if err != nil || !named(report.Problems) {
			t.Errorf("check: %v %v", report.Problems, err)
		}
		all, err := d.Archive().Check(t.Context())
		if err != nil || !named(all.Problems) {
			t.Errorf("check of the archive: %v %v", all.Problems, err)
		}
		if !log.has("chunk cannot be read", "chunk=", "pack=") {
			t.Error("no line in the log names chunk and pack")
		}
		for path, b := range whole {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	holdsSpace(t, near{d}, "hurt", 1) // put back, it is read again
	down(t, d)
}

// TestPackOnFullDisk: while the disk is full segments stay and everything can
// be read; with room again they are packed.
func TestPackOnFullDisk(t *testing.T) {
	dir := home(t)
	if err := syscall.Mount("holt-test", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal("mount a small disk:", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	log := &kept{}
	cfg := packing(t, dir)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	goOn := make(chan struct{})
	cfg.Fail = func(point string) error {
		if point == "pack.put" {
			<-goOn
		}
		return nil
	}
	d := open(t, cfg)
	near{d}.Create(t, "one")
	fillSpace(t, near{d}, "one", 1)
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	close(goOn)
	t.Cleanup(func() { down(t, d) })
	within(t, "a packing that fails", func() bool {
		holdsSpace(t, near{d}, "one", 1)
		return log.has("segments cannot be packed")
	})
	if w := (near{d}).Get(t, "one"); w.Packed.Waiting == 0 {
		t.Errorf("packed on a full disk: %+v", w.Packed)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	isPacked(t, near{d}, "one")
	holdsSpace(t, near{d}, "one", 1)
	if _, err := d.Workspaces().Create(t.Context(), holt.WorkspaceSpec{Name: "two"}, ""); err != nil {
		t.Error(err)
	}
}
