package workspace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// On a host disk without a free byte, files can be deleted, the index goes on,
// and the workspace opens; when there is room again all is as before.
func TestFullDisk(t *testing.T) {
	f, disk := smallDisk(t, Options{})
	f.mkdir("d")
	for _, name := range []string{"a", "b", "c"} {
		f.put("d/"+name, name)
	}
	f.ok(f.w.Flush())
	ballast := f.fillDisk(disk)
	data := bytes.Repeat([]byte("x"), 1<<20)
	_, err := f.t.Write(f.c, f.must("d/a").Ino, 0, data)
	f.want(err, syscall.ENOSPC)
	f.ok(f.unlink("d/a"))
	_, err = f.t.Write(f.c, f.must("d/b").Ino, 0, data) // what is left is not for this
	f.want(err, syscall.ENOSPC)
	f.kill()
	f.ok(f.unlink("d/b"))
	f.ok(f.w.Flush())
	f.reopen()
	f.ok(f.unlink("d/c"))
	f.ok(f.rmdir("d"))
	f.check()
	f.ok(os.Remove(ballast))
	f.ok(f.w.Flush()) // the flusher may have been about to give the reserve back
	f.put("new", string(data))
	if _, err := os.Stat(filepath.Join(f.dir, "reserve")); err != nil || f.t.reserve.released.Load() {
		t.Fatal(err)
	}
}

// Workspaces of one disk keep one reserve. What one gives back for deletions
// the others do not fill, but delete with; when there is room all go on.
func TestSharedReserve(t *testing.T) {
	f, disk := smallDisk(t, quiet(Options{}))
	f.ok(f.w.Close())
	f.opt.Reserve = NewReserve(filepath.Join(disk, "reserve"))
	f.open()
	g := &fixture{T: t, dir: filepath.Join(disk, "beside"), opt: f.opt, c: f.c}
	w, err := Create(g.dir, g.opt)
	f.ok(err)
	g.w, g.t = w, w.Tree()
	g.closes()
	reserves := func() (found []string) {
		for _, dir := range []string{disk, f.dir, g.dir} {
			if fi, err := os.Stat(filepath.Join(dir, "reserve")); err == nil && fi.Size() == reserveSize {
				found = append(found, dir)
			}
		}
		return found
	}
	if got := reserves(); len(got) != 1 || got[0] != disk {
		t.Fatal("reserves are in", got)
	}
	for _, w := range []*fixture{f, g} {
		w.put("a", "a")
		w.put("b", "b")
		w.ok(w.w.Flush())
	}
	ballast := f.fillDisk(disk)
	data := bytes.Repeat([]byte("x"), 1<<20)
	_, err = f.t.Write(f.c, f.must("a").Ino, 0, data)
	f.want(err, syscall.ENOSPC)
	f.ok(f.unlink("a"))
	for range 3 { // more than the first segment had room for
		_, err = g.t.Write(g.c, g.must("a").Ino, 0, data)
		g.want(err, syscall.ENOSPC)
	}
	g.ok(g.unlink("a"))
	f.ok(f.w.Flush())
	g.ok(g.w.Flush())
	f.ok(os.Remove(ballast))
	g.put("new", string(data))
	f.put("new", string(data))
	if got := reserves(); len(got) != 1 || got[0] != disk {
		t.Fatal("reserves are in", got)
	}
}

// Beside a workspace whose disk is full, one on another disk goes on: it
// writes, syncs, keeps checkpoints and packs into the archive that both have.
// When there is room again the first goes on too.
func TestFullDiskBesideAnother(t *testing.T) {
	p := newPackFixture(t, Options{})
	f, disk := smallDisk(t, quiet(Options{Archive: p.archive, Space: "full", KeepSegments: -1, SegmentSize: 256 << 10}))
	before := strings.Repeat("before ", 50<<10)
	f.put("before", before)
	ballast := f.fillDisk(disk)

	// Writers of the first try without an end, and so do its packer and its index.
	stop := make(chan struct{})
	var trying sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); trying.Wait() })
	t.Cleanup(end)
	ino, refused := f.must("before").Ino, make(chan error, 1)
	for _, try := range []func() error{
		func() error {
			_, err := f.t.Write(f.c, ino, 0, bytes.Repeat([]byte("after  "), 50<<10))
			if err != nil {
				select {
				case refused <- err:
				default:
				}
			}
			return err
		},
		func() error { return f.t.Fsync(ino) },
		func() error { _, err := f.w.Pack(t.Context(), 0); return err },
		f.w.Flush,
	} {
		trying.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = try() // on a full disk it fails, now and then it does not
				}
			}
		})
	}
	f.want(<-refused, syscall.ENOSPC)
	for i := range 20 {
		name := fmt.Sprint("beside", i)
		p.put(name, strings.Repeat(name, 10<<10))
		p.ok(p.t.Fsync(p.must(name).Ino))
		if i%5 == 0 {
			p.checkpoint(name)
			p.pack()
		}
	}
	if got := p.get("beside7"); got != strings.Repeat("beside7", 10<<10) {
		t.Error("the workspace beside the full disk holds something else")
	}
	end()
	f.ok(os.Remove(ballast))
	f.put("before", before)
	f.put("after", before)
	f.ok(f.t.Fsync(f.must("after").Ino))
	f.ok(f.w.Flush())
	f.reopen()
	if f.get("before") != before || f.get("after") != before {
		t.Error("the workspace of the full disk holds something else")
	}
	if _, err := f.w.Pack(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// smallDisk makes a workspace on a disk of its own of 48 MiB.
func smallDisk(t *testing.T, opt Options) (f *fixture, disk string) {
	t.Helper()
	disk = t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=48m"); err != nil {
		t.Fatal("mount a small disk: ", err, "; run this test as root")
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	f = &fixture{T: t, dir: filepath.Join(disk, "ws"), opt: opt, c: Caller{UID: 1000, GID: 1000}}
	w, err := Create(f.dir, f.opt)
	f.ok(err)
	f.w, f.t = w, w.Tree()
	f.closes()
	return f, disk
}

// fillDisk takes the last byte of a disk and returns the file that has it.
func (f *fixture) fillDisk(disk string) (ballast string) {
	f.Helper()
	ballast = filepath.Join(disk, "ballast")
	b, err := os.Create(ballast)
	f.ok(err)
	for err == nil {
		_, err = b.Write(bytes.Repeat([]byte{1}, 64<<10))
	}
	for err = nil; err == nil; {
		_, err = b.Write([]byte{1})
	}
	f.ok(b.Close())
	return ballast
}

// While the reserve is given back, what frees nothing is refused, and one
// workspace takes no more than its share: the others can still delete.
func TestReserveOfAGuest(t *testing.T) {
	place := filepath.Join(t.TempDir(), "disk")
	room := func() {
		if err := os.Mkdir(place, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	room()
	reserve := NewReserve(filepath.Join(place, "reserve"))
	reserve.share = 64 << 10
	f := newFixture(t, quiet(Options{Reserve: reserve}))
	g := newFixture(t, quiet(Options{Reserve: reserve}))
	g.put("a", "a")
	empty, data, sparse := f.put("empty", "").Ino, f.put("data", strings.Repeat("data", 4096)).Ino, f.put("sparse", "").Ino
	size := func(ino Ino, n int64) error {
		_, err := f.t.SetAttr(f.c, ino, SetAttrs{Mask: SetSize, Size: n})
		return err
	}
	punch := func(ino Ino, off, n int64) error {
		return f.t.Fallocate(f.c, ino, off, n, FallocPunchHole|FallocKeepSize)
	}
	f.ok(size(sparse, 1<<30))
	// No reserve can be made from here on, as on a full disk.
	f.ok(os.RemoveAll(place))
	reserve.released.Store(true)

	f.want(punch(empty, 0, 4096), syscall.ENOSPC)
	f.want(punch(sparse, 1<<20, 1<<20), syscall.ENOSPC)
	f.want(size(sparse, 1<<30-1), syscall.ENOSPC)
	f.ok(punch(data, 0, 4096))
	f.want(punch(data, 0, 4096), syscall.ENOSPC)
	f.ok(size(data, 8192))

	begin, hellos := f.t.journal.End(), 0
	var err error
	for ; err == nil && hellos < 5000; hellos++ {
		var e Epoch
		if e, _, err = f.w.BeginEpoch([16]byte{byte(hellos), byte(hellos >> 8), 1}, GuestMount); err == nil {
			err = f.w.EndEpoch(e)
		}
	}
	if err == nil || int64(f.t.journal.End()-begin) > reserve.share+4096 {
		t.Errorf("%d hellos took %d bytes of the reserve: %v", hellos, f.t.journal.End()-begin, err)
	}
	f.want(f.unlink("empty"), syscall.ENOSPC)
	g.ok(g.unlink("a"))

	room()
	f.ok(f.unlink("empty"))
	f.put("new", "new")
	g.put("new", "new")
}
