package workspace

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRepeatedRequests(t *testing.T) {
	for _, flush := range []bool{false, true} {
		f := newFixture(t, quiet(Options{}))
		e, resumed, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
		if err != nil || resumed || e == 0 {
			t.Fatal(e, resumed, err)
		}
		f.ok(f.w.SetEpochInit(e, []byte("init"), []byte("reply")))
		var unique uint64 = 100
		next := func() Caller { unique++; return Caller{Epoch: e, Unique: unique, UID: 1} }
		var repeat []func() string // each gives its answer again
		do := func(call func(Caller) (any, error)) {
			c := next()
			run := func() string {
				v, err := call(c)
				if a, ok := v.(Attr); ok {
					v = a.Ino
				}
				return fmt.Sprint(v, err)
			}
			first := run()
			if !strings.HasSuffix(first, "<nil>") {
				t.Fatal(first)
			}
			repeat = append(repeat, func() string {
				if got := run(); got != first {
					return fmt.Sprintf("%d: got %s, first %s", c.Unique, got, first)
				}
				return ""
			})
		}
		var file Ino
		do(func(c Caller) (any, error) { return f.t.Mkdir(c, Root, "d", 0o755) })
		do(func(c Caller) (any, error) { a, err := f.t.Create(c, Root, "f", 0o644); file = a.Ino; return a, err })
		do(func(c Caller) (any, error) { return f.t.Write(c, file, 0, []byte("hello")) })
		do(func(c Caller) (any, error) { return f.t.Symlink(c, Root, "l", "f") })
		do(func(c Caller) (any, error) { return nil, f.t.Rename(c, Root, "l", Root, "m", 0) })
		do(func(c Caller) (any, error) { return f.t.Link(c, file, Root, "hard") })
		do(func(c Caller) (any, error) { return nil, f.t.Unlink(c, Root, "hard") })
		do(func(c Caller) (any, error) { return nil, f.t.Rmdir(c, Root, "d") })
		do(func(c Caller) (any, error) { return nil, f.t.SetXattr(c, file, "user.a", []byte("b"), XattrCreate) })
		do(func(c Caller) (any, error) { return nil, f.t.RemoveXattr(c, file, "user.a") })
		do(func(c Caller) (any, error) { return f.t.CopyRange(c, file, 0, file, 100, 5) })
		do(func(c Caller) (any, error) { return f.t.SetAttr(c, file, SetAttrs{Mask: SetSize, Size: 50}) })
		do(func(c Caller) (any, error) { return nil, f.t.Fallocate(c, file, 0, 2, FallocPunchHole|FallocKeepSize) })
		do(func(c Caller) (any, error) { return nil, f.t.Unlink(c, Root, "m") })
		failed := next()
		f.want(f.t.Rmdir(failed, Root, "later"), syscall.ENOENT)
		want := f.dump()
		again := func() {
			t.Helper()
			for _, r := range repeat {
				if s := r(); s != "" {
					t.Fatal(s)
				}
			}
			if d := cmp.Diff(want, f.dump()); d != "" {
				t.Fatal(d)
			}
		}
		again()
		for range 3 {
			if flush {
				f.ok(f.w.Flush())
			}
			f.kill()
			e2, resumed, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
			if err != nil || !resumed || e2 != e {
				t.Fatal(e2, resumed, err)
			}
			if req, rep, ok := f.w.EpochInit(e); !ok || string(req)+string(rep) != "initreply" {
				t.Fatal(req, rep)
			}
			again()
		}
		// What had failed is executed anew.
		f.mkdir("later")
		f.ok(f.t.Rmdir(failed, Root, "later"))
		// What is acknowledged is forgotten.
		f.w.Acknowledge(e, 103)
		_, err = f.t.Mkdir(Caller{Epoch: e, Unique: 101}, Root, "f", 0o755)
		f.want(err, syscall.EEXIST)
		if s := repeat[2](); s != "" {
			t.Fatal(s)
		}
		f.w.Acknowledge(e, unique+1)
		if n := len(f.t.epochs[e].replies) + len(f.t.epochs[e].queue); n != 0 {
			t.Fatal(n)
		}
		f.ok(f.w.EndEpoch(e))
		_, err = f.t.Mkdir(next(), Root, "x", 0o755)
		f.want(err, syscall.ESTALE)
	}
}

func TestUnlinkedButOpen(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	e, _, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
	f.ok(err)
	c := Caller{Epoch: e}
	create := func(name string) Ino {
		a, err := f.t.Create(c, Root, name, 0o644)
		f.ok(err)
		_, err = f.t.Write(c, a.Ino, 0, []byte(name))
		f.ok(err)
		return a.Ino
	}
	gone := func(ino Ino, want bool) {
		t.Helper()
		if _, err := f.t.GetAttr(ino); (err == syscall.ENOENT) != want {
			t.Fatalf("inode %d: %v", ino, err)
		}
	}
	a, b, d := create("a"), create("b"), create("d")
	_, err = f.t.Lookup(c, Root, "a") // a second reference
	f.ok(err)
	f.ok(f.t.Unlink(c, Root, "a"))
	f.ok(f.t.Unlink(c, Root, "b"))
	if got := f.read(a); got != "a" {
		t.Fatal(got)
	}
	if at, _ := f.t.GetAttr(a); at.Nlink != 0 {
		t.Fatal(at)
	}
	_, err = f.t.Write(c, a, 1, []byte("nd more"))
	f.ok(err)
	f.t.Forget(c, a, 1)
	gone(a, false)
	f.t.Forget(c, a, 1)
	gone(a, true)
	gone(b, false)
	f.t.Forget(c, d, 1) // has a name: nothing happens
	gone(d, false)
	f.ok(f.t.Unlink(c, Root, "d")) // no kernel knows it: goes at once
	gone(d, true)
	dir, err := f.t.Mkdir(c, Root, "cwd", 0o755)
	f.ok(err)
	f.ok(f.t.Rmdir(c, Root, "cwd"))
	gone(dir.Ino, false)
	_, err = f.t.Create(c, dir.Ino, "x", 0o644)
	f.want(err, syscall.ENOENT)

	// A takeover: the kernel's counts from before are not known.
	p, q := create("p"), create("q")
	f.kill()
	if f.read(b) != "b" || f.w.Stat().Orphans != 2 {
		t.Fatal(f.w.Stat())
	}
	_, err = f.t.Lookup(c, Root, "p")
	f.ok(err)
	f.ok(f.t.Unlink(c, Root, "p"))
	f.ok(f.t.Unlink(c, Root, "q"))
	f.t.Forget(c, p, 1) // as many as counted: perhaps not all
	gone(p, false)
	f.t.Forget(c, q, 1) // more than counted: all
	gone(q, true)
	r, s := create("r"), create("s") // of what was made since, all lookups were counted
	f.ok(f.t.Unlink(c, Root, "r"))
	gone(r, false)
	f.t.Forget(c, r, 1)
	gone(r, true)
	f.t.Forget(c, s, 1)
	f.ok(f.t.Unlink(c, Root, "s"))
	gone(s, true)
	f.ok(f.w.EndEpoch(e))
	for _, ino := range []Ino{a, b, d, p, q, dir.Ino} {
		gone(ino, true)
	}
	if s := f.w.Stat(); s.Inodes != 1 || s.Orphans != 0 || s.Allocated != 0 {
		t.Fatalf("%+v", s)
	}
	f.kill()
	if got := f.sql("SELECT (SELECT count(*) FROM inode) || (SELECT count(*) FROM extent)"); got[0] != "10" {
		t.Fatal(got)
	}
}

func TestHostMountsEndWithTheDaemon(t *testing.T) {
	f := newFixture(t, Options{})
	e, _, err := f.w.BeginEpoch([16]byte{1}, HostMount)
	f.ok(err)
	_, _, err = f.w.BeginEpoch([16]byte{2}, GuestMount)
	f.ok(err)
	if len(f.w.Epochs()) != 2 {
		t.Fatal(f.w.Epochs())
	}
	f.kill()
	if got := f.w.Epochs(); len(got) != 1 || got[0].Kind != GuestMount || got[0].ID != [16]byte{2} || got[0].Epoch == e {
		t.Fatal(got)
	}
}
