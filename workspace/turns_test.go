package workspace

import (
	"bytes"
	"fmt"
	"testing"
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
