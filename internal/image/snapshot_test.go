package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holt"
)

// leave returns a function that makes a snapshot with some bytes of memory.
func leave(t *testing.T, bytes int) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		kept := filepath.Join(dir, "snapshot")
		if err := os.Mkdir(kept, 0o700); err != nil {
			return err
		}
		for name, content := range map[string]string{"memory": strings.Repeat("m", bytes), SnapshotDisk: "d", SnapshotRecord: "{}", "../other": "o"} {
			if err := os.WriteFile(filepath.Join(kept, name), []byte(content), 0o600); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestSnapshots: a snapshot is made once, is deleted with its root, and is complete or absent.
func TestSnapshots(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	root, key := strings.Repeat("a", 64), strings.Repeat("1", 64)
	if _, err := s.MakeSnapshot(ctx, root, key, leave(t, 1)); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("a root that does not exist: %v", err)
	}
	plant(t, s, "mine", root)
	broken := errors.New("broken")
	if dir, err := s.MakeSnapshot(ctx, root, key, func(_ context.Context, dir string) error {
		return errors.Join(os.Mkdir(filepath.Join(dir, "snapshot"), 0o700), broken)
	}); !errors.Is(err, broken) || dir != "" || s.Snapshot(root, key) != "" {
		t.Errorf("a failed snapshot: %q, %v", dir, err)
	}
	var made atomic.Int32
	var work sync.WaitGroup
	for range 4 { // stores of several processes
		other, err := Open(s.dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			dir, err := other.MakeSnapshot(ctx, root, key, func(ctx context.Context, dir string) error {
				made.Add(1)
				return leave(t, 1)(ctx, dir)
			})
			if err != nil || dir == "" || dir != other.Snapshot(root, key) {
				t.Errorf("%q, %v", dir, err)
			}
		})
	}
	work.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
	if left := namesIn(t, filepath.Join(s.dir, "tmp")); left != "" {
		t.Errorf("left behind: %s", left)
	}
	if s.Snapshot(root, strings.Repeat("2", 64)) != "" {
		t.Error("another key finds the snapshot")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.MakeSnapshot(ended, root, strings.Repeat("2", 64), func(ctx context.Context, _ string) error { return ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.Delete(ctx, root); err != nil {
		t.Fatal(err)
	}
	if s.Snapshot(root, key) != "" {
		t.Error("the snapshot is left without its root")
	}
}

// TestDroppedSnapshot: the disk of a dropped snapshot is kept as long as computers' disks use it.
func TestDroppedSnapshot(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	root, key := strings.Repeat("a", 64), strings.Repeat("1", 64)
	plant(t, s, "mine", root)
	computer := filepath.Join(t.TempDir(), "cmp_x")
	if err := os.Mkdir(computer, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Hold(ctx, root, computer); err != nil {
		t.Fatal(err)
	}
	old, err := s.MakeSnapshot(ctx, root, key, leave(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DropSnapshot(ctx, root, key); err != nil || s.Snapshot(root, key) != "" {
		t.Fatal("the dropped snapshot is returned", err)
	}
	if names := namesIn(t, old); names != SnapshotDisk {
		t.Errorf("files left: %s", names)
	}
	again, err := s.MakeSnapshot(ctx, root, key, leave(t, 1))
	if err != nil || again == old {
		t.Fatalf("made again: %q, %v", again, err)
	}
	if err := os.Remove(computer); err != nil {
		t.Fatal(err)
	}
	s.pruneSnapshots(ctx)
	if dirs := namesIn(t, filepath.Dir(old)); dirs != filepath.Base(again) {
		t.Errorf("left: %s", dirs)
	}
}

// TestOldSnapshots: the least recently used snapshots are removed.
func TestOldSnapshots(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	root := strings.Repeat("a", 64)
	plant(t, s, "mine", root)
	key := func(i int) string { return strings.Repeat("0123456789abcdefghijk"[i:i+1], 64) }
	for i := range mostSnapshots {
		if _, err := s.MakeSnapshot(ctx, root, key(i), leave(t, 1)); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(time.Duration(i-mostSnapshots) * time.Hour)
		if err := os.Chtimes(filepath.Join(s.Snapshot(root, key(i)), SnapshotRecord), used, used); err != nil {
			t.Fatal(err)
		}
	}
	s.Snapshot(root, key(0)) // used now
	long := time.Now().Add(-unusedSnapshot - time.Hour)
	if err := os.Chtimes(filepath.Join(s.Snapshot(root, key(5)), SnapshotRecord), long, long); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MakeSnapshot(ctx, root, key(mostSnapshots), leave(t, 1)); err != nil {
		t.Fatal(err)
	}
	for i := range mostSnapshots + 1 {
		if got := s.Snapshot(root, key(i)) == ""; got != (i == 5) {
			t.Errorf("%d: gone is %v", i, got)
		}
	}
}

// namesIn lists a directory, separated by blanks.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
