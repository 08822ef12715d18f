package warden_test

import (
	"testing"

	"holt"
	"holt/server"
	"holt/server/servertest"
	"holt/warden"
)

// TestMomentsAsk: a token for a computer gets, restores, compares and deletes moments of that one, by whatever they are called, and no
// other computer's.
func TestMomentsAsk(t *testing.T) {
	all, guarded, ids := twoComputers(t)
	one := limited(t, holt.Scope("computer:"+string(ids["einstein"])))
	for verb, try := range map[string]func(ref string) error{
		"get":       func(ref string) error { _, err := guarded.Moments.Get(one, ref); return err },
		"diff from": func(ref string) error { _, err := guarded.Moments.Diff(one, ref, "einstein"); return err },
		"diff to":   func(ref string) error { _, err := guarded.Moments.Diff(one, "einstein", ref); return err },
		"restore": func(ref string) error {
			_, err := guarded.Moments.Restore(one, ref, holt.MomentRestoreSpec{}, "")
			return err
		},
		"delete": func(ref string) error { _, err := guarded.Moments.Delete(one, ref, ""); return err },
	} {
		for _, of := range []string{"einstein", "bohr"} {
			for _, by := range []string{"id", "name", "both"} {
				kept, err := all.Computers.Snapshot(t.Context(), of, holt.SnapshotSpec{Name: "of-" + of}, "")
				if err != nil {
					t.Fatal(err)
				}
				ref := map[string]string{"id": string(kept.ID), "name": kept.Name, "both": of + "@" + kept.Name}[by]
				switch err := try(ref); {
				case of == "einstein" && err != nil, of == "bohr" && holt.CodeOf(err) != holt.Denied:
					t.Errorf("%s %s: %v", verb, ref, err)
				}
				if _, err := all.Moments.Delete(t.Context(), string(kept.ID), ""); (err == nil) == (of == "einstein" && verb == "delete") {
					t.Errorf("%s %s, and then: %v", verb, ref, err)
				}
			}
		}
	}
}

// TestMomentHidesNoComputer: who covers one computer compares no other by giving a moment its name.
func TestMomentHidesNoComputer(t *testing.T) {
	all, guarded, ids := twoComputers(t)
	one := limited(t, holt.Scope("computer:"+string(ids["einstein"])))
	if _, err := guarded.Computers.Snapshot(one, "einstein", holt.SnapshotSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	if d, err := all.Moments.Diff(t.Context(), "bohr", "einstein"); err != nil || d.From.Computer != "bohr" || d.From.Moment != "" {
		t.Errorf("a computer does not go before a moment of its name: %+v, %v", d.From, err)
	}
	for _, sides := range [][2]string{{"bohr", "einstein"}, {"einstein", "bohr"}} {
		if d, err := guarded.Moments.Diff(one, sides[0], sides[1]); holt.CodeOf(err) != holt.Denied {
			t.Errorf("%v: %+v %+v, %v", sides, d.From, d.To, err)
		}
	}
	if d, err := guarded.Moments.Diff(one, "einstein@bohr", "einstein"); err != nil || d.From.Name != "bohr" {
		t.Errorf("the moment: %+v, %v", d.From, err)
	}
}

// twoComputers are einstein and bohr, unguarded and guarded.
func twoComputers(t *testing.T) (all, guarded server.Nouns, ids map[string]holt.ComputerID) {
	t.Helper()
	m := servertest.New(t.TempDir())
	t.Cleanup(m.Close)
	all, ids = m.Nouns(), map[string]holt.ComputerID{}
	for _, name := range []string{"einstein", "bohr"} {
		c, err := all.Computers.Create(t.Context(), holt.ComputerSpec{Name: name}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = c.ID
	}
	return all, warden.Around(all), ids
}
