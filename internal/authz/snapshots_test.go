package authz_test

import (
	"testing"

	"holt"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

// TestSnapshotsAsk: a token for a computer gets, restores, compares and deletes snapshots of that one, by whatever they are called, and no
// other computer's.
func TestSnapshotsAsk(t *testing.T) {
	all, guarded, ids := twoComputers(t)
	one := limited(t, holt.Scope("computer:"+string(ids["einstein"])))
	for verb, try := range map[string]func(ref string) error{
		"get":       func(ref string) error { _, err := guarded.Snapshots.Get(one, ref); return err },
		"diff from": func(ref string) error { _, err := guarded.Snapshots.Diff(one, ref, "einstein"); return err },
		"diff to":   func(ref string) error { _, err := guarded.Snapshots.Diff(one, "einstein", ref); return err },
		"restore": func(ref string) error {
			_, err := guarded.Snapshots.Restore(one, ref, holt.SnapshotRestoreSpec{}, "")
			return err
		},
		"delete": func(ref string) error { _, err := guarded.Snapshots.Delete(one, ref, ""); return err },
	} {
		for _, of := range []string{"einstein", "bohr"} {
			for _, by := range []string{"id", "name", "both"} {
				kept, err := all.Computers.Snapshot(t.Context(), of, holt.SnapshotSpec{Name: "of-" + of}, "")
				if err != nil {
					t.Fatal(err)
				}
				ref := map[string]string{"id": string(kept.ID), "name": kept.Name, "both": of + "@" + kept.Name}[by]
				switch err := try(ref); {
				case of == "einstein" && err != nil, of == "bohr" && holt.CodeOf(err) != holt.Forbidden:
					t.Errorf("%s %s: %v", verb, ref, err)
				}
				if _, err := all.Snapshots.Delete(t.Context(), string(kept.ID), ""); (err == nil) == (of == "einstein" && verb == "delete") {
					t.Errorf("%s %s, and then: %v", verb, ref, err)
				}
			}
		}
	}
}

// TestSnapshotHidesNoComputer: who covers one computer compares no other by giving a snapshot its name.
func TestSnapshotHidesNoComputer(t *testing.T) {
	all, guarded, ids := twoComputers(t)
	one := limited(t, holt.Scope("computer:"+string(ids["einstein"])))
	if _, err := guarded.Computers.Snapshot(one, "einstein", holt.SnapshotSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	if d, err := all.Snapshots.Diff(t.Context(), "bohr", "einstein"); err != nil || d.From.Computer != "bohr" || d.From.Snapshot != "" {
		t.Errorf("a computer does not go before a snapshot of its name: %+v, %v", d.From, err)
	}
	for _, sides := range [][2]string{{"bohr", "einstein"}, {"einstein", "bohr"}} {
		if d, err := guarded.Snapshots.Diff(one, sides[0], sides[1]); holt.CodeOf(err) != holt.Forbidden {
			t.Errorf("%v: %+v %+v, %v", sides, d.From, d.To, err)
		}
	}
	if d, err := guarded.Snapshots.Diff(one, "einstein@bohr", "einstein"); err != nil || d.From.Name != "bohr" {
		t.Errorf("the snapshot: %+v, %v", d.From, err)
	}
}

// twoComputers are einstein and bohr. A call without a token may do everything.
func twoComputers(t *testing.T) (all, guarded httpapi.Nouns, ids map[string]holt.ComputerID) {
	t.Helper()
	all, ids = servertest.OpenKeeping(t).Nouns(), map[string]holt.ComputerID{}
	for _, name := range []string{"einstein", "bohr"} {
		c, err := all.Computers.Create(t.Context(), holt.ComputerSpec{Name: name}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = c.ID
	}
	return all, all, ids
}
