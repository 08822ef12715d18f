package workspace

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt/internal/store/journal"
)

func TestFailedAppendChangesNothing(t *testing.T) {
	disk := journal.NewFaultDisk()
	f := newFixture(t, quiet(Options{Disk: disk}))
	a := f.put("f", "content")
	f.mkdir("d")
	before := f.dump()
	for _, fault := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		for _, part := range []int{0, 1, 20, 1 << 20} {
			disk.SetHook(func(op journal.Op, _ string, n int) (int, error) {
				if op == journal.OpWrite {
					return part, fault
				}
				return n, nil
			})
			_, err := f.t.Write(f.c, a.Ino, 0, []byte("other"))
			f.want(err, fault)
			_, err = f.t.Create(f.c, Root, "new", 0o644)
			f.want(err, fault)
			f.want(f.unlink("f"), fault)
			f.want(f.rename("f", "g", 0), fault)
			c := f.c
			c.Writer = Writer{Kind: "run", Name: "agent", Run: "r"}
			f.want(f.t.SetXattr(c, a.Ino, "user.x", nil, 0), fault)
			if d := cmp.Diff(before, f.dump()); d != "" {
				t.Fatal(d)
			}
			disk.SetHook(nil)
			f.put("f", "content")
			before = f.dump()
		}
	}
	f.kill()
	if d := cmp.Diff(before, f.dump()); d != "" {
		t.Fatal(d)
	}
}

func TestFailedSyncIsReported(t *testing.T) {
	disk := journal.NewFaultDisk()
	f := newFixture(t, quiet(Options{Disk: disk}))
	a := f.put("f", "content")
	disk.SetHook(func(op journal.Op, _ string, n int) (int, error) {
		if op == journal.OpSync {
			return 0, syscall.ENOSPC
		}
		return n, nil
	})
	f.want(f.t.Fsync(a.Ino), syscall.ENOSPC)
	if err := f.w.Flush(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal("the index must not outlive the journal:", err)
	}
	f.put("g", "still usable")
	disk.SetHook(nil)
	f.ok(f.t.Fsync(a.Ino))
	f.ok(f.w.Flush())
	f.kill()
	if f.get("g") != "still usable" {
		t.Fatal("lost")
	}
}

// A flush that fails keeps everything dirty; the next writes both batches.
func TestFailedFlushIsRepeated(t *testing.T) {
	failing := false
	opt := quiet(Options{})
	opt.Fail = func(point string) error {
		if failing && point == "flush.commit" {
			return syscall.ENOSPC
		}
		return nil
	}
	f := newFixture(t, opt)
	for _, step := range steps(f) {
		failing = true
		if err := f.w.Flush(); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		failing = false
		step()
		failing = true
		_ = f.w.Flush()
		failing = false
	}
	want := f.dump()
	f.reopen()
	if d := cmp.Diff(want, f.dump()); d != "" {
		t.Fatal(d)
	}
}

func TestFullIndexHoldsWritersBack(t *testing.T) {
	var mu sync.Mutex
	failing := false
	opt := Options{MaxDirty: 20, FlushOps: 5}
	opt.Fail = func(point string) error {
		mu.Lock()
		defer mu.Unlock()
		if failing && point == "flush.commit" {
			return syscall.ENOSPC
		}
		return nil
	}
	f := newFixture(t, opt)
	mu.Lock()
	failing = true
	mu.Unlock()
	var err error
	for i := 0; err == nil; i++ {
		if i > 1000 {
			t.Fatal("dirty rows without bound")
		}
		_, err = f.t.Create(f.c, Root, fmt.Sprint(i), 0o644)
	}
	f.want(err, syscall.ENOSPC)
	mu.Lock()
	failing = false
	mu.Unlock()
	f.ok(f.w.Flush())
	f.put("works", "again")
}
