package workspace

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// as makes the fixture act as a run, begun and ended around fn.
func (f *fixture) run(id string, fn func()) Receipt {
	f.Helper()
	_, err := f.w.BeginRun(id)
	f.ok(err)
	was := f.c
	f.c.Writer = Writer{Kind: "run", Name: "agent", Run: id}
	fn()
	f.c = was
	_, _, err = f.w.EndRun(context.Background(), id, true)
	f.ok(err)
	r, err := f.w.Receipt(context.Background(), id)
	f.ok(err)
	return r
}

// stretch makes the fixture act as a terminal, in one stretch of work.
func (f *fixture) stretch(terminal holt.TerminalID, fn func()) holt.StretchID {
	f.Helper()
	id := holt.NewStretchID(terminal)
	_, err := f.w.BeginSession(id, "main")
	f.ok(err)
	was := f.c
	f.c.Writer = Writer{Kind: "terminal", Name: "agent", Run: string(id), Terminal: string(terminal)}
	fn()
	f.c = was
	_, _, err = f.w.EndSession(context.Background(), id, "main", true)
	f.ok(err)
	return id
}

// TestLastWork: without a name the last run is meant, whatever a terminal did since,
// and a terminal stands for the last stretch in it.
func TestLastWork(t *testing.T) {
	f := newFixture(t, Options{})
	s, terminal := History{W: f.w}, holt.NewTerminalID()
	stretch := f.stretch(terminal, func() { f.put("log", "1") })
	_, err := s.Undo(t.Context(), holt.UndoSpec{})
	if holt.CodeOf(err) != holt.NotFound {
		t.Errorf("undo without a run: %v", err)
	}
	f.run("removes", func() { f.ok(f.unlink("log")) })
	last := f.stretch(terminal, func() { f.put("log", "2") })
	for _, c := range []struct{ ref, want string }{{"", "removes"}, {string(terminal), string(last)}, {string(stretch), string(stretch)}} {
		if r, err := s.Undo(t.Context(), holt.UndoSpec{Run: c.ref, DryRun: true}); err != nil || r.Run != c.want {
			t.Errorf("undo of %q: %+v, %v; want that of %s", c.ref, r, err, c.want)
		}
	}
}

func (f *fixture) undo(run string, opt RestoreOptions) (Report, []string) {
	f.Helper()
	r, err := f.w.Undo(context.Background(), f.c, run, opt)
	f.ok(err)
	var conflicts []string
	for _, c := range r.Conflicts {
		conflicts = append(conflicts, c.Path+": "+c.Code.Sentence())
	}
	return r, conflicts
}

// TestBadAfternoon has three runs do harm, one after the other, and takes back
// the first of them only; then everything.
func TestBadAfternoon(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("src")
	for i := range 50 {
		f.mkdir(fmt.Sprint("src/d", i))
		for k := range 4 {
			f.put(fmt.Sprint("src/d", i, "/f", k), fmt.Sprint("file ", i, k))
		}
	}
	f.put("data.db", strings.Repeat("good", 10_000))
	f.put("README", "read me")
	begun := f.checkpoint("begun")
	morning := f.dump()

	deleted := f.run("deletes", func() {
		for i := range 50 {
			for k := range 4 {
				f.ok(f.unlink(fmt.Sprint("src/d", i, "/f", k)))
			}
			f.ok(f.rmdir(fmt.Sprint("src/d", i)))
		}
		f.ok(f.rmdir("src"))
	})
	if _, n, _ := changesToAPI(deleted.Changes); n.Deleted != 251 || n.Created != 0 || deleted.Before != begun.ID || deleted.After == 0 {
		t.Fatalf("%+v", deleted)
	}
	trashed := f.run("trashes", func() {
		_, err := f.t.Write(f.c, f.must("data.db").Ino, 100, []byte("BAD"))
		f.ok(err)
	})
	if _, n, _ := changesToAPI(trashed.Changes); n.Changed != 1 || n.Bytes != 40_000 || trashed.Changes[0].Path != "/data.db" || trashed.Before != deleted.After {
		t.Fatalf("%+v", trashed)
	}
	f.run("moves", func() {
		f.mkdir("old")
		f.ok(f.rename("README", "old/README", 0))
		f.ok(f.rename("data.db", "old/data.db", 0))
	})
	if nothing := f.run("looks", func() {}); len(nothing.Changes) != 0 || nothing.After != 0 {
		t.Fatalf("%+v", nothing)
	}

	before := f.dump()
	dry, conflicts := f.undo("deletes", RestoreOptions{DryRun: true})
	if f.dump() != before || len(conflicts) > 0 || len(dry.Changes) != 251 {
		t.Fatal("the dry run:", len(dry.Changes), conflicts)
	}
	report, conflicts := f.undo("deletes", RestoreOptions{})
	if d := cmp.Diff(dry.Changes, report.Changes); d != "" || len(conflicts) > 0 {
		t.Fatal(d, conflicts)
	}
	f.wantLines(f.changes("begun", Live), "renamed /README -> /old/README", "renamed /data.db -> /old/data.db", "created /old")
	f.check()
	if _, conflicts := f.undo("trashes", RestoreOptions{}); !cmp.Equal(conflicts, []string{"/data.db: it was changed since"}) {
		t.Fatal(conflicts)
	}
	if _, conflicts := f.undo("moves", RestoreOptions{}); len(conflicts) > 0 {
		t.Fatal(conflicts)
	}
	f.wantLines(f.changes("begun", Live), "changed /data.db")
	f.kill()
	f.restore("begun")
	if d := cmp.Diff(strings.Split(morning, "\n"), strings.Split(f.dump(), "\n")); d != "" {
		t.Fatal(d)
	}
}

func TestUndoConflicts(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("a", "a")
	f.put("b", "b")
	f.put("gone", "gone")
	f.run("r", func() {
		f.mkdir("made")
		f.put("made/mine", "mine")
		f.put("a", "by r")
		f.put("b", "by r")
		f.ok(f.unlink("gone"))
		f.put("new", "new")
	})
	f.put("made/other", "other") // came later: the directory must stay
	f.put("b", "by somebody else")
	f.put("gone", "another") // its name is taken
	_, conflicts := f.undo("r", RestoreOptions{})
	f.wantLines(conflicts, "/b: it was changed since", "/gone: something else has its name", "/made: it holds what stays")
	if got := f.get("a") + f.get("b") + f.get("gone") + f.get("made/other"); got != "aby somebody elseanotherother" {
		t.Fatal(got)
	}
	if got := f.list("made"); !cmp.Equal(got, []string{"other"}) {
		t.Fatal(got)
	}
	if _, err := f.stat("new"); err == nil {
		t.Fatal("what the run made is still there")
	}
	for _, c := range f.w.Checkpoints() {
		_, err := f.w.DeleteCheckpoint(context.Background(), c.Name, false)
		f.ok(err)
	}
	f.put("later", "which a checkpoint would have")
	for run, code := range map[string]holt.Code{"r": holt.Conflict, "none": holt.NotFound, "": holt.InvalidArgument} {
		for _, dry := range []bool{false, true} {
			if _, err := f.w.Undo(context.Background(), f.c, run, RestoreOptions{DryRun: dry}); holt.CodeOf(err) != code {
				t.Fatalf("%q: %v", run, err)
			}
		}
	}
	if left := f.w.Checkpoints(); len(left) > 0 {
		t.Errorf("an undo that was refused left %v", left)
	}
}

// TestUndoTwice: of what is undone nothing is left, neither to do nor to quarrel
// about, until somebody changes it again.
func TestUndoTwice(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("dir")
	for _, name := range []string{"changed", "mode", "moved", "removed", "dir/below"} {
		f.put(name, name)
	}
	f.run("r", func() {
		f.put("changed", "by the run")
		f.put("made", "by the run")
		f.ok(f.rename("moved", "away", 0))
		f.ok(f.unlink("removed"))
		f.ok(f.unlink("dir/below"))
		f.ok(f.rmdir("dir"))
		_, err := f.t.SetAttr(f.c, f.must("mode").Ino, SetAttrs{Mask: SetMode, Mode: 0o600})
		f.ok(err)
	})
	for i, want := range []int{7, 0, 0} {
		report, conflicts := f.undo("r", RestoreOptions{DryRun: i == 1})
		if len(conflicts) > 0 || len(report.Changes) != want {
			t.Fatalf("%d: %v, %v", i, report.Changes, conflicts)
		}
	}
	f.put("changed", "later")
	f.put("made", "later")
	if report, conflicts := f.undo("r", RestoreOptions{}); len(conflicts) != 2 || len(report.Changes) > 0 {
		t.Fatal(report.Changes, conflicts)
	}
	f.check()
}

// TestUndoDirectoryAttributes takes back what a run did to the extended
// attributes of directories, and to nothing else of them.
func TestUndoDirectoryAttributes(t *testing.T) {
	f := newFixture(t, Options{})
	set := func(path, name string) { f.ok(f.t.SetXattr(f.c, f.must(path).Ino, name, []byte("v"), 0)) }
	f.mkdir("d")
	f.mkdir("shared")
	set("d", "user.kept")
	f.run("r", func() {
		set("d", "user.new")
		f.ok(f.t.RemoveXattr(f.c, f.must("d").Ino, "user.kept"))
		set("shared", "user.new")
	})
	f.put("d/later", "its times tell nothing")
	set("shared", "user.later")
	names := func(path string) []string {
		all, err := f.t.ListXattr(f.must(path).Ino)
		f.ok(err)
		return all
	}
	report, conflicts := f.undo("r", RestoreOptions{})
	f.wantLines(conflicts, "/shared: its attributes were changed since")
	f.wantLines(names("d"), "user.kept")
	f.wantLines(names("shared"), "user.later", "user.new")
	if len(report.Changes) != 1 || report.Changes[0].Path != "/d" {
		t.Fatalf("%+v", report.Changes)
	}
	f.ok(f.t.RemoveXattr(f.c, f.must("shared").Ino, "user.later"))
	if report, conflicts = f.undo("r", RestoreOptions{}); len(conflicts) > 0 || len(report.Changes) != 1 || len(names("shared")) > 0 {
		t.Fatal(conflicts, report.Changes, names("shared"))
	}
	if report, conflicts = f.undo("r", RestoreOptions{}); len(conflicts)+len(report.Changes) > 0 {
		t.Fatal("undone a third time:", conflicts, report.Changes)
	}
	f.check()
}

// TestUndoBeside has two runs write at the same time.
func TestUndoBeside(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("both", "0")
	f.checkpoint("c")
	a, b := f.c, f.c
	a.Writer, b.Writer = Writer{Kind: "run", Name: "agent", Run: "a"}, Writer{Kind: "run", Name: "agent", Run: "b"}
	ino := f.must("both").Ino
	for i, c := range []Caller{a, b, a, b} {
		f.c = c
		f.put(fmt.Sprint("by ", c.Writer.Run, i), "x")
		_, err := f.t.Write(c, ino, int64(i), []byte("x"))
		f.ok(err)
	}
	f.c = Caller{}
	_, conflicts := f.undo("a", RestoreOptions{})
	f.wantLines(conflicts, "/both: it was changed since")
	if got := f.list(""); !cmp.Equal(got, []string{"both", "by b1", "by b3"}) {
		t.Fatal(got)
	}
}

func TestHistory(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("f", "1")
	c := f.checkpoint("c")
	f.run("r", func() { f.put("f", "22") })
	f.run("s", func() { f.ok(f.unlink("f")) })
	events, err := f.w.History(context.Background(), "/f")
	f.ok(err)
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprint(e.By.Run, " ", e.Size, " ", e.Gone, " ", e.Checkpoint))
	}
	f.wantLines(got, "s 0 true 0", "r 2 false 2", " 1 false 1")
	f.restore("#2")
	if w, err := f.w.Blame(context.Background(), "/f"); err != nil || w.Run != "r" {
		t.Fatal(w, err)
	}
	if events, err = f.w.History(context.Background(), "/f"); err != nil || len(events) != 4 || events[0].By.Run != "" || events[0].Author.Run != "r" || !events[1].Gone || events[1].By.Run != "s" || events[2].Gone {
		t.Fatal(events, err)
	}
	if all := f.w.Checkpoints(); events[0].At.Before(all[len(all)-1].CreatedAt) || !events[2].At.Before(events[0].At) {
		t.Errorf("what was restored is told of as of %v", events[0].At)
	}
	freed, err := f.w.DeleteCheckpoint(context.Background(), c.Name, true)
	f.ok(err)
	again, err := f.w.DeleteCheckpoint(context.Background(), c.Name, false)
	if err != nil || freed != again || freed.Bytes != 1 || freed.Rows == 0 {
		t.Fatal(freed, again, err)
	}
	if _, err := f.w.At("c"); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
	f.check()
	for _, path := range []string{"/none", "/none/below"} {
		if _, err := f.w.History(context.Background(), path); holt.CodeOf(err) != holt.NotFound {
			t.Fatal(err)
		}
	}
}

// TestFreedBytes: what a checkpoint alone holds counts once, also where files share it, and
// of what was partly written over, the part.
func TestFreedBytes(t *testing.T) {
	f := newFixture(t, Options{})
	share := func(from Attr, to string) {
		t.Helper()
		n, err := f.t.CopyRange(f.c, from.Ino, 0, f.put(to, "").Ino, 0, from.Size)
		if err != nil || n != from.Size {
			t.Fatal(n, err)
		}
	}
	earlier := f.put("earlier", strings.Repeat("e", 1<<20))
	f.checkpoint("earlier")
	share(earlier, "copy of earlier")
	share(f.put("one", strings.Repeat("1", 1000)), "two")
	part := f.put("part", strings.Repeat("p", 10_000))
	f.checkpoint("then")
	for _, name := range []string{"earlier", "copy of earlier", "one", "two"} {
		f.ok(f.unlink(name))
	}
	_, err := f.t.Write(f.c, part.Ino, 3000, make([]byte, 500))
	f.ok(err)
	for _, dry := range []bool{true, false} {
		if freed, err := f.w.DeleteCheckpoint(t.Context(), "then", dry); err != nil || freed.Bytes != 1000+500 {
			t.Fatalf("%+v: %v", freed, err)
		}
	}
	if freed, err := f.w.DeleteCheckpoint(t.Context(), "earlier", true); err != nil || freed.Bytes != 1<<20 {
		t.Fatalf("%+v: %v", freed, err)
	}
	f.check()
}

// TestLongReceipt: what a receipt does not list it counts, and deletions come first.
func TestLongReceipt(t *testing.T) {
	f := newFixture(t, Options{})
	long := string(holt.NewRunID())
	f.put("gone", "1")
	f.run(long, func() {
		for i := range mostChanges + 6 {
			f.put(fmt.Sprint("f", i), "12")
		}
		f.ok(f.unlink("gone"))
	})
	r, err := History{W: f.w}.Receipt(f.Context(), long)
	f.ok(err)
	if len(r.Changes) != mostChanges || r.Omitted != 7 || r.Changes[0].Path != "/gone" || r.Counts.Created != mostChanges+6 || r.Counts.Deleted != 1 {
		t.Errorf("%d listed, %d not, first %+v, %+v", len(r.Changes), r.Omitted, r.Changes[0], r.Counts)
	}
	undone, err := History{W: f.w}.Undo(f.Context(), holt.UndoSpec{Run: long})
	f.ok(err)
	if len(undone.Changes) != mostChanges || undone.Omitted != 7 || undone.Counts.Deleted != mostChanges+6 {
		t.Errorf("%d listed, %d not, %+v", len(undone.Changes), undone.Omitted, undone.Counts)
	}
}

// TestUndoUnderMount takes back a removal that a mounted kernel has since
// forgotten the file of.
func TestUndoUnderMount(t *testing.T) {
	f := newFixture(t, Options{})
	e, _, err := f.w.BeginEpoch([16]byte{1}, HostMount)
	f.ok(err)
	f.c.Epoch = e
	f.put("file", "content")
	f.checkpoint("begun")
	a, err := f.t.Lookup(f.c, Root, "file")
	f.ok(err)
	f.run("removes", func() { f.ok(f.unlink("file")) })
	f.t.Forget(Caller{Epoch: e}, a.Ino, 1<<20)
	f.ok(f.w.Flush())
	if report, conflicts := f.undo("removes", RestoreOptions{}); len(conflicts) > 0 || len(report.Changes) != 1 {
		t.Fatal(report, conflicts)
	}
	if back := f.must("file"); back.Ino != a.Ino || back.Mtime != a.Mtime || back.Size != a.Size {
		t.Fatalf("%+v came back as %+v", a, back)
	}
}
