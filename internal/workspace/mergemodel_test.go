package workspace

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scribe does random things below a directory.
type scribe struct {
	*fixture
	rng *rand.Rand
	top string
}

// paths lists what is below the top.
func (s scribe) paths(dirs bool) (all []string) {
	s.Helper()
	kind := "kind <> 'dir'"
	if dirs {
		kind = "kind = 'dir'"
	}
	top := strings.TrimSuffix("/"+s.top, "/")
	for _, p := range s.sql("SELECT path FROM files WHERE " + kind + " AND path LIKE '" + top + "/%' ORDER BY path") {
		all = append(all, p[1:])
	}
	if dirs {
		all = append(all, s.top)
	}
	return all
}

func (s scribe) pick(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[s.rng.IntN(len(list))]
}

// place is a new or known name in some directory.
func (s scribe) place() string {
	return strings.TrimPrefix(s.pick(s.paths(true))+"/"+string(rune('a'+s.rng.IntN(6))), "/")
}

// step does one thing; what cannot be done now is not.
func (s scribe) step() {
	s.Helper()
	text := func() string {
		var b strings.Builder
		for range s.rng.IntN(8) {
			fmt.Fprintln(&b, s.rng.IntN(1000))
		}
		return b.String()
	}
	file := s.pick(s.paths(false))
	switch n := s.rng.IntN(14); {
	case n < 3:
		if at := s.place(); !s.isDir(at) {
			s.put(at, text())
		}
	case n < 5 && file != "" && s.must(file).IsRegular():
		s.put(file, text())
	case n == 5 && file != "" && s.must(file).IsRegular(): // as editors do
		temp := strings.TrimPrefix(s.top+"/.tmp", "/")
		s.put(temp, text())
		s.ok(s.rename(temp, file, 0))
	case n == 6 && file != "":
		s.ok(s.unlink(file))
	case n == 7:
		dir, name := s.walk(s.place())
		_, _ = s.t.Mkdir(s.c, dir, name, 0o755)
	case n == 8:
		if dir := s.pick(s.paths(true)); dir != s.top {
			_ = s.rmdir(dir) // as long as it is empty
		}
	case n < 11:
		from := s.pick(append(s.paths(false), s.paths(true)...))
		if from != s.top {
			_ = s.rename(from, s.place(), 0)
		}
	case n == 11 && file != "":
		dir, name := s.walk(s.place())
		_, _ = s.t.Link(s.c, s.must(file).Ino, dir, name)
	case n == 12 && file != "":
		_, err := s.t.SetAttr(s.c, s.must(file).Ino, SetAttrs{Mask: SetMode, Mode: s.rng.Uint32N(0o1000)})
		s.ok(err)
	case n == 13 && file != "":
		s.ok(s.t.SetXattr(s.c, s.must(file).Ino, "user.x", []byte(text()), 0))
	}
}

func (s scribe) isDir(path string) bool {
	a, err := s.stat(path)
	return err == nil && a.IsDir()
}

// view says what a tree below a directory holds, but for numbers and times that
// a merge gives itself.
func (f *fixture) view(top string) (all []string) {
	f.Helper()
	first := map[Ino]string{}
	for _, path := range f.sql("SELECT path FROM files WHERE path LIKE '/" + top + "%' ORDER BY path") {
		a := f.must(path[1:])
		line := fmt.Sprintf("%s %o", path, a.Mode)
		if !a.IsDir() {
			line += fmt.Sprintf(" %d names, %q", a.Nlink, f.read(a.Ino))
			if x, err := f.t.GetXattr(a.Ino, "user.x"); err == nil {
				line += fmt.Sprintf(" x=%q", x)
			}
			if first[a.Ino] == "" {
				first[a.Ino] = path
			}
			line += " as " + first[a.Ino]
		}
		all = append(all, line)
	}
	return all
}

// TestMergeModel lets two workspaces of a family do random things and merges
// them in either direction, time and again. Those that keep to places of their
// own end up with both; those that do not lose nothing. In a soak for a minute (see runsOf);
// -seed repeats a round.
func TestMergeModel(t *testing.T) {
	t.Parallel()
	// Two of the other's that were known as one here; a directory of which both sides only
	// know where it is now; and what the other kept of its own when it merged from here.
	for _, seed := range []uint64{108649581, 108649613, 784614231, 167658532, 320410874} {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { mergeRound(t, seed) })
	}
	runs, done := runsOf(t, 5*time.Second, time.Minute), 0
	for seed := runs.seed; seed == runs.seed || !runs.one && !runs.over() && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { mergeRound(t, seed) })
		done++
	}
	t.Logf("seeds from %d: %d rounds", runs.seed, done)
}

func mergeRound(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}, SegmentSize: 1 << uint(14+rng.IntN(6))}))
	for _, dir := range []string{"x", "y"} {
		f.mkdir(dir)
		for range 20 {
			scribe{f, rng, dir}.step()
		}
	}
	g := f.fork(ForkOptions{})
	settled := map[string]bool{}
	apart := rng.IntN(2) == 0
	for range 4 {
		tops := []string{"x", "y"}
		if !apart {
			tops = []string{"", ""}
		}
		for i, s := range []*fixture{f, g} {
			for range rng.IntN(15) {
				scribe{s, rng, tops[i]}.step()
			}
			if rng.IntN(3) == 0 {
				[]func(*fixture){(*fixture).kill, (*fixture).reopen, (*fixture).loseIndex}[rng.IntN(3)](s)
			}
		}
		into, from := f, g
		if rng.IntN(2) == 0 {
			into, from = g, f
		}
		m := mergeCase{into: into, from: from, before: into.view(""), other: from.view(""), kept: into.kept(from), settled: settled}
		maps.DeleteFunc(m.kept, func(text, _ string) bool { return settled[text] })
		m.run(rng)
		if apart {
			m.both(tops, into == f)
		}
		if rng.IntN(2) == 0 && apart { // and back: then they are the same
			from.merge(into, MergeOptions{})
			if d := cmp.Diff(into.view(""), from.view("")); d != "" {
				t.Fatal(d)
			}
		}
	}
}

// mergeCase is one merge and what was before.
type mergeCase struct {
	into, from    *fixture
	before, other []string
	kept          map[string]string
	settled       map[string]bool // what the one side has whose conflicts were settled for the other: that may go
}

// kept returns the bytes of files that are here and were not there ever: what
// a merge must not lose.
func (f *fixture) kept(from *fixture) map[string]string {
	f.Helper()
	theirs := map[string]bool{}
	for _, c := range append([]Checkpoint{{Name: Live}}, from.w.Checkpoints()...) {
		for _, text := range from.texts(c.Name) {
			theirs[text] = true
		}
	}
	mine := map[string]string{}
	for path, text := range f.texts(Live) {
		if !theirs[text] {
			mine[text] = path
		}
	}
	return mine
}

// texts returns what files held at a checkpoint, by path.
func (f *fixture) texts(ref string) map[string]string {
	f.Helper()
	all := map[string]string{}
	var v *View
	paths := "SELECT path FROM files WHERE kind = 'file'"
	if ref != Live {
		var err error
		v, err = f.w.At(ref)
		f.ok(err)
		paths = "SELECT path FROM files_at WHERE kind = 'file' AND checkpoint = '" + ref + "'"
	}
	for _, path := range f.sql(paths) {
		if v == nil {
			all[path] = f.get(path[1:])
			continue
		}
		a, err := v.Walk(path)
		f.ok(err)
		b := make([]byte, a.Size)
		_, err = v.Read(a.Ino, 0, b)
		f.ok(err)
		all[path] = string(b)
	}
	return all
}

// run merges, first dry, and checks what holds for every merge.
func (m *mergeCase) run(rng *rand.Rand) {
	f := m.into
	f.Helper()
	dry := f.merge(m.from, MergeOptions{DryRun: true})
	if d := cmp.Diff(m.before, f.view("")); d != "" {
		f.Fatal("after a dry run: ", d)
	}
	if rng.IntN(3) == 0 {
		m.crash(rng)
	}
	real := f.merge(m.from, MergeOptions{})
	if d := cmp.Diff(dry.said(), real.said()); d != "" {
		f.Fatal("a dry run said something else: ", d)
	}
	if d := cmp.Diff(m.other, m.from.view("")); d != "" {
		f.Fatal("the other was changed: ", d)
	}
	there := map[string]bool{}
	for _, text := range f.texts(Live) {
		there[text] = true
	}
	for text, path := range m.kept {
		if !there[text] {
			f.Fatalf("what %s held is lost: %q\n%v", path, text, real.said())
		}
	}
	f.check()
	m.from.check()
	again := f.merge(m.from, MergeOptions{})
	if len(again.Changes) > 0 || len(again.Conflicts) != len(real.Conflicts) {
		f.Fatalf("merged again: %q\nfirst: %q", again.said(), real.said())
	}
	if real.Before != 0 && rng.IntN(3) == 0 { // undone and done again it is the same
		after := f.view("")
		_, err := f.w.Restore(context.Background(), f.c, fmt.Sprint("#", real.Before), RestoreOptions{})
		f.ok(err)
		if d := cmp.Diff(m.before, f.view("")); d != "" {
			f.Fatal("after going back: ", d)
		}
		_, err = f.w.Restore(context.Background(), f.c, fmt.Sprint("#", real.After), RestoreOptions{})
		f.ok(err)
		if d := cmp.Diff(after, f.view("")); d != "" {
			f.Fatal("after going forth: ", d)
		}
	}
	if len(real.Conflicts) > 0 && rng.IntN(2) == 0 {
		m.settle(rng.IntN(2) == 0)
	}
}

// settle merges once more and settles the conflicts for one side.
func (m *mergeCase) settle(ours bool) {
	f := m.into
	f.Helper()
	opt := MergeOptions{Theirs: []string{"/"}}
	if ours {
		opt = MergeOptions{Ours: []string{"/"}}
	}
	before, dry := f.view(""), opt
	dry.DryRun = true
	said := f.merge(m.from, dry)
	r := f.merge(m.from, opt)
	if d := cmp.Diff(said.said(), r.said()); d != "" {
		f.Fatal("a dry run said something else: ", d)
	}
	if d := cmp.Diff(before, f.view("")); ours && (d != "" || len(r.Conflicts) > 0) {
		f.Fatal("ours: ", r.said(), d)
	}
	if ours {
		for _, text := range m.from.texts(Live) {
			m.settled[text] = true
		}
	}
	f.check()
	again := f.merge(m.from, MergeOptions{})
	if len(again.Changes) > 0 || len(again.Conflicts) != len(r.Conflicts) {
		f.Fatalf("merged again: %q\nfirst: %q %q", again.said(), r.said(), r.Theirs)
	}
}

// crash merges in a copy that dies at a failpoint: all of it is there then, or
// nothing.
func (m *mergeCase) crash(rng *rand.Rand) {
	f := m.into
	dir := filepath.Join(f.TempDir(), "crash")
	left, opt := 1+rng.IntN(30), f.opt
	opt.Fail = func(string) error {
		if left--; left < 0 {
			return syscall.EIO // from here on nothing reaches the disk
		}
		return nil
	}
	f.ok(f.w.Close())
	f.ok(os.CopyFS(dir, os.DirFS(f.dir)))
	f.open()
	g := &fixture{T: f.T, dir: dir, opt: opt, c: f.c}
	w, err := Open(dir, opt)
	if err != nil {
		return // it died before
	}
	g.w, g.t = w, w.Tree()
	_, failed := g.w.Merge(context.Background(), g.c, m.from.w, MergeOptions{})
	g.abandon()
	g.opt = f.opt
	g.open()
	g.check()
	got := g.view("")
	g.merge(m.from, MergeOptions{})
	if failed != nil && !slices.Equal(got, m.before) && !slices.Equal(got, g.view("")) {
		f.Fatal("half a merge: ", cmp.Diff(m.before, got))
	}
	f.ok(g.w.Close())
}

// both checks that each side's place is as that side had it.
func (m *mergeCase) both(tops []string, intoFirst bool) {
	f := m.into
	f.Helper()
	mine, theirs := tops[0], tops[1]
	if !intoFirst {
		mine, theirs = tops[1], tops[0]
	}
	below := func(all []string, top string) (some []string) {
		for _, l := range all {
			if strings.HasPrefix(l, "/"+top) {
				some = append(some, l)
			}
		}
		return some
	}
	if d := cmp.Diff(below(m.before, mine), f.view(mine)); d != "" {
		f.Fatal("what was done here: ", d)
	}
	if d := cmp.Diff(below(m.other, theirs), f.view(theirs)); d != "" {
		f.Fatal("what was done there: ", d)
	}
}
