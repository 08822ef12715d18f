package workspace

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// TestSurplus: the newest stay, and the newest of each day before.
func TestSurplus(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	at := func(days, hour int) time.Time { return time.Date(2026, 3, 10-days, hour, 0, 0, 0, time.UTC) }
	var all []Checkpoint
	for i, c := range []struct {
		at     time.Time
		auto   bool
		mounts bool
	}{
		{at(40, 1), true, false},  // 1: too old
		{at(40, 2), false, false}, // 2: has a name
		{at(3, 23), true, false},  // 3: of a day that is not kept
		{at(2, 1), true, false},   // 4: not the newest of its day
		{at(2, 23), true, false},  // 5
		{at(1, 1), true, false},   // 6: a newer one of its day is among the last
		{at(1, 5), true, false},   // 7
		{at(1, 6), true, true},    // 8: holds mounts
		{at(0, 1), true, false},   // 9
		{at(0, 2), true, false},   // 10
	} {
		all = append(all, Checkpoint{ID: CheckpointID(i + 1), CreatedAt: c.at, CheckpointNote: CheckpointNote{Auto: c.auto}, Mounts: c.mounts})
	}
	for _, c := range []struct {
		keep Retention
		want []CheckpointID
	}{
		{Retention{Last: 3, Days: 3}, []CheckpointID{1, 3, 4, 6}},
		{Retention{Last: 3}, []CheckpointID{1, 3, 4, 5, 6}},
		{Retention{Last: 100}, nil},
		{Retention{Days: 100}, []CheckpointID{4, 6, 9}},
		{Retention{}, []CheckpointID{1, 3, 4, 5, 6, 7, 9, 10}},
	} {
		if d := cmp.Diff(c.want, c.keep.surplus(append([]Checkpoint{}, all...), nil, now)); d != "" {
			t.Errorf("%+v: %s", c.keep, d)
		}
	}
}

// TestSurplusOfStretches: however many checkpoints stretches have, they push out none of
// runs, and of theirs none that a run begins or ends with.
func TestSurplusOfStretches(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	var all []Checkpoint
	for i := range 20 {
		c := Checkpoint{ID: CheckpointID(i + 1), Generation: uint64(i + 1), CreatedAt: now, CheckpointNote: CheckpointNote{Auto: true}}
		switch {
		case i%2 == 1:
			c.Run = string(holt.NewStretchID(holt.NewTerminalID()))
		case i < 8: // 1, 3, 5, 7
			c.Run = string(holt.NewRunID())
		default:
			c.Auto = false
		}
		all = append(all, c)
	}
	got := Retention{Last: 3}.surplus(all, map[uint64]bool{4: true}, now)
	if d := cmp.Diff([]CheckpointID{1, 2, 3, 6, 8, 10, 12, 14}, got); d != "" {
		t.Error(d)
	}
}

// TestThinBesideRuns: a run whose window begins or ends with the checkpoint of a stretch
// can be undone as long as any other of its age, whatever terminals do after it.
func TestThinBesideRuns(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("file", "0")
	write := func(text string) {
		_, err := f.t.Write(f.c, f.must("file").Ino, 0, []byte(text))
		f.ok(err)
	}
	work := func(text string) { f.stretch(holt.NewTerminalID(), func() { write(text) }) }
	work("1")
	f.run("during", func() { write("2"); work("3") }) // begins and ends with those of stretches
	for i := range 10 {
		work(fmt.Sprint("work", i))
	}
	_, err := f.w.Prune(t.Context(), Retention{Last: 3})
	f.ok(err)
	if r, err := f.w.Receipt(t.Context(), "during"); err != nil || len(r.Changes) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	n := 0
	for _, c := range f.w.Checkpoints() {
		if c.ofSession() {
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d of stretches are kept; want the last 3, and 2 beside the run", n)
	}
}

// TestThin: what is dropped is gone, what is kept sees what it saw.
func TestThin(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("file", "0")
	for i := range 6 {
		f.run(fmt.Sprint("run", i), func() {
			_, err := f.t.Write(f.c, f.must("file").Ino, 0, fmt.Append(nil, i))
			f.ok(err)
		})
	}
	f.checkpoint("mine")
	before := len(f.w.Checkpoints())
	n, err := f.w.Prune(context.Background(), Retention{Last: 2})
	f.ok(err)
	all := f.w.Checkpoints()
	if n != before-3 || len(all) != 3 || all[2].Name != "mine" {
		t.Fatalf("%d of %d removed: %+v", n, before, all)
	}
	for i, want := range []string{"4", "5", "5"} {
		v, err := f.w.At(all[i].Name)
		f.ok(err)
		a, err := v.Lookup(Root, "file")
		f.ok(err)
		b := make([]byte, 1)
		_, err = v.Read(a.Ino, 0, b)
		f.ok(err)
		if string(b) != want {
			t.Errorf("%s has %q, want %q", all[i].Name, b, want)
		}
	}
}

// TestSeekAtCheckpoint: holes are where they were.
func TestSeekAtCheckpoint(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("sparse", "head")
	ino := f.must("sparse").Ino
	const far = 3 * windowSize
	_, err := f.t.Write(f.c, ino, far, []byte("tail"))
	f.ok(err)
	_, err = f.t.SetAttr(f.c, ino, SetAttrs{Mask: SetSize, Size: far + 100})
	f.ok(err)
	c := f.checkpoint("then")
	_, err = f.t.Write(f.c, ino, 0, make([]byte, windowSize+10))
	f.ok(err)
	v, err := f.t.View(c.ID)
	f.ok(err)
	for _, s := range []struct {
		off    int64
		whence uint32
		want   int64
	}{
		{0, SeekData, 0}, {2, SeekData, 2}, {4, SeekData, far}, {far + 1, SeekData, far + 1}, {far + 4, SeekData, -1},
		{0, SeekHole, 4}, {4, SeekHole, 4}, {windowSize, SeekHole, windowSize}, {far, SeekHole, far + 4}, {far + 99, SeekHole, far + 99}, {far + 100, SeekHole, -1},
	} {
		got, err := v.Lseek(ino, s.off, s.whence)
		if err != nil {
			got = -1
		}
		if got != s.want {
			t.Errorf("from %d, whence %d: %d, want %d (%v)", s.off, s.whence, got, s.want, err)
		}
	}
	_, err = v.Lseek(Root, 0, SeekData)
	if err == nil {
		t.Error("a directory was sought in")
	}
}
