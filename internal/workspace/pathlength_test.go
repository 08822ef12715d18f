package workspace

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

// longest returns the length of the longest path that the index has.
func (f *fixture) longest() (n int) {
	f.Helper()
	f.ok(f.w.Flush())
	if _, err := fmt.Sscan(f.sql("SELECT max(length(CAST(path AS BLOB))) FROM dir")[0], &n); err != nil {
		f.Fatal(err)
	}
	return n
}

// Paths of directories are bounded, however they come about; names below them
// are not.
func TestLongPaths(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	name := strings.Repeat("n", 255)
	deep := Root
	for range 31 {
		a, err := f.t.Mkdir(f.c, deep, name, 0o755)
		f.ok(err)
		deep = a.Ino
	}
	for range 2 {
		_, err := f.t.Mkdir(f.c, deep, name, 0o755)
		f.want(err, syscall.ENAMETOOLONG)
		a, err := f.t.Mkdir(f.c, deep, name[1:], 0o755)
		f.ok(err)
		_, err = f.t.Create(f.c, a.Ino, name, 0o644)
		f.ok(err)
		f.ok(f.t.Unlink(f.c, a.Ino, name))
		f.ok(f.t.Rmdir(f.c, deep, name[1:]))
		f.reopen()
	}
	// The chain as a whole moves only to where its end has room.
	wide, narrow := strings.Repeat("d", 255), strings.Repeat("d", 254)
	f.mkdir(wide)
	f.mkdir(narrow)
	f.want(f.rename(name, wide+"/"+name, 0), syscall.ENAMETOOLONG)
	f.mkdir(wide + "/" + wide)
	f.want(f.rename(name, wide+"/"+wide, RenameExchange), syscall.ENAMETOOLONG)
	f.ok(f.rename(name, narrow+"/"+name, 0))
	f.want(f.rename(narrow, wide, 0), syscall.ENOTEMPTY)
	f.ok(f.rmdir(wide + "/" + wide))
	f.want(f.rename(narrow, wide, 0), syscall.ENAMETOOLONG)
	if n := f.longest(); n != mostPath {
		t.Errorf("%d bytes", n)
	}
	f.check()
}

// Growing and shrinking for ever is not taken for growing.
func TestRenamesDoNotAddUp(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	f.mkdir("d")
	f.mkdir("d/e")
	long := strings.Repeat("l", 200)
	for n := range 50 {
		f.ok(f.rename("d", long, 0))
		f.ok(f.rename(long, "d", 0))
		if n%10 == 0 {
			f.ok(f.w.Flush())
		}
	}
	f.ok(f.w.Flush())
	if n := f.longest(); n != 4 {
		t.Errorf("%d bytes", n)
	}
}

// No order of operations makes a path too long.
func TestLongPathsModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	f := newFixture(t, quiet(Options{}))
	dirs := []Ino{Root}
	type place struct {
		parent Ino
		name   string
	}
	places := map[Ino]place{}
	refused := 0
	for n := range 1000 {
		name := strings.Repeat("x", 1+r.IntN(240)) + fmt.Sprint(n)
		to := dirs[max(len(dirs)-1-r.IntN(20), 0)]
		switch r.IntN(40) {
		case 0:
			f.ok(f.w.Flush())
		case 1:
			f.reopen()
		default:
			if len(dirs) < 2 || r.IntN(3) > 0 {
				a, err := f.t.Mkdir(f.c, to, name, 0o755)
				if err == nil {
					dirs = append(dirs, a.Ino)
					places[a.Ino] = place{to, name}
				} else if err == syscall.ENAMETOOLONG {
					refused++
				} else {
					t.Fatal(err)
				}
				continue
			}
			in := dirs[1+r.IntN(len(dirs)-1)]
			p := places[in]
			switch err := f.t.Rename(f.c, p.parent, p.name, to, name, 0); err {
			case nil:
				places[in] = place{to, name}
			case syscall.ENAMETOOLONG:
				refused++
			case syscall.EINVAL: // into itself
			default:
				t.Fatal(err)
			}
		}
	}
	if n := f.longest(); n > mostPath || n < mostPath/2 || refused == 0 {
		t.Errorf("the longest path has %d bytes, %d were refused", n, refused)
	}
	f.check()
}
