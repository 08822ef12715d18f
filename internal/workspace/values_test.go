package workspace

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What a guest puts in attributes and symlinks does not stay in memory, and
// comes back from the index as it was.
func TestValuesAreBounded(t *testing.T) {
	const most = 64 << 10
	f := newFixture(t, Options{CacheValues: most})
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 3000+i) }
	target := func(i int) string { return strings.Repeat(fmt.Sprint(i%10), 3000+i) }
	bounded := func(when string) {
		t.Helper()
		f.t.mu.Lock()
		defer f.t.mu.Unlock()
		if n := f.heldValues(); n != f.t.inodes.values || n > most+most/16 {
			t.Fatalf("%s: %d bytes are held, %d counted", when, n, f.t.inodes.values)
		}
	}
	var files, links []Ino
	for i := range 100 {
		file := f.put(fmt.Sprint("f", i), "x").Ino
		if i%4 == 0 {
			d := f.mkdir(fmt.Sprint("d", i)).Ino
			if _, err := f.t.Create(f.c, d, "in it", 0o644); err != nil {
				t.Fatal(err)
			}
			file = d
		}
		f.ok(f.t.SetXattr(f.c, file, "user.a", value(i), 0))
		f.ok(f.t.SetXattr(f.c, file, "user.gone", value(i), 0))
		f.ok(f.t.RemoveXattr(f.c, file, "user.gone"))
		l, err := f.t.Symlink(f.c, Root, fmt.Sprint("l", i), target(i))
		f.ok(err)
		files, links = append(files, file), append(links, l.Ino)
	}
	f.ok(f.w.Flush())
	bounded("written")
	for round := range 3 {
		for i, ino := range files {
			v, err := f.t.GetXattr(ino, "user.a")
			if err != nil || !bytes.Equal(v, value(i)) {
				t.Fatalf("file %d: %d bytes, %v", i, len(v), err)
			}
			_, err = f.t.GetXattr(ino, "user.gone")
			f.want(err, syscall.ENODATA)
			if s, err := f.t.Readlink(links[i]); err != nil || s != target(i) {
				t.Fatalf("link %d: %d bytes, %v", i, len(s), err)
			}
			if round == 0 {
				bounded("read")
				continue
			}
			// What is dirty stays until it is written, and loses nothing.
			for _, ino := range []Ino{ino, links[i]} {
				if _, err := f.t.SetAttr(f.c, ino, SetAttrs{Mask: SetMtime, Mtime: int64(i)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.ok(f.w.Flush())
		bounded("flushed")
		if round == 1 {
			f.reopen()
		}
	}
}

// Values that are not written yet make operations wait for the index as rows
// do, so that they too are bounded in bytes.
func TestDirtyValuesAreBounded(t *testing.T) {
	const most, size = 200, 20_000 // rows, or KiB; bytes
	f := newFixture(t, Options{MaxDirty: most, FlushOps: 1 << 20, FlushInterval: time.Hour, CacheValues: 1})
	bounded := func() {
		t.Helper()
		f.t.mu.Lock()
		defer f.t.mu.Unlock()
		n := f.heldValues() // next to nothing of it is clean
		for _, x := range f.t.batch.past.xattrs {
			n += len(x.value)
		}
		if n > most<<10+3*size {
			t.Fatal(n, "bytes are dirty")
		}
	}
	for i := range 50 {
		a := f.put(fmt.Sprint("f", i), "x").Ino
		for k := range 2 {
			// Another writer's value is the past of the next.
			c := f.c
			c.Writer = Writer{Kind: "agent", Name: fmt.Sprint(i, k)}
			f.ok(f.t.SetXattr(c, a, "user.a", bytes.Repeat([]byte{byte(k)}, size), 0))
			bounded()
		}
	}
	for i := range 400 {
		_, err := f.t.Symlink(f.c, Root, fmt.Sprint("l", i), strings.Repeat("x", 4000))
		f.ok(err)
		bounded()
	}
	f.ok(f.w.Flush())
	for i := range 10 {
		f.ok(f.t.SetXattr(f.c, Root, fmt.Sprint("user.", i), make([]byte, 10<<10), 0))
	}
	var written atomic.Int32
	f.opt.MaxDirty, f.opt.Fail = 15, func(point string) error {
		if point == "flush.commit" {
			written.Add(1)
		}
		return nil
	}
	f.kill()
	if n := written.Load(); n < 5 {
		t.Errorf("replay wrote to the index %d times", n)
	}
	for i := range 50 {
		v, err := f.t.GetXattr(f.must(fmt.Sprint("f", i)).Ino, "user.a")
		if err != nil || len(v) != size || v[0] != 1 {
			t.Fatal(i, len(v), err)
		}
	}
}
