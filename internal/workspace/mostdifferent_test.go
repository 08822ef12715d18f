package workspace

import (
	"fmt"
	"strings"
	"testing"

	"holt"
)

// States that differ in more than may be are refused to all that would hold the
// difference, whatever it is made of.
func TestMostDifferent(t *testing.T) {
	const most = 20
	for name, change := range map[string]func(f *fixture, n int){
		"made": func(f *fixture, n int) {
			for i := range n {
				f.put(fmt.Sprint("new", i), "new")
			}
		},
		"changed": func(f *fixture, n int) {
			for i := range n {
				f.put(fmt.Sprint("old", i), "changed")
			}
		},
		"removed": func(f *fixture, n int) {
			for i := range n {
				f.ok(f.unlink(fmt.Sprint("old", i)))
			}
		},
		"linked": func(f *fixture, n int) {
			for i := range n {
				_, err := f.t.Link(f.c, f.must("file").Ino, f.must("d").Ino, fmt.Sprint("link", i))
				f.ok(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, quiet(Options{mostDifferent: most}))
			f.mkdir("d")
			f.put("file", "file")
			for i := range most + 2 {
				f.put(fmt.Sprint("old", i), "old")
			}
			f.checkpoint("begun")
			g := f.fork(ForkOptions{Name: "parent", Child: "child"})
			f.run("few", func() { change(f, most-3) })
			f.checkpoint("few")
			if n := len(f.changes("begun", "few")); n == 0 {
				t.Fatal("no changes")
			}
			f.restore("begun")
			ctx := t.Context()
			_, err := f.w.BeginRun("many")
			f.ok(err)
			f.c.Writer = Writer{Kind: "run", Name: "agent", Run: "many"}
			change(f, most+2)
			f.c.Writer = Writer{}
			f.checkpoint("many")
			diff := func(from, to string) error {
				return f.w.Diff(ctx, from, to, DiffOptions{}, func(Change) error { return nil })
			}
			_, receipt := f.w.Receipt(ctx, "many")
			_, undone := f.w.Undo(ctx, f.c, "many", RestoreOptions{})
			_, restored := f.w.Restore(ctx, f.c, "begun", RestoreOptions{Paths: []string{"/file"}})
			_, merged := g.w.Merge(ctx, g.c, f.w, MergeOptions{})
			for what, err := range map[string]error{"diff": diff("begun", Live), "diff back": diff("many", "begun"),
				"receipt": receipt, "undo": undone, "restore": restored, "merge": merged} {
				if holt.CodeOf(err) != holt.TooMany {
					t.Errorf("%s: %v", what, err)
				}
			}
			for _, file := range f.list("") { // of what two checkpoints differ in, the present may have nothing
				if strings.HasPrefix(file, "new") {
					f.ok(f.unlink(file))
				}
			}
			if err := diff("begun", "many"); holt.CodeOf(err) != holt.TooMany {
				t.Errorf("diff of the past: %v", err)
			}
		})
	}
}

// An inode that has changed often is one.
func TestOneThatChangedOften(t *testing.T) {
	f := newFixture(t, quiet(Options{mostDifferent: 5}))
	f.put("file", "0")
	f.checkpoint("begun")
	for i := range 20 {
		f.put("file", fmt.Sprint(i))
		f.checkpoint(fmt.Sprint("c", i))
	}
	f.wantLines(f.changes("begun", Live), "changed /file")
}
