package computer

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

// A disk stays as long as a computer writes to it or another disk is laid over
// it, also when the daemon is killed in between.
func TestDisksThatAreNeededStay(t *testing.T) {
	_, d := openKeys(t)
	k := &disks{d: d, dir: filepath.Join(t.TempDir(), "disks"), archive: &archive.Archive{}}
	if err := k.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// base ← left, base ← right; nobody needs lost; forgotten has no row.
	ids := map[string]holt.DiskID{"": ""}
	for _, one := range []struct{ name, parent string }{{"base", ""}, {"left", "base"}, {"right", "base"}, {"lost", "right"}} {
		ids[one.name] = holt.NewDiskID()
		err := d.Write(t.Context(), func(tx *db.Tx) error { return k.insert(tx, ids[one.name], ids[one.parent], &record{image: "digest"}) })
		if err == nil {
			err = os.WriteFile(k.path(ids[one.name]), nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all := table{d: d}
	computers := map[string]*record{}
	for _, name := range []string{"left", "right"} {
		r := &record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: name}, workspaceID: holt.NewWorkspaceID(), disk: ids[name]}
		if err := all.insert(t.Context(), r, nil, func(string) bool { return false }, nothingWith); err != nil {
			t.Fatal(err)
		}
		computers[name] = r
	}
	if err := os.WriteFile(filepath.Join(k.dir, "forgotten"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holds := func(names ...string) {
		t.Helper()
		var want, has []string
		for _, name := range names {
			want = append(want, filepath.Base(k.path(ids[name])))
		}
		entries, err := os.ReadDir(k.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			has = append(has, e.Name())
		}
		slices.Sort(want)
		if !slices.Equal(has, want) {
			t.Errorf("there are %q, want %q", has, names)
		}
	}
	if err := k.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	holds("base", "left", "right")
	for _, gone := range []struct {
		name  string
		stays []string
	}{{"left", []string{"base", "right"}}, {"right", nil}} {
		if err := all.erase(t.Context(), computers[gone.name].ID); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(k.path(ids[gone.name])); err != nil { // killed between file and row
			t.Fatal(err)
		}
		if _, err := k.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		holds(gone.stays...)
	}
	if rows, err := k.list(t.Context(), `SELECT id FROM disk`); err != nil || len(rows) > 0 {
		t.Errorf("rows left: %q %v", rows, err)
	}
}

// What cannot be removed keeps neither a daemon from starting, nor what else is to be removed, nor a computer that
// has gone on from doing so.
func TestWhatCannotBeRemovedStays(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx := t.Context()
	m := w.pauses()
	unneeded := func() (path string) {
		id := holt.NewDiskID()
		w.ok(w.cfg.DB.Write(ctx, func(tx *db.Tx) error { return w.disks.insert(tx, id, "", &record{image: "digest"}) }))
		return w.disks.path(id)
	}
	full := unneeded()
	w.ok(os.MkdirAll(filepath.Join(full, "lost"), 0o700))
	goes := []string{unneeded(), unneeded(), filepath.Join(w.disks.dir, "forgotten")}
	for _, path := range goes {
		w.ok(os.WriteFile(path, nil, 0o600))
	}
	w.ok(w.disks.tidy(ctx))
	for _, path := range goes {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is there", filepath.Base(path))
		}
	}
	if _, err := os.Lstat(full); err != nil {
		t.Error(err)
	}
	if err := (&transition{s: w.Store, r: w.r, from: &m}).endResume(ctx); err != nil {
		t.Errorf("what became of a resume is recorded: %v", err)
	}
	w.cfg.Engines.Default, w.cfg.Templates = &planned{}, t.TempDir()
	w.ok(os.Mkdir(filepath.Join(w.cfg.Templates, "key"), 0o700))
	w.ok(w.cfg.tidyTemplates(ctx))
}

// planned is an engine whose machines cannot be found.
type planned struct{ stuckEngine }

func (*planned) Adopt(context.Context, string) (machine.Machine, error) { return nil, errPlanned }

func (*planned) Strays(string) ([]machine.Stray, error) { return nil, errPlanned }
