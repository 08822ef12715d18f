package workspace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFilesAndDirs(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("a")
	f.mkdir("a/b")
	f.put("a/b/file", "hello")
	f.put("top", "")
	for range 3 {
		if got := f.get("a/b/file"); got != "hello" {
			t.Fatal(got)
		}
		if a := f.must("a"); a.Nlink != 3 || !a.IsDir() || a.UID != 1000 {
			t.Fatalf("%+v", a)
		}
		if got := f.list(""); !cmp.Equal(got, []string{"a", "top"}) {
			t.Fatal(got)
		}
		_, err := f.stat("a/none")
		f.want(err, syscall.ENOENT)
		up, err := f.t.Lookup(Caller{}, f.must("a/b").Ino, "..")
		if err != nil || up.Ino != f.must("a").Ino {
			t.Fatal(up, err)
		}
		f.want(f.rmdir("a"), syscall.ENOTEMPTY)
		f.want(f.unlink("a"), syscall.EISDIR)
		f.want(f.rmdir("top"), syscall.ENOTDIR)
		f.reopen()
	}
	if got := f.sql("SELECT path FROM dir ORDER BY path"); !cmp.Equal(got, []string{"/", "/a", "/a/b"}) {
		t.Fatal(got)
	}
	f.ok(f.unlink("a/b/file"))
	f.ok(f.rmdir("a/b"))
	f.ok(f.rmdir("a"))
	f.ok(f.unlink("top"))
	if s := f.w.Stat(); s.Inodes != 1 || s.Dirs != 1 || s.Files != 0 || s.Bytes != 0 || s.Allocated != 0 {
		t.Fatalf("%+v", s)
	}
	f.reopen()
	if got := f.sql("SELECT count(*) FROM inode, dir"); got[0] != "1" {
		t.Fatal(got)
	}
	if a := f.must(""); a.Nlink != 2 {
		t.Fatal(a)
	}
}

func TestNames(t *testing.T) {
	f := newFixture(t, Options{})
	long := strings.Repeat("\xff\xfeé", 63) + "\x01\x02\x03"
	f.put(long, "x")
	if len(long) != 255 {
		t.Fatal(len(long))
	}
	for name, want := range map[string]error{
		long + "x": syscall.ENAMETOOLONG, "": syscall.EINVAL, ".": syscall.EINVAL, "..": syscall.EINVAL,
		"a/b": syscall.EINVAL, "a\x00b": syscall.EINVAL,
	} {
		_, err := f.t.Create(f.c, Root, name, 0o644)
		f.want(err, want)
		_, err = f.t.Mkdir(f.c, Root, name, 0o755)
		f.want(err, want)
		f.want(f.t.Rename(f.c, Root, long, Root, name, 0), want)
		_, err = f.t.Link(f.c, f.must(long).Ino, Root, name)
		f.want(err, want)
	}
	_, err := f.t.Lookup(f.c, Root, long+"x")
	f.want(err, syscall.ENAMETOOLONG)
	_, err = f.t.Create(f.c, Root, long, 0o644)
	f.want(err, syscall.EEXIST)
	f.reopen()
	if f.get(long) != "x" || f.list("")[0] != long {
		t.Fatal("the name changed")
	}
}

func TestRename(t *testing.T) {
	f := newFixture(t, Options{Now: time.Now})
	f.mkdir("d")
	f.mkdir("d/e")
	f.mkdir("full")
	f.put("full/x", "x")
	f.mkdir("empty")
	f.put("a", "A")
	f.put("b", "B")
	a := f.must("a")

	f.want(f.rename("d", "d/e/f", 0), syscall.EINVAL)
	f.want(f.rename("d", "d/g", 0), syscall.EINVAL)
	f.want(f.rename("d", "full", 0), syscall.ENOTEMPTY)
	f.want(f.rename("d", "a", 0), syscall.ENOTDIR)
	f.want(f.rename("a", "d", 0), syscall.EISDIR)
	f.want(f.rename("a", "b", RenameNoReplace), syscall.EEXIST)
	f.want(f.rename("a", "none", RenameExchange), syscall.ENOENT)
	f.want(f.rename("none", "x", 0), syscall.ENOENT)
	f.want(f.rename("a", "b", 3), syscall.EINVAL)
	f.want(f.rename("d/e", "d", RenameExchange), syscall.EINVAL)
	f.want(f.rename("d", "d/e", RenameExchange), syscall.EINVAL)
	f.ok(f.rename("a", "a", 0))
	f.ok(f.rename("d", "d", 0))

	f.ok(f.rename("a", "b", 0))
	if got := f.must("b"); got.Ino != a.Ino || got.Ctime <= a.Ctime || got.Mtime != a.Mtime || f.get("b") != "A" {
		t.Fatalf("%+v", got)
	}
	_, err := f.stat("a")
	f.want(err, syscall.ENOENT)
	f.ok(f.rename("d", "empty", 0)) // over an empty directory
	if f.must("").Nlink != 4 || f.must("empty").Nlink != 3 {
		t.Fatal(f.must("").Nlink)
	}
	f.ok(f.rename("empty/e", "full/e", 0))
	if f.must("empty").Nlink != 2 || f.must("full").Nlink != 3 {
		t.Fatal("links of directories")
	}
	f.ok(f.rename("b", "full/e", RenameExchange)) // a file against a directory
	if !f.must("b").IsDir() || f.get("full/e") != "A" || f.must("full").Nlink != 2 || f.must("").Nlink != 5 {
		t.Fatal(f.must("").Nlink)
	}
	f.mkdir("b/deep")
	f.mkdir("full/other")
	f.mkdir("full/other/deeper")
	f.ok(f.rename("b", "full/other", RenameExchange)) // two directories
	f.must("b/deeper")
	f.must("full/other/deep")
	want := f.dump()
	paths := []string{"/", "/b", "/b/deeper", "/empty", "/full", "/full/other", "/full/other/deep"}
	for range 2 {
		if got := f.sql("SELECT path FROM dir ORDER BY path"); !cmp.Equal(got, paths) {
			t.Fatal(got)
		}
		f.kill()
		if d := cmp.Diff(want, f.dump()); d != "" {
			t.Fatal(d)
		}
	}
}

func TestRenameMovesPathsBelow(t *testing.T) {
	f := newFixture(t, Options{})
	for _, d := range []string{"a", "a/b", "a/b/c", "a0", "a/b0"} {
		f.mkdir(d)
	}
	f.ok(f.w.Flush())
	f.mkdir("a/new")
	f.ok(f.rename("a/b", "a0/moved", 0))
	f.mkdir("a0/moved/late")
	f.ok(f.rename("a", "z", 0))
	want := []string{"/", "/a0", "/a0/moved", "/a0/moved/c", "/a0/moved/late", "/z", "/z/b0", "/z/new"}
	if got := f.sql("SELECT path FROM dir ORDER BY path"); !cmp.Equal(got, want) {
		t.Fatal(got)
	}
}

func TestHardLinks(t *testing.T) {
	f := newFixture(t, Options{Now: time.Now})
	a := f.put("a", "data")
	f.mkdir("d")
	l, err := f.t.Link(f.c, a.Ino, f.must("d").Ino, "b")
	if err != nil || l.Nlink != 2 || l.Ino != a.Ino || l.Ctime <= a.Ctime {
		t.Fatal(l, err)
	}
	_, err = f.t.Link(f.c, f.must("d").Ino, Root, "dl")
	f.want(err, syscall.EPERM)
	_, err = f.t.Link(f.c, a.Ino, Root, "a")
	f.want(err, syscall.EEXIST)
	f.ok(f.rename("a", "d/b", 0)) // the same inode: nothing happens
	f.must("a")
	f.ok(f.unlink("a"))
	if got := f.must("d/b"); got.Nlink != 1 || f.get("d/b") != "data" {
		t.Fatal(got)
	}
	f.reopen()
	f.ok(f.unlink("d/b"))
	if s := f.w.Stat(); s.Files != 0 {
		t.Fatal(s)
	}
	_, err = f.t.GetAttr(a.Ino)
	f.want(err, syscall.ENOENT)
}

func TestSymlinksAndNodes(t *testing.T) {
	f := newFixture(t, Options{})
	a, err := f.t.Symlink(f.c, Root, "l", "../some/\xffwhere")
	f.ok(err)
	_, err = f.t.Symlink(f.c, Root, "m", strings.Repeat("x", 4096))
	f.want(err, syscall.ENAMETOOLONG)
	for name, mode := range map[string]uint32{"fifo": syscall.S_IFIFO, "sock": syscall.S_IFSOCK, "chr": syscall.S_IFCHR, "blk": syscall.S_IFBLK, "reg": 0} {
		_, err := f.t.Mknod(f.c, Root, name, mode|0o600, 0x0801)
		f.ok(err)
	}
	_, err = f.t.Mknod(f.c, Root, "dir", syscall.S_IFDIR|0o600, 0)
	f.want(err, syscall.EINVAL)
	for range 2 {
		target, err := f.t.Readlink(a.Ino)
		if err != nil || target != "../some/\xffwhere" || f.must("l").Size != int64(len(target)) {
			t.Fatal(target, err)
		}
		if b := f.must("blk"); b.Rdev != 0x0801 || b.Mode != syscall.S_IFBLK|0o600 {
			t.Fatalf("%+v", b)
		}
		_, err = f.t.Readlink(f.must("reg").Ino)
		f.want(err, syscall.EINVAL)
		_, err = f.t.Read(f.must("fifo").Ino, 0, make([]byte, 1))
		f.want(err, syscall.EINVAL)
		_, err = f.t.Read(Root, 0, make([]byte, 1))
		f.want(err, syscall.EISDIR)
		_, err = f.t.Create(f.c, a.Ino, "x", 0o644)
		f.want(err, syscall.ENOTDIR)
		f.reopen()
	}
}

func TestTimes(t *testing.T) {
	f := newFixture(t, Options{Now: time.Now})
	a := f.put("f", "x")
	past := time.Date(1901, 1, 2, 3, 4, 5, 678_912_345, time.UTC).UnixNano()
	future := time.Date(2106, 7, 8, 9, 10, 11, 123_456_789, time.UTC).UnixNano()
	b, err := f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetAtime | SetMtime, Atime: past, Mtime: future})
	if err != nil || b.Atime != past || b.Mtime != future || b.Ctime <= a.Ctime || b.Btime != a.Btime {
		t.Fatalf("%+v %v", b, err)
	}
	f.reopen()
	if got := f.must("f"); got.Atime != past || got.Mtime != future {
		t.Fatalf("%+v", got)
	}
	c, err := f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetMtimeNow}) // atime omitted
	if err != nil || c.Atime != past || c.Mtime == future || c.Mtime != c.Ctime {
		t.Fatalf("%+v %v", c, err)
	}
	dir := f.must("")
	f.put("g", "")
	if now := f.must(""); now.Mtime <= dir.Mtime || now.Ctime <= dir.Ctime {
		t.Fatal("a new name must change the directory's times")
	}
	dir = f.must("")
	_, err = f.t.Write(f.c, a.Ino, 0, []byte("y"))
	f.ok(err)
	if now := f.must("f"); now.Mtime <= c.Mtime || f.must("").Mtime != dir.Mtime {
		t.Fatal("a write changes the file's times, not the directory's")
	}
	_, err = f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetMode, Mode: 0o600})
	f.ok(err)
	if now := f.must("f"); now.Ctime == now.Mtime || now.Mode != syscall.S_IFREG|0o600 {
		t.Fatalf("%+v", now)
	}
}

func TestSetIDBits(t *testing.T) {
	f := newFixture(t, Options{})
	a := f.put("f", "x")
	set := func(c Caller, s SetAttrs) uint32 {
		b, err := f.t.SetAttr(c, a.Ino, s)
		f.ok(err)
		return b.Mode & 07777
	}
	root := Caller{}
	arm := func() { set(root, SetAttrs{Mask: SetMode, Mode: 0o6755}) }
	arm()
	if m := f.must("f").Mode & 07777; m != 0o6755 {
		t.Fatalf("%o", m)
	}
	if m := set(root, SetAttrs{Mask: SetUID, UID: 5}); m != 0o755 {
		t.Fatalf("chown: %o", m)
	}
	arm()
	_, err := f.t.Write(f.c, a.Ino, 0, []byte("y"))
	f.ok(err)
	if m := f.must("f").Mode & 07777; m != 0o755 {
		t.Fatalf("write: %o", m)
	}
	arm()
	_, err = f.t.Write(root, a.Ino, 0, []byte("y"))
	f.ok(err)
	if m := f.must("f").Mode & 07777; m != 0o6755 {
		t.Fatalf("write by root: %o", m)
	}
	if m := set(f.c, SetAttrs{Mask: SetSize, Size: 3}); m != 0o755 {
		t.Fatalf("truncate: %o", m)
	}
	set(root, SetAttrs{Mask: SetMode, Mode: 0o2644})
	if m := set(root, SetAttrs{Mask: SetKillPriv}); m != 0o2644 {
		t.Fatalf("locking bit: %o", m)
	}
	d := f.mkdir("d")
	_, err = f.t.SetAttr(root, d.Ino, SetAttrs{Mask: SetMode | SetGID, Mode: 0o2775, GID: 77})
	f.ok(err)
	sub := f.mkdir("d/sub")
	file := f.put("d/file", "")
	if sub.GID != 77 || sub.Mode&07777 != 0o2755 || file.GID != 77 || file.Mode&07777 != 0o644 {
		t.Fatalf("%o %d", sub.Mode, sub.GID)
	}
}

func TestXattrs(t *testing.T) {
	f := newFixture(t, Options{})
	a := f.put("f", "")
	big := bytes.Repeat([]byte{7}, xattrSizeMax)
	f.ok(f.t.SetXattr(f.c, a.Ino, "user.tag", []byte("urgent"), 0))
	f.ok(f.t.SetXattr(f.c, a.Ino, "user.big", big, XattrCreate))
	f.ok(f.t.SetXattr(f.c, a.Ino, "security.capability", nil, 0))
	f.want(f.t.SetXattr(f.c, a.Ino, "user.tag", nil, XattrCreate), syscall.EEXIST)
	f.want(f.t.SetXattr(f.c, a.Ino, "user.none", nil, XattrReplace), syscall.ENODATA)
	f.want(f.t.SetXattr(f.c, a.Ino, "user.x", append(big, 1), 0), syscall.E2BIG)
	f.want(f.t.SetXattr(f.c, a.Ino, "user."+strings.Repeat("x", 255), nil, 0), syscall.ERANGE)
	f.want(f.t.RemoveXattr(f.c, a.Ino, "user.none"), syscall.ENODATA)
	for range 2 {
		names, err := f.t.ListXattr(a.Ino)
		if err != nil || !cmp.Equal(names, []string{"security.capability", "user.big", "user.tag"}) {
			t.Fatal(names, err)
		}
		v, err := f.t.GetXattr(a.Ino, "user.big")
		if err != nil || !bytes.Equal(v, big) {
			t.Fatal(len(v), err)
		}
		f.kill()
	}
	f.ok(f.t.SetXattr(f.c, a.Ino, "user.tag", []byte("later"), XattrReplace))
	f.ok(f.t.RemoveXattr(f.c, a.Ino, "user.big"))
	_, err := f.t.GetXattr(a.Ino, "user.big")
	f.want(err, syscall.ENODATA)
	f.reopen()
	if got := f.sql("SELECT name || '=' || value FROM xattr WHERE name >= CAST('user' AS BLOB)"); !cmp.Equal(got, []string{"user.tag=later"}) {
		t.Fatal(got)
	}
	if v, _ := f.t.GetXattr(a.Ino, "user.tag"); string(v) != "later" {
		t.Fatal(v)
	}
	f.ok(f.unlink("f"))
	if got := f.sql("SELECT count(*) FROM xattr"); got[0] != "0" {
		t.Fatal(got)
	}
}

func TestReadDirIsStable(t *testing.T) {
	for _, n := range []int{50, 1000} { // loaded whole, and merged with rows
		f := newFixture(t, Options{CacheEntries: 20, FlushOps: 100})
		f.mkdir("d")
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("f%04d", i))
			f.put("d/"+all[i], "")
		}
		ino := f.must("d").Ino
		rng := rand.New(rand.NewPCG(uint64(n), 2))
		seen := map[string]int{}
		gone := map[string]bool{}
		cookie := uint64(0)
		for round := 0; ; round++ {
			got := 0
			f.ok(f.t.ReadDir(Caller{}, ino, cookie, round%2 == 0, func(e DirEntry) bool {
				if got == 5 {
					return false
				}
				got++
				seen[e.Name]++
				cookie = e.Cookie
				return true
			}))
			if got == 0 {
				break
			}
			victim := all[rng.IntN(n)]
			if !gone[victim] {
				gone[victim] = true
				if rng.IntN(2) == 0 {
					f.ok(f.unlink("d/" + victim))
				} else {
					f.ok(f.rename("d/"+victim, "moved"+victim, 0))
				}
			}
			if round%3 == 0 && round < n/2 {
				f.put(fmt.Sprintf("d/new%d", round), "")
			}
			if round%7 == 0 {
				f.ok(f.w.Flush())
				f.t.mu.Lock()
				f.t.inodes.tidyDirs(0)
				f.t.mu.Unlock()
			}
		}
		for _, name := range all {
			if !gone[name] && seen[name] != 1 || seen[name] > 1 {
				t.Fatalf("%s seen %d times", name, seen[name])
			}
		}
		want := f.list("d")
		slices.Sort(want)
		f.kill()
		got := f.list("d")
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
}

func TestStatFS(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("f", strings.Repeat("x", 1<<20))
	s, err := f.t.StatFS()
	f.ok(err)
	if s.Blocks*uint64(s.BlockSize) != 1<<50 || s.Blocks-s.BlocksFree != 256 || s.NameMax != 255 {
		t.Fatalf("%+v", s)
	}
}
