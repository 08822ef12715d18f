package workspace

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"holt/internal/store/db"
)

// holdReaders has n of the readers that calls share, as long checks have them,
// until they are released.
func (f *fixture) holdReaders(n int) (release func()) {
	f.Helper()
	let := make(chan struct{})
	var held, all sync.WaitGroup
	for range n {
		held.Add(1)
		all.Go(func() {
			if err := f.t.index.db.Read(context.Background(), func(*db.Tx) error { held.Done(); <-let; return nil }); err != nil {
				f.Error(err)
			}
		})
	}
	held.Wait()
	release = sync.OnceFunc(func() { close(let); all.Wait() })
	f.Cleanup(release)
	return release
}

// While long calls have all readers, everything but such calls goes on: changes,
// the flush, the collector, looks at checkpoints, runs, restores, undos, forks,
// and a merge of this workspace into another.
func TestLongReadersStallNobody(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 64 << 10}))
	f.put("file", "before")
	f.checkpoint("c")
	g := f.fork(ForkOptions{Name: "parent", Child: "child"})
	f.put("file", "after")
	f.run("r1", func() { f.put("made", "by the run") })
	release := f.holdReaders(db.Readers)
	late := time.AfterFunc(time.Minute, func() { f.Error("something waits for readers"); release() })
	defer late.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	segments := func() int { return f.w.Stat().Segments }
	for range 8 {
		f.put("file", strings.Repeat("x", 50<<10))
	}
	f.ok(f.w.Flush())
	before := segments()
	f.ok(f.t.collect())
	if segments() >= before {
		t.Errorf("%d segments, and %d before the collection", segments(), before)
	}
	v, err := f.w.At("c")
	f.ok(err)
	a, err := v.Lookup(Root, "file")
	f.ok(err)
	b := make([]byte, 10)
	if n, err := v.Read(a.Ino, 0, b); err != nil || string(b[:n]) != "before" {
		t.Errorf("%q, %v", b[:n], err)
	}
	_, err = f.w.BeginRun("r2")
	f.ok(err)
	f.c.Writer = Writer{Kind: "run", Name: "r2", Run: "r2"}
	f.put("made2", "by the run")
	f.c.Writer = Writer{}
	if _, ended, err := f.w.EndRun(ctx, "r2", false); err != nil || !ended {
		t.Error(ended, err)
	}
	if _, err := f.w.Undo(ctx, f.c, "r2", RestoreOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := f.w.Restore(ctx, f.c, "c", RestoreOptions{}); err != nil || f.get("file") != "before" {
		t.Error(err)
	}
	f.put("file", "merged")
	f.ok(f.w.Flush())
	if _, err := g.w.Merge(ctx, g.c, f.w, MergeOptions{}); err != nil || g.get("file") != "merged" {
		t.Error(err)
	}
	if _, err := f.w.Fork(ctx, t.TempDir()+"/fork", ForkOptions{Child: "other"}); err != nil {
		t.Error(err)
	}
	// A long call waits, for as long as it wants to.
	short, end := context.WithTimeout(ctx, 10*time.Millisecond)
	defer end()
	if _, err := f.w.Check(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error("a check beside as many readers as there may be: ", err)
	}
	release()
}

// A check that meets what was collected since it began looks again, and waits
// for nobody to do so.
func TestCheckWithTheLastReader(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 64 << 10}))
	for _, name := range []string{"a", "b", "c"} {
		f.put(name, strings.Repeat(name, 50<<10))
	}
	f.ok(f.w.Flush())
	f.holdReaders(db.Readers - 1)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := checker{ctx: ctx, tree: f.t}
	err := f.t.index.db.Read(ctx, func(tx *db.Tx) error {
		// From here on the check sees this state.
		if err := tx.Query("SELECT 1 FROM extent", nil, func(*db.Row) error { return nil }); err != nil {
			return err
		}
		for range 3 {
			for _, name := range []string{"a", "b"} {
				f.put(name, strings.Repeat("new", 20<<10))
			}
		}
		before := f.w.Stat().Segments
		if err := errors.Join(f.w.Flush(), f.t.collect()); err != nil {
			return err
		}
		if f.w.Stat().Segments >= before {
			t.Error("nothing was collected: this test shows nothing")
		}
		return c.check(tx)
	})
	f.ok(err)
	for _, p := range c.report.Problems {
		t.Error(p)
	}
}

// Many checks beside a writer whose segments are collected all end.
func TestManyChecks(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 64 << 10, Disk: lazyDisk{}}))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stop, ended := make(chan struct{}), make(chan struct{})
	ino := f.put("file", "").Ino
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			_, err := f.t.Write(f.c, ino, int64(n%4)*20<<10, make([]byte, 20<<10))
			if err == nil && n%8 == 0 {
				err = errors.Join(f.w.Flush(), f.t.collect())
			}
			if err != nil {
				f.Error(err)
				return
			}
		}
	}()
	var all errgroup.Group
	for range 3 * db.Readers {
		all.Go(func() error {
			for range 3 {
				report, err := f.w.Check(ctx)
				if err != nil {
					return err
				}
				for _, p := range report.Problems {
					f.Error(p)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	close(stop)
	<-ended
}
