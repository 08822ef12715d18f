package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// BenchmarkAfternoon is the e2e story without a daemon: of 61,200 names half
// are deleted by one run, a file is written to by another, and a third moves the
// rest. It reports how long it takes to say so, to undo the first run, and to
// restore the rest.
func BenchmarkAfternoon(b *testing.B) {
	for b.Loop() {
		w, err := Create(filepath.Join(b.TempDir(), "ws"), Options{})
		if err != nil {
			b.Fatal(err)
		}
		spoil(b, w)
		step := func(name string, do func() error) {
			began, used := time.Now(), processor(b)
			if err := do(); err != nil {
				b.Fatal(name, err)
			}
			b.ReportMetric(float64(time.Since(began).Microseconds())/1000, name+"-ms")
			b.ReportMetric(float64((processor(b)-used).Microseconds())/1000, name+"-cpu-ms")
		}
		ctx := context.Background()
		step("history", func() error { _, err := w.History(ctx, "/old/data"); return err })
		step("diff", func() error { return w.Diff(ctx, "morning", Live, DiffOptions{}, func(Change) error { return nil }) })
		step("undo", func() error {
			r, err := w.Undo(ctx, Caller{}, "first", RestoreOptions{})
			if err == nil && (len(r.Conflicts) > 0 || len(r.Changes) != 30_601) {
				err = fmt.Errorf("%d changes, %d conflicts", len(r.Changes), len(r.Conflicts))
			}
			return err
		})
		step("restore", func() error { _, err := w.Restore(ctx, Caller{}, "morning", RestoreOptions{}); return err })
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAfternoonDiff asks again and again what the three runs changed.
func BenchmarkAfternoonDiff(b *testing.B) {
	w, err := Create(filepath.Join(b.TempDir(), "ws"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Close() })
	spoil(b, w)
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	used, rounds := processor(b), 0
	for b.Loop() {
		n := 0
		err := w.Diff(context.Background(), "morning", Live, DiffOptions{}, func(Change) error { n++; return nil })
		if err != nil || n != 30_604 {
			b.Fatal(n, err)
		}
		rounds++
	}
	b.ReportMetric(float64((processor(b)-used).Microseconds())/1000/float64(rounds), "cpu-ms")
}

// processor is the processor time of this process so far.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spoil makes the project and has the three runs work on it.
func spoil(b *testing.B, w *Workspace) {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	t := w.Tree()
	fill := func(top string) {
		up, err := t.Mkdir(Caller{}, Root, top, 0o755)
		must(err)
		for i := range 600 {
			d, err := t.Mkdir(Caller{}, up.Ino, fmt.Sprint("d", i), 0o755)
			must(err)
			for k := range 50 {
				a, err := t.Create(Caller{}, d.Ino, fmt.Sprint("f", k), 0o644)
				must(err)
				_, err = t.Write(Caller{}, a.Ino, 0, fmt.Append(nil, "file ", i, k))
				must(err)
			}
		}
	}
	fill("src")
	fill("objects")
	data, err := t.Create(Caller{}, Root, "data", 0o644)
	must(err)
	_, err = w.Checkpoint(CheckpointOptions{Name: "morning"})
	must(err)
	ctx := context.Background()
	run := func(name string, do func(Caller) error) {
		_, err := w.BeginRun(name)
		must(err)
		must(do(Caller{Writer: Writer{Kind: "run", Name: "agent", Run: name}}))
		_, _, err = w.EndRun(ctx, name, true)
		must(err)
	}
	run("first", func(c Caller) error { return (Files{Tree: t, Caller: c}).Remove(ctx, "/src", true) })
	run("second", func(c Caller) error { _, err := t.Write(c, data.Ino, 0, []byte("trash")); return err })
	run("third", func(c Caller) error {
		old, err := t.Mkdir(c, Root, "old", 0o755)
		for _, name := range []string{"objects", "data"} {
			if err == nil {
				err = t.Rename(c, Root, name, old.Ino, name, 0)
			}
		}
		return err
	})
}
