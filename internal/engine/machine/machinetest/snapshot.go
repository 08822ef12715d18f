package machinetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// soak reports whether the full counts are wanted.
func soak() bool { return os.Getenv("HOLT_SOAK") != "" }

// testNoSnapshot: an engine without memory images returns an error and changes nothing.
func testNoSnapshot(t *testing.T, l *lab) {
	m := l.shared(t)
	image := filepath.Join(l.root, "image")
	if _, err := m.Snapshot(t.Context(), machine.SnapshotSpec{Dir: image}); holt.CodeOf(err) != holt.Unsupported {
		t.Errorf("snapshot: %v", err)
	}
	spec := l.diskless()
	spec.Restore = image
	if _, err := l.engine.Start(t.Context(), spec); holt.CodeOf(err) != holt.Unsupported {
		t.Errorf("restore: %v", err)
	}
	for _, path := range []string{image, spec.Dir} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
	l.alive(t, m)
}

// testSnapshot takes snapshots of one machine under different loads.
func testSnapshot(t *testing.T, l *lab) {
	w := newWorld(t, l)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"Fork", testFork},
		{"Grow", testGrow},
		{"GrowDisk", testGrowDisk},
		{"Busy", testBusy},
		{"Held", testHeld},
		{"Refused", testRefused},
		{"Cancelled", testCancelled},
		{"Flatten", testFlatten},
		{"Generations", testGenerations},
	} {
		if test.name == "Grow" && !w.engine.Capabilities().Growing {
			continue // see testNoGrowth
		}
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
	w.unchanged(t)
}

// testFork: memory and disk content continues in the original and in each fork, independently.
func testFork(t *testing.T, w *world) {
	n := 2
	if soak() {
		n = 4
	}
	w.ask(t, w.m, "fill 8 42")
	sum := w.ask(t, w.m, "sum")
	was := w.counts(t, w.m, 0)
	at := w.snapshot(t, w.m, nil)
	w.says(t, w.m, "keep original", "begun,original,")
	w.says(t, w.m, "write 1 original", "original")
	w.counts(t, w.m, was)
	forks := w.forks(t, at, n)
	for i, f := range forks {
		own := fmt.Sprint("fork", i)
		w.says(t, f, "recall", "begun,")
		w.says(t, f, "sum", sum)
		w.says(t, f, "read 1", "begun")
		w.counts(t, f, was)
		w.says(t, f, "keep "+own, "begun,"+own+",")
		w.says(t, f, "write 1 "+own, own)
	}
	for i, f := range forks {
		w.says(t, f, "read 1", fmt.Sprint("fork", i))
		if err := f.Kill(); err != nil {
			t.Error(err)
		}
	}
	w.says(t, w.m, "read 1", "original")
	w.says(t, w.m, "sum", sum)
	w.alive(t, w.m)
}

// testBusy: while a guest writes memory and disk as fast as it can, a snapshot
// finishes, and memory and disk in the image are from one instant.
func testBusy(t *testing.T, w *world) {
	w.ask(t, w.m, "dirty 0 32")
	w.ask(t, w.m, "churn")
	at := w.snapshot(t, w.m, func(s *machine.SnapshotSpec) { s.MaxRounds = 8 })
	w.says(t, w.m, "verify", "")
	fork := w.forks(t, at, 1)[0]
	for range 3 {
		w.says(t, fork, "verify", "")
	}
	// Writes that were in progress continue in the fork.
	again := w.snapshot(t, fork, func(s *machine.SnapshotSpec) { s.MaxRounds = 1 })
	w.says(t, fork, "calm", "")
	if err := fork.Kill(); err != nil {
		t.Error(err)
	}
	last := w.forks(t, again, 1)[0]
	w.says(t, last, "verify", "")
	if err := last.Kill(); err != nil { // it writes as fast as it can
		t.Error(err)
	}
	w.says(t, w.m, "calm", "")
	w.says(t, w.m, "verify", "")
}

// testHeld: the Held callback can abandon a snapshot without effect.
func testHeld(t *testing.T, w *world) {
	w.says(t, w.m, "write 2 held", "held")
	was, disk := w.counts(t, w.m, 0), w.m.Disk()
	spec := machine.SnapshotSpec{Dir: w.path("image"), Disk: w.path("disk")}
	refusal := errors.New("not now")
	called := 0
	spec.Held = func(context.Context) error { called++; return refusal }
	if _, err := w.m.Snapshot(t.Context(), spec); !errors.Is(err, refusal) || called != 1 {
		t.Errorf("a snapshot that was refused: %v, asked %d times", err, called)
	}
	w.nothing(t, spec, disk)
	w.counts(t, w.m, was)
	// It fails when the guest runs again on its new disk.
	spec.Held = func(context.Context) error { return os.RemoveAll(spec.Dir) }
	w.ask(t, w.m, "churn")
	if _, err := w.m.Snapshot(t.Context(), spec); err == nil {
		t.Error("a snapshot whose directory was taken away succeeded")
	}
	w.nothing(t, spec, disk)
	w.says(t, w.m, "calm", "")
	w.says(t, w.m, "verify", "")
	w.says(t, w.m, "write 3 after", "after")
	spec.Held = func(context.Context) error {
		if _, err := w.m.Snapshot(t.Context(), machine.SnapshotSpec{Dir: spec.Dir + "2", Disk: spec.Disk + "2"}); holt.CodeOf(err) != holt.Conflict {
			t.Errorf("a second snapshot at the same time: %v", err)
		}
		if said, err := askSoon(w.m, "count"); err == nil {
			t.Errorf("the guest, which stands still, says %s", said)
		}
		return nil
	}
	at := w.snapshot(t, w.m, func(s *machine.SnapshotSpec) { s.Held = spec.Held })
	fork := w.forks(t, at, 1)[0]
	w.says(t, fork, "read 2", "held")
	w.says(t, fork, "read 3", "after")
	if err := fork.Kill(); err != nil {
		t.Error(err)
	}
}

// askSoon asks a guest that is not expected to answer.
func askSoon(m machine.Machine, request string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	conn, err := m.Dial(ctx, machine.PortControl)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	fmt.Fprintf(conn, "!%s\n", request)
	b := make([]byte, 100)
	n, err := conn.Read(b)
	return string(b[:n]), err
}

// nothing fails the test if a failed snapshot has left anything.
func (w *world) nothing(t *testing.T, spec machine.SnapshotSpec, disk string) {
	t.Helper()
	for _, path := range []string{spec.Dir, spec.Disk} {
		if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if w.m.Disk() != disk {
		t.Errorf("the machine writes to %s instead of %s", w.m.Disk(), disk)
	}
}

// testRefused: invalid requests are refused without effect.
func testRefused(t *testing.T, w *world) {
	there, was := w.path("there"), w.m.Disk()
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	absent := w.path("absent")
	for name, c := range map[string]struct {
		spec machine.SnapshotSpec
		code holt.Code
	}{
		"no directory":    {machine.SnapshotSpec{Disk: absent}, holt.InvalidArgument},
		"relative":        {machine.SnapshotSpec{Dir: "image", Disk: absent}, holt.InvalidArgument},
		"no disk":         {machine.SnapshotSpec{Dir: absent}, holt.InvalidArgument},
		"directory there": {machine.SnapshotSpec{Dir: there, Disk: absent}, holt.AlreadyExists},
		"disk there":      {machine.SnapshotSpec{Dir: absent, Disk: was}, holt.AlreadyExists},
		"nowhere":         {machine.SnapshotSpec{Dir: filepath.Join(absent, "x"), Disk: absent}, holt.Internal},
	} {
		if _, err := w.m.Snapshot(t.Context(), c.spec); holt.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, path := range []string{absent, was + ".new"} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
	if _, err := os.Lstat(there); err != nil || w.m.Disk() != was {
		t.Errorf("what was there before: %v; disk %s", err, w.m.Disk())
	}
	spec := w.diskless()
	for name, c := range map[string]struct {
		change func(*machine.Spec)
		code   holt.Code
	}{
		"no image":     {func(s *machine.Spec) { s.Restore = absent }, holt.NotFound},
		"half a one":   {func(s *machine.Spec) { s.Restore = there }, holt.NotFound},
		"relative one": {func(s *machine.Spec) { s.Restore = "image" }, holt.InvalidArgument},
	} {
		s := spec
		c.change(&s)
		if _, err := w.engine.Start(t.Context(), s); holt.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.alive(t, w.m)
}

// testCancelled: a context that ends while memory is copied ends the snapshot, not the guest.
func testCancelled(t *testing.T, w *world) {
	was, disk := w.counts(t, w.m, 0), w.m.Disk()
	for _, after := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond} {
		spec := machine.SnapshotSpec{Dir: w.path("image"), Disk: w.path("disk")}
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := w.m.Snapshot(ctx, spec)
		cancel()
		t.Logf("after %v: %v", after, err)
		if err == nil { // the snapshot was faster
			disk = spec.Disk
		} else {
			w.nothing(t, spec, disk)
		}
		was = w.counts(t, w.m, was)
	}
}

// testGenerations: a machine is paused and resumed, and forks are forked, repeatedly.
func testGenerations(t *testing.T, w *world) {
	n := 1
	if soak() {
		n = 8
	}
	w.ask(t, w.m, "dirty 20 16")
	w.ask(t, w.m, "churn")
	m, kept := w.m, w.ask(t, w.m, "recall")
	for i := range n {
		was := w.counts(t, m, 0)
		at := w.snapshot(t, m, func(s *machine.SnapshotSpec) { s.End, s.Durable = true, true })
		ends(t, m)
		w.gone(t, filepath.Dir(m.Console()))
		forks := w.forks(t, at, 2)
		w.says(t, forks[1], "verify", "")
		if err := forks[1].Kill(); err != nil {
			t.Error(err)
		}
		m = forks[0]
		w.counts(t, m, was)
		kept += fmt.Sprint("g", i, ",")
		w.says(t, m, fmt.Sprint("keep g", i), kept)
		w.says(t, m, "verify", "")
		w.alive(t, m)
	}
	if at, err := filepath.EvalSymlinks(m.Disk()); err != nil || !strings.HasPrefix(at, w.root) {
		t.Errorf("disk %s, %v", m.Disk(), err)
	}
}
