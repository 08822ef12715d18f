package workspace

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"holt/internal/store/journal"
)

// Many merges, in both directions at once, all end: none waits for what
// another holds that waits for it.
func TestMergesBothWays(t *testing.T) {
	f, g := family(t)
	for i := range 200 {
		g.put(fmt.Sprint("src/g", i), "of the fork\n")
		f.put(fmt.Sprint("src/f", i), "of the parent\n")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var all errgroup.Group
	for range 12 {
		for _, x := range [][2]*fixture{{f, g}, {g, f}} {
			all.Go(func() error {
				_, err := x[0].w.Merge(ctx, x[0].c, x[1].w, MergeOptions{})
				return err
			})
		}
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if r := f.merge(g, MergeOptions{}); len(r.Changes)+len(r.Conflicts) > 0 {
		t.Error(r.said())
	}
}

// meteredDisk counts the bytes that are read.
type meteredDisk struct {
	lazyDisk
	read *atomic.Int64
}

type meteredFile struct {
	journal.File
	read *atomic.Int64
}

func (d meteredDisk) OpenFile(name string, create bool) (journal.File, error) {
	f, err := d.lazyDisk.OpenFile(name, create)
	return meteredFile{f, d.read}, err
}

func (f meteredFile) ReadVec(bufs [][]byte, off int64) error {
	for _, b := range bufs {
		f.read.Add(int64(len(b)))
	}
	return f.File.ReadVec(bufs, off)
}

// Files that were written on both sides are read once to be compared, before
// the snapshot in which everything else waits; again only if they were written
// since.
func TestMergeReadsOnce(t *testing.T) {
	const size = 4 << 20
	var read atomic.Int64
	f := newFixture(t, quiet(Options{Disk: meteredDisk{read: &read}}))
	same := make([]byte, size)
	f.put("file", "before")
	g := f.fork(ForkOptions{Name: "parent", Child: "child"})
	for _, x := range []*fixture{f, g} {
		_, err := x.t.Write(x.c, x.must("file").Ino, 0, same)
		x.ok(err)
	}
	before := read.Load()
	f.says(f.merge(g, MergeOptions{}))
	if n := read.Load() - before; n < 2*size || n > 2*size+size/2 {
		t.Errorf("%d bytes were read to compare two files of %d", n, size)
	}

	// What is written between the builds is compared as it is then.
	m := &merge{into: f.t, settled: 7, compared: map[[2]contents]bool{}}
	at := func(x *fixture, data uint32) state {
		return state{s: &side{t: x.t}, row: &inodeRow{node: node{ino: 9, mode: 0o120777, data: data}}}
	}
	for _, x := range []struct {
		data uint32
		kept int
	}{{8, 0}, {7, 1}} {
		if same, err := m.sameBytes(at(f, x.data), at(g, 9)); err != nil || !same || len(m.compared) != x.kept {
			t.Errorf("version %d: %v %v, %d remembered", x.data, same, err, len(m.compared))
		}
	}
}
