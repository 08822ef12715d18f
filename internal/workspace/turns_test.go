package workspace

import (
	"bytes"
	"fmt"
	"testing"

	"holt"
)

// What two writers write over each other's by turns, no checkpoint sees: it is
// not kept, so that it cannot fill a disk outside of any quota. What one of them
// did first is still told, and what a checkpoint sees stays.
func TestTurnsOfWritersAreNotKept(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 1 << 20}))
	a := Caller{Writer: Writer{Kind: "run", Name: "agent", Run: "run_a"}}
	b := Caller{Writer: Writer{Kind: "run", Name: "agent", Run: "run_b"}}
	ino := f.put("f", "as it was").Ino
	f.ok(f.t.SetXattr(f.c, ino, "user.x", []byte("as it was"), 0))
	f.checkpoint("then")
	turn := func(i int, c Caller) {
		data := bytes.Repeat([]byte{byte(i)}, 64<<10)
		_, err := f.t.Write(c, ino, 0, data)
		f.ok(err)
		f.ok(f.t.SetXattr(c, ino, "user.x", data[:1000], 0))
		// The same with files that one makes and the other removes.
		g, err := f.t.Create(c, Root, fmt.Sprint("g", i), 0o644)
		f.ok(err)
		_, err = f.t.Write(c, g.Ino, 0, data)
		f.ok(err)
		f.ok(f.t.SetXattr(c, g.Ino, "user.x", data[:1000], 0))
		if i%10 == 0 {
			f.ok(f.w.Flush())
		}
		other := a
		if c == a {
			other = b
		}
		f.ok(f.t.Unlink(other, Root, fmt.Sprint("g", i)))
	}
	for i := range 200 {
		turn(i, []Caller{a, b}[i%2])
	}
	f.ok(f.w.Flush())
	f.ok(f.t.collect())
	if got := f.sql("SELECT count(*) || ' ' || sum(len) FROM past_extent"); got[0] != "1 9" {
		t.Error("extents of the past: ", got)
	}
	if got := f.sql("SELECT count(*) || ' ' || sum(length(value)) FROM past_xattr"); got[0] != "1 9" {
		t.Error("attributes of the past: ", got)
	}
	if s := f.w.Stat(); s.JournalBytes > 4<<20 {
		t.Errorf("%d MiB of segments stay", s.JournalBytes>>20)
	}
	f.kill()
	for _, run := range []string{"run_a", "run_b"} {
		if r, _ := f.undo(run, RestoreOptions{}); len(r.Changes) != 0 || len(r.Conflicts) != 1 || r.Conflicts[0].Path != "/f" {
			t.Errorf("%+v", r)
		}
	}
	f.restore("then")
	if got := f.get("f"); got != "as it was" {
		t.Errorf("%q", got[:9])
	}
}

// Of rows that only tell who did what, a generation keeps a bounded number:
// writers who take turns without end fill no disk with them. What is there stays
// right, and an undo that could take back another's work is refused.
func TestTurnsOfWritersAreBounded(t *testing.T) {
	const most = 100
	f := newFixture(t, quiet(Options{mostInterleaved: most}))
	a := Caller{Writer: Writer{Kind: "run", Name: "agent", Run: "run_a"}}
	b := Caller{Writer: Writer{Kind: "run", Name: "agent", Run: "run_b"}}
	ino := f.put("f", "as it was").Ino
	f.mkdir("d")
	f.checkpoint("then")
	rows := func() (n [4]int) {
		f.ok(f.w.Flush())
		for i, table := range []string{"past_inode", "past_entry", "past_dir", "version"} {
			_, err := fmt.Sscan(f.sql("SELECT count(*) FROM " + table)[0], &n[i])
			f.ok(err)
		}
		return n
	}
	turns := func(n int) {
		for i := range n {
			c, other := a, b
			if i%2 == 1 {
				c, other = b, a
			}
			_, err := f.t.Write(c, ino, int64(i%9), []byte("x"))
			f.ok(err)
			_, err = f.t.Create(c, Root, "g", 0o644)
			f.ok(err)
			f.ok(f.t.Unlink(other, Root, "g"))
			f.ok(f.t.Rename(c, Root, "d", Root, "e", 0))
			f.ok(f.t.Rename(other, Root, "e", Root, "d", 0))
		}
	}
	turns(5)
	f.undo("run_a", RestoreOptions{DryRun: true}) // all is known so far
	turns(100)
	before := rows()
	turns(300)
	if after := rows(); after != before {
		t.Errorf("rows of inodes, names, directories and versions grew from %v to %v", before, after)
	}
	turns(4)
	want := f.dump()
	f.kill()
	if got := f.dump(); got != want {
		t.Errorf("after a death:\n%s\nwant:\n%s", got, want)
	}
	if after := rows(); after != before {
		t.Errorf("and to %v by a replay", after)
	}
	for _, run := range []string{"run_a", "run_b"} {
		if _, err := f.w.Undo(t.Context(), f.c, run, RestoreOptions{}); holt.CodeOf(err) != holt.Conflict {
			t.Errorf("undo of %s: %v", run, err)
		}
	}
	f.checkpoint("later") // the next generation begins anew
	c := Caller{Writer: Writer{Kind: "run", Name: "agent", Run: "run_c"}}
	_, err := f.t.Write(c, ino, 0, []byte("of run c"))
	f.ok(err)
	f.undo("run_c", RestoreOptions{})
	if got := f.get("f"); got != "xxxxxxxxx" {
		t.Errorf("%q", got)
	}
	f.restore("then")
	if got := f.get("f"); got != "as it was" {
		t.Errorf("%q", got)
	}
	f.restore("later")
	if got := f.get("f"); got != "xxxxxxxxx" {
		t.Errorf("%q", got)
	}
}
