package workspace

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// On a host disk without a free byte, files can be deleted, the index goes on,
// and the workspace opens; when there is room again all is as before.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=48m"); err != nil {
		t.Fatal("mount a small disk: ", err, "; run this test as root")
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	f := newFixture(t, Options{})
	f.ok(f.w.Close())
	f.dir = filepath.Join(disk, "ws")
	w, err := Create(f.dir, f.opt)
	f.ok(err)
	f.w, f.t = w, w.Tree()
	f.mkdir("d")
	for _, name := range []string{"a", "b", "c"} {
		f.put("d/"+name, name)
	}
	f.ok(f.w.Flush())
	ballast := filepath.Join(disk, "ballast")
	b, err := os.Create(ballast)
	f.ok(err)
	for err == nil {
		_, err = b.Write(bytes.Repeat([]byte{1}, 64<<10))
	}
	for err = nil; err == nil; {
		_, err = b.Write([]byte{1})
	}
	f.ok(b.Close())
	data := bytes.Repeat([]byte("x"), 1<<20)
	_, err = f.t.Write(f.c, f.must("d/a").Ino, 0, data)
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
	f.put("new", string(data))
	if _, err := os.Stat(filepath.Join(f.dir, "reserve")); err != nil || f.t.short {
		t.Fatal(err)
	}
	f.check()
	f.ok(f.w.Close())
	f.w = nil
}
