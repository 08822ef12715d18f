package computer

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
)

// stretchy is an engine whose machines grow.
type stretchy struct{ remembering }

func (*stretchy) Capabilities() machine.Capabilities {
	return machine.Capabilities{MemorySnapshot: true, Growing: true, RootDisk: true}
}

// rigid is an engine whose running machines do not grow.
type rigid struct{ remembering }

func (*rigid) Capabilities() machine.Capabilities {
	return machine.Capabilities{MemorySnapshot: true, RootDisk: true}
}

// growing is a machine that grows by whole blocks, up to a most.
type growing struct {
	*photographed
	has, most machine.Shape
	fails     error // once the disk has grown
}

func (m *growing) Shape(context.Context) (machine.Shape, error) { return m.has, nil }

func (m *growing) Grow(_ context.Context, to machine.Shape) error {
	m.has.DiskMB = max(m.has.DiskMB, to.DiskMB)
	if m.fails != nil {
		return m.fails
	}
	m.has.CPUs = max(m.has.CPUs, min(to.CPUs, m.most.CPUs))
	if more := min(to.MemoryMB, m.most.MemoryMB) - m.has.MemoryMB; more > 0 {
		m.has.MemoryMB += more / machine.GrowMB * machine.GrowMB
	}
	return nil
}

// terminalSessions has the computer run on a machine that grows, whose guest does not answer.
func (w *keptWorld) terminalSessions() *growing {
	w.t.Helper()
	m := &growing{has: machine.Shape{CPUs: 1, MemoryMB: 1024, DiskMB: 4096}, most: machine.Shape{CPUs: 4, MemoryMB: 4096}}
	w.r.CPUs, w.r.MemoryMB, w.r.DiskSizeMB = m.has.CPUs, m.has.MemoryMB, m.has.DiskMB
	w.ok(w.table.save(w.t.Context(), *w.r))
	m.photographed = w.runsOn(&lasting{})
	w.cfg.Engines.Default = &stretchy{remembering{layered{base: "none"}}}
	w.machines.live(w.r.ID).m = m
	return m
}

// What a computer that runs is asked to have it has as far as its machine can grow, and the rest is pending; a smaller
// disk and what can never be is refused. What fails leaves its shape for the next start, but for what the machine has got.
func TestResizes(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	m := w.terminalSessions()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	none := holt.Pending{}
	for _, step := range []struct {
		what          string
		spec          holt.ResizeSpec
		code          holt.Code
		cpus, mb, dsk int
		pending       holt.Pending
		fails         error
	}{
		{"more", holt.ResizeSpec{CPUs: 2, MemoryMB: 1024 + 256, DiskSizeMB: 5000}, "", 2, 1280, 5000, none, nil},
		{"the same", holt.ResizeSpec{CPUs: 2, MemoryMB: 1024 + 256, DiskSizeMB: 5000}, "", 2, 1280, 5000, none, nil},
		{"less than a block", holt.ResizeSpec{MemoryMB: 1280 + 200}, "", 2, 1408, 5000, holt.Pending{MemoryMB: 1480, When: "start"}, nil},
		{"nothing", holt.ResizeSpec{}, holt.InvalidArgument, 2, 1408, 5000, holt.Pending{MemoryMB: 1480, When: "start"}, nil},
		{"a smaller disk", holt.ResizeSpec{CPUs: 3, DiskSizeMB: 4999}, holt.InvalidArgument, 2, 1408, 5000, holt.Pending{MemoryMB: 1480, When: "start"}, nil},
		{"too many processors", holt.ResizeSpec{CPUs: mostCPUs + 1}, holt.InvalidArgument, 2, 1408, 5000, holt.Pending{MemoryMB: 1480, When: "start"}, nil},
		{"less", holt.ResizeSpec{CPUs: 1, MemoryMB: 512}, "", 2, 1408, 5000, holt.Pending{CPUs: 1, MemoryMB: 512, When: "start"}, nil},
		{"one of them after all", holt.ResizeSpec{CPUs: 2}, "", 2, 1408, 5000, holt.Pending{MemoryMB: 512, When: "start"}, nil},
		{"what fails half-way", holt.ResizeSpec{CPUs: 3, DiskSizeMB: 6000}, holt.OutOfSpace, 2, 1408, 6000, holt.Pending{MemoryMB: 512, When: "start"}, holt.Errorf(holt.OutOfSpace, "no room")},
	} {
		m.fails = step.fails
		got, err := w.Memory().Resize(ctx, "einstein", step.spec, "")
		if holt.CodeOf(err) != step.code {
			t.Errorf("%s: %+v: %v", step.what, got, err)
		}
		if err == nil && !strings.Contains(got.Note, "guest") { // which does not answer
			t.Errorf("%s: its note is %q", step.what, got.Note)
		}
		c, err := w.Get(ctx, "einstein")
		pending := none
		if c.Pending != nil {
			pending = *c.Pending
		}
		if err != nil || c.CPUs != step.cpus || c.MemoryMB != step.mb || c.DiskSizeMB != step.dsk || pending != step.pending {
			t.Errorf("%s: %d processors, %d MiB, %d MiB of disk, pending %+v: %v", step.what, c.CPUs, c.MemoryMB, c.DiskSizeMB, pending, err)
		}
		if has := (machine.Shape{CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskMB: c.DiskSizeMB}); has != m.has {
			t.Errorf("%s: the record has %+v, the machine %+v", step.what, has, m.has)
		}
	}
}

// A running machine that cannot grow keeps its shape until its next start, and so does its root disk.
func TestResizesWhatCannotGrow(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	w.terminalSessions()
	w.cfg.Engines.Default = &rigid{remembering{layered{base: "none"}}}
	got, err := w.Memory().Resize(t.Context(), "einstein", holt.ResizeSpec{CPUs: 2, DiskSizeMB: 5000}, "")
	if c := got.Computer; err != nil || c.CPUs != 1 || c.DiskSizeMB != 5000 || got.Note != "cpus 2 at the next start; the root disk grows at the next start" {
		t.Errorf("%+v %v", got, err)
	}
}

// A paused computer is asked for more, which it has once it goes on; a stopped one has the shape that it was asked to have.
func TestResizesWithoutMachine(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	m := w.terminalSessions()
	ctx := t.Context()
	w.r.State = holt.ComputerPaused
	w.ok(w.table.save(ctx, *w.r))
	got, err := w.Memory().Resize(ctx, "einstein", holt.ResizeSpec{CPUs: 2, DiskSizeMB: 5000}, "")
	if c := got.Computer; err != nil || c.CPUs != 1 || c.Pending == nil || *c.Pending != (holt.Pending{CPUs: 2, When: "resume"}) || c.DiskSizeMB != 5000 || got.Note == "" || m.has.CPUs != 1 {
		t.Errorf("paused: %+v %v", got, err)
	}
	r, err := w.table.find(ctx, "einstein")
	w.ok(err)
	r.State = holt.ComputerRunning
	w.resizer.settleShape(ctx, &r, w.machines.live(r.ID))
	if r.CPUs != 2 || r.pending() != nil || m.has.CPUs != 2 || m.has.DiskMB != 5000 || !r.growing {
		t.Errorf("once it goes on: %+v, the machine %+v", r, m.has)
	}
	if _, err := w.Memory().Resize(ctx, "einstein", holt.ResizeSpec{MemoryMB: 512}, ""); err != nil {
		t.Fatal(err)
	}
	r, err = w.table.find(ctx, "einstein")
	w.ok(err)
	w.ok((&transition{s: w.Store, r: &r}).stopped(ctx, ""))
	if r.CPUs != 2 || r.MemoryMB != 512 || r.wish != (wish{}) {
		t.Errorf("stopped: %+v", r)
	}
	got, err = w.Memory().Resize(ctx, "einstein", holt.ResizeSpec{CPUs: 1, MemoryMB: 768, DiskSizeMB: 6000}, "")
	if c := got.Computer; err != nil || c.CPUs != 1 || c.MemoryMB != 768 || c.DiskSizeMB != 6000 || c.Pending != nil || got.Note == "" {
		t.Errorf("stopped: %+v %v", got, err)
	}
}

// All parts of a snapshot's memory are stored, taken off this disk and fetched, the first one last: where
// that is, all of it is.
func TestMemoryPartsInArchive(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx := t.Context()
	m := w.take(holt.SnapshotManual)
	dir := w.snapshots.path(m.ID)
	more := bytes.Repeat([]byte("more"), 100_000)
	w.ok(os.WriteFile(filepath.Join(dir, machine.MemoryPart(1)), more, 0o600))
	w.ok(w.archiver.store(ctx, m))
	a, err := w.archiver.archive.About(ctx, string(m.ID))
	w.ok(err)
	at := func(name string) int {
		return slices.IndexFunc(a.Files, func(f archive.File) bool { return f.Name == name })
	}
	if first, second := at(machine.MemoryFile), at(machine.MemoryPart(1)); first < 0 || second < 0 || second > first {
		t.Errorf("the files of a snapshot in the archive: %+v", a.Files)
	}
	m, err = w.snapshots.get(ctx, m.ID)
	w.ok(err)
	whole := m.Bytes
	freed, err := w.archiver.evictOne(ctx, m)
	w.ok(err)
	if here := w.snapshots.allocated(m.ID); freed < int64(len(more)) || here != whole-freed {
		t.Errorf("%d bytes of %d were freed, and %d are here", freed, whole, here)
	}
	done, err := w.archiver.use(ctx, m)
	w.ok(err)
	done()
	if b, err := os.ReadFile(filepath.Join(dir, machine.MemoryPart(1))); err != nil || !bytes.Equal(b, more) {
		t.Errorf("fetched: %d bytes, %v", len(b), err)
	}
}
