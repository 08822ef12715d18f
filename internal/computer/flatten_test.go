package computer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
)

// stacking is an engine whose disks are text: the path of the one beneath, and what they hold.
type stacking struct {
	stuckEngine
	root   string
	asked  func()
	opened []string // what Reopen has found beneath
}

func (e *stacking) DiskBase(_ context.Context, path string) (machine.Base, error) {
	b, err := os.ReadFile(path)
	base, _, ok := strings.Cut(string(b), "\n")
	if err != nil || !ok {
		return machine.Base{}, errors.Join(err, errors.New("no disk"))
	}
	format := "qcow2"
	if base == e.root {
		format = "raw"
	}
	return machine.Base{Path: base, Format: format}, nil
}

func (e *stacking) FlattenDisk(ctx context.Context, path, under, to string) error {
	all := ""
	for {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		base, own, _ := strings.Cut(string(b), "\n")
		if all = own + all; path == under {
			e.asked()
			return os.WriteFile(to, []byte(base+"\n"+all), 0o600)
		}
		path = base
	}
}

// shows is what a disk shows.
func (e *stacking) shows(t *testing.T, path string) (all string, depth int) {
	t.Helper()
	for path != e.root {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		base, own, _ := strings.Cut(string(b), "\n")
		all, path, depth = own+all, base, depth+1
	}
	return all, depth
}

// reopening is a machine that tells which disks it was told to open anew.
type reopening struct {
	machine.Machine
	e    *stacking
	t    *testing.T
	disk string
}

func (m reopening) Reopen(context.Context) error {
	all, _ := m.e.shows(m.t, m.disk)
	m.e.opened = append(m.e.opened, all)
	return nil
}

// snapshots makes snapshots of a computer that runs, one after the other.
func snapshots(t *testing.T, n int) (w *keptWorld, e *stacking, all []snapshot) {
	t.Helper()
	w = keeps(t, &chunk.Memory{}, 1<<40)
	e = &stacking{root: "/root.raw", asked: func() {}}
	w.cfg.Engines.Default, w.flattener.stacked = e, 3
	for i := range n {
		m := w.take(holt.SnapshotManual)
		under := e.root
		if i > 0 {
			under = w.disks.path(all[i-1].disk)
		}
		w.ok(os.WriteFile(w.disks.path(m.disk), []byte(under+"\n"+string(rune('a'+i))), 0o600))
		all = append(all, m)
	}
	w.machines.put(w.r.ID, &live{m: reopening{e: e, t: t, disk: w.disks.path(w.r.disk)}})
	return w, e, all
}

func (w *keptWorld) remove(all ...snapshot) {
	w.t.Helper()
	for _, m := range all {
		_, err := w.snapshots.markDeleting(w.t.Context(), m.ID, nil)
		if err == nil {
			_, err = w.snapshotter.removeSnapshot(w.t.Context(), m)
		}
		w.ok(err)
	}
}

// chainOf are the disks beneath a snapshot, and their names in the archive.
func (w *keptWorld) chainOf(m snapshot) (ids []holt.DiskID, spaces []holt.DiskID) {
	w.t.Helper()
	chain, err := w.disks.chain(w.t.Context(), m.disk)
	w.ok(err)
	for _, l := range chain {
		ids, spaces = append(ids, l.id), append(spaces, l.space)
	}
	return ids, spaces
}

// complete fails unless the archive has snapshots over the disks that there are, and nothing else.
func (w *keptWorld) complete(all ...snapshot) {
	w.t.Helper()
	ctx := w.t.Context()
	want := map[string]bool{}
	for _, m := range all {
		_, spaces := w.chainOf(m)
		a, err := w.archiver.archive.About(ctx, string(m.ID))
		w.ok(err)
		if !slices.Equal(a.Disks, spaces) || a.Snapshot.ID != m.ID {
			w.t.Errorf("%s lies over %q in the archive, want %q", m.ID, a.Disks, spaces)
		}
		want[string(m.ID)] = true
		for i, space := range spaces {
			want[string(space)] = true
			d, err := w.archiver.archive.About(ctx, string(space))
			w.ok(err)
			got := make([]byte, d.Files[0].Size)
			w.ok(w.archiver.archive.Chunks.ReadAt(ctx, string(space), diskFile+".00000", got, 0))
			ids, _ := w.chainOf(m)
			here, err := os.ReadFile(w.disks.path(ids[i]))
			w.ok(err)
			if d.Disk != space || string(got) != string(here) {
				w.t.Errorf("%s in the archive: %+v, %q, want %q", space, d, got, here)
			}
		}
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	w.spaces(names...)
}

// Disks beneath snapshots that are kept, and beneath a machine that runs, are made into one when
// there are enough; the machine and the archive then have that one.
func TestStackedDisksBecomeOne(t *testing.T) {
	w, e, all := snapshots(t, 6)
	ctx := t.Context()
	w.archiver.keepRound(ctx)
	w.complete(all...)
	f := w.flattener
	w.remove(all[:2]...)
	f.all(ctx, newTries())
	w.archiver.keepRound(ctx)
	if ids, _ := w.chainOf(all[5]); len(ids) != 6 {
		t.Errorf("two are merged: %q", ids)
	}
	w.remove(all[2])
	unlock, err := w.machines.lock(ctx, w.r.ID) // a verb is at work when the copy is there
	w.ok(err)
	e.asked = func() { go unlock() }
	f.all(ctx, newTries())
	e.asked = func() {}
	ids, _ := w.chainOf(all[5])
	if want := []holt.DiskID{all[5].disk, all[4].disk, all[3].disk, all[2].disk}; !slices.Equal(ids, want) {
		t.Errorf("the chain is %q, want %q", ids, want)
	}
	if shown, depth := e.shows(t, w.disks.path(w.r.disk)); shown != "abcdef" || depth != 4 {
		t.Errorf("it shows %q over %d disks", shown, depth)
	}
	if !slices.Equal(e.opened, []string{"abcdef"}) {
		t.Errorf("the machine has opened %q", e.opened)
	}
	files, err := os.ReadDir(w.disks.dir)
	w.ok(err)
	if len(files) != 4 {
		t.Errorf("left on the disk: %v", files)
	}
	// Until the archive has the merged one, it has those that it was made of.
	w.cfg.Fail = func(point string) error {
		if point == "keep/renew" {
			return errors.New("planned")
		}
		return nil
	}
	w.archiver.keepRound(ctx)
	a, err := w.archiver.archive.About(ctx, string(all[3].ID))
	w.ok(err)
	for _, space := range a.Disks {
		if _, err := w.archiver.archive.About(ctx, string(space)); err != nil || len(a.Disks) != 4 {
			t.Errorf("%s of %q: %v", space, a.Disks, err)
		}
	}
	w.cfg.Fail = nil
	w.archiver.keepRound(ctx)
	w.complete(all[3:]...)
	done, err := w.archiver.use(ctx, w.row(all[3].ID))
	w.ok(err)
	done()
	paused := w.take(holt.SnapshotOfPause)
	w.ok(os.WriteFile(w.disks.path(paused.disk), []byte(w.disks.path(all[5].disk)+"\ng"), 0o600))
	w.machines.put(w.r.ID, nil)
	w.r.State = holt.ComputerPaused
	w.ok(w.table.save(ctx, *w.r))
	w.remove(all[3:5]...)
	f.all(ctx, newTries()) // one merged, and two
	w.archiver.keepRound(ctx)
	if w.row(paused.ID).Archived {
		t.Error("a snapshot that nobody asked for is in the archive")
	}
	if shown, depth := e.shows(t, w.disks.path(w.r.disk)); shown != "abcdefg" || depth != 3 {
		t.Errorf("it shows %q over %d disks", shown, depth)
	}
	w.complete(all[5])
}

// A daemon that dies at any step of a merge leaves disks that show what they did, and the next
// one finishes it, also in a directory that was moved meanwhile.
func TestMergeCutOff(t *testing.T) {
	for _, point := range []string{"flatten/copy", "flatten/replaced", "flatten/moved"} {
		t.Run(filepath.Base(point), func(t *testing.T) {
			w, e, all := snapshots(t, 5)
			ctx := t.Context()
			w.archiver.keepRound(ctx)
			w.remove(all[:3]...)
			w.cfg.Fail = func(at string) error {
				if at == point || point == "flatten/moved" && at == "flatten/replaced" {
					return errors.New("planned")
				}
				return nil
			}
			w.flattener.all(ctx, newTries())
			w.cfg.Fail = nil
			if shown, _ := e.shows(t, w.disks.path(w.r.disk)); shown != "abcde" {
				t.Errorf("cut off, it shows %q", shown)
			}
			if point == "flatten/moved" {
				moved := w.disks.dir + "-moved"
				w.ok(os.Rename(w.disks.dir, moved))
				w.ok(os.Symlink(moved, w.disks.dir)) // what the files name is found
				w.disks.dir = moved
			}
			w.ok(w.disks.tidy(ctx))
			unlock, err := w.machines.lock(ctx, w.r.ID) // as whoever takes a starting computer over
			w.ok(err)
			marked, err := w.flattener.settle(ctx, newTries())
			if err != nil || len(marked) > 1 || len(marked) == 0 && point != "flatten/copy" {
				t.Errorf("while a verb is at work, %q are marked: %v", marked, err)
			}
			unlock()
			marked, err = w.flattener.settle(ctx, newTries())
			if err != nil || len(marked) > 0 {
				t.Errorf("%q stay marked: %v", marked, err)
			}
			want := map[string]int{"flatten/copy": 5, "flatten/replaced": 3, "flatten/moved": 3}[point]
			if ids, _ := w.chainOf(all[4]); len(ids) != want {
				t.Errorf("%d disks, want %d", len(ids), want)
			}
			files, err := os.ReadDir(w.disks.dir)
			w.ok(err)
			if len(files) != want {
				t.Errorf("left on the disk: %v", files)
			}
			w.archiver.keepRound(ctx)
			w.flattener.all(ctx, newTries())
			w.archiver.keepRound(ctx)
			w.complete(all[3:]...)
		})
	}
}
