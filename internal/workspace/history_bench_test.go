package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// large makes a workspace of n files in directories of 1000 and returns their
// inodes.
func large(b *testing.B, n int) (*Workspace, []Ino) {
	b.Helper()
	w, err := Create(filepath.Join(b.TempDir(), "ws"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Close() })
	t, dir, files := w.Tree(), Root, make([]Ino, 0, n)
	for i := range n {
		if i%1000 == 0 {
			a, err := t.Mkdir(Caller{}, Root, fmt.Sprint("d", i), 0o755)
			if err != nil {
				b.Fatal(err)
			}
			dir = a.Ino
		}
		a, err := t.Create(Caller{}, dir, fmt.Sprint("f", i), 0o644)
		if err == nil {
			_, err = t.Write(Caller{}, a.Ino, 0, []byte("content"))
		}
		if err != nil {
			b.Fatal(err)
		}
		files = append(files, a.Ino)
	}
	return w, files
}

// dirty writes 100 files.
func dirty(b *testing.B, w *Workspace, files []Ino, round int) {
	b.Helper()
	for k := range 100 {
		if _, err := w.Tree().Write(Caller{}, files[(round*100+k*997)%len(files)], 0, fmt.Append(nil, round)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheckpoint takes checkpoints of 100,000 files, 100 of them dirty:
// run it with -benchtime 10000x to see that they stay as cheap. It reports the
// medians of the first and of the last tenth.
func BenchmarkCheckpoint(b *testing.B) {
	w, files := large(b, 100_000)
	b.ResetTimer()
	took := make([]time.Duration, 0, b.N)
	for i := range b.N {
		b.StopTimer()
		dirty(b, w, files, i)
		b.StartTimer()
		began := time.Now()
		if _, err := w.Checkpoint(CheckpointOptions{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	tenth := max(1, len(took)/10)
	for name, part := range map[string][]time.Duration{"first": took[:tenth], "last": took[len(took)-tenth:]} {
		slices.Sort(part)
		b.ReportMetric(float64(part[len(part)/2].Microseconds()), name+"-µs")
	}
}

// BenchmarkCheckpointMounts takes checkpoints that hold a guest's mount, with as
// many answers as one has at most, of 1,000,000 files that 100 are dirty of: what
// a machine that is forked waits for. It reports median and worst, and the same
// with the fsync that makes it survive power loss, once all before was synced.
func BenchmarkCheckpointMounts(b *testing.B) {
	w, files := large(b, 1_000_000)
	e, _, err := w.BeginEpoch([16]byte{1}, GuestMount)
	if err != nil {
		b.Fatal(err)
	}
	unique := uint64(0)
	took := map[string][]time.Duration{}
	for i := range 2 * b.N {
		b.StopTimer()
		dirty(b, w, files, i)
		for range 1152 {
			unique++
			if _, err := w.Tree().SetAttr(Caller{Epoch: e, Unique: unique}, files[unique%1e6], SetAttrs{Mask: SetMode, Mode: 0o600}); err != nil {
				b.Fatal(err)
			}
		}
		w.Acknowledge(e, unique-1151)
		kind := "plain"
		if i%2 == 1 {
			kind = "synced"
			if err := w.Tree().Sync(); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		began := time.Now()
		if _, err := w.Checkpoint(CheckpointOptions{Mounts: true, Synced: i%2 == 1}); err != nil {
			b.Fatal(err)
		}
		took[kind] = append(took[kind], time.Since(began))
	}
	for kind, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), kind+"-µs")
		b.ReportMetric(float64(all[len(all)-1].Microseconds()), kind+"-worst-µs")
	}
}

// BenchmarkDiff compares two checkpoints of 100,000 files that 100 differ in.
func BenchmarkDiff(b *testing.B) {
	w, files := large(b, 100_000)
	for round, name := range []string{"a", "b"} {
		dirty(b, w, files, round)
		if _, err := w.Checkpoint(CheckpointOptions{Name: name}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		err := w.Diff(context.Background(), "a", "b", DiffOptions{}, func(Change) error { n++; return nil })
		if err != nil || n != 100 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkRestore goes back and forth between two states of 100,000 files
// that 100 differ in.
func BenchmarkRestore(b *testing.B) {
	w, files := large(b, 100_000)
	for round, name := range []string{"a", "b"} {
		dirty(b, w, files, round)
		if _, err := w.Checkpoint(CheckpointOptions{Name: name}); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		r, err := w.Restore(context.Background(), Caller{}, []string{"a", "b"}[i%2], RestoreOptions{})
		if err != nil || len(r.Changes) != 100 {
			b.Fatal(len(r.Changes), err)
		}
	}
}
