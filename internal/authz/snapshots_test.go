package authz_test

import (
	"context"
	"testing"

	"holt"
	"holt/internal/api"
	"holt/internal/authz"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// unrestored restores nothing: each call would take seconds, and only the check before it is tested.
type unrestored struct{ nouns.Snapshots }

func (unrestored) Restore(context.Context, string, holt.SnapshotRestoreSpec, string) (holt.RestoredComputer, error) {
	return holt.RestoredComputer{}, nil
}

// TestSnapshotsAreChecked: a token for a computer gets, restores, compares and deletes snapshots of that computer only,
// by id, name or COMPUTER@NAME.
func TestSnapshotsAreChecked(t *testing.T) {
	all, guarded, ids := twoComputers(t)
	one := limited(t, holt.Scope("computer:"+string(ids["einstein"])))
	kept := map[string]holt.Snapshot{}
	take := func(of string) {
		t.Helper()
		one, err := all.Computers.Snapshot(t.Context(), of, holt.SnapshotSpec{Name: "of-" + of}, "")
		if err != nil {
			t.Fatal(err)
		}
		kept[of] = one
	}
	take("einstein")
	take("bohr")
	for verb, try := range map[string]func(ref string) error{
		"get": func(ref string) error {
			_, err := api.Do(one, guarded, api.GetSnapshot, &api.OneSnapshot{Snapshot: ref})
			return err
		},
		"diff from": func(ref string) error {
			_, err := api.Do(one, guarded, api.DiffComputers, &api.TwoSides{From: ref, To: "einstein"})
			return err
		},
		"diff to": func(ref string) error {
			_, err := api.Do(one, guarded, api.DiffComputers, &api.TwoSides{From: "einstein", To: ref})
			return err
		},
		"restore": func(ref string) error {
			_, err := api.Do(one, guarded, api.RestoreSnapshot, &api.SnapshotBody[holt.SnapshotRestoreSpec]{OneSnapshot: api.OneSnapshot{Snapshot: ref}})
			return err
		},
		"delete": func(ref string) error {
			_, err := api.Do(one, guarded, api.DeleteSnapshot, &api.SnapshotKeyed{OneSnapshot: api.OneSnapshot{Snapshot: ref}})
			return err
		},
	} {
		for of, one := range kept {
			for _, ref := range []string{string(one.ID), one.Name, of + "@" + one.Name} {
				err := try(ref)
				if of == "einstein" && err != nil || of == "bohr" && holt.CodeOf(err) != holt.Forbidden {
					t.Errorf("%s %s: %v", verb, ref, err)
				}
				_, gone := all.Snapshots.Get(t.Context(), string(one.ID))
				if deletes := of == "einstein" && verb == "delete"; deletes != (holt.CodeOf(gone) == holt.NotFound) {
					t.Errorf("%s %s, and then: %v", verb, ref, gone)
				} else if deletes {
					take(of)
					one = kept[of]
				}
			}
		}
	}
	hidesNoComputer(t, all, guarded, one)
}

// hidesNoComputer: a token for one computer does not read another by giving a snapshot that one's name.
func hidesNoComputer(t *testing.T, all nouns.Set, guarded *api.Registry, one context.Context) {
	t.Helper()
	if _, err := api.Do(one, guarded, api.TakeSnapshot, &api.ComputerBody[holt.SnapshotSpec]{OneComputer: api.OneComputer{Computer: "einstein"}, Body: holt.SnapshotSpec{Name: "bohr"}}); err != nil {
		t.Fatal(err)
	}
	if d, err := all.Snapshots.Diff(t.Context(), "bohr", "einstein"); err != nil || d.From.Computer != "bohr" || d.From.Snapshot != "" {
		t.Errorf("a computer does not go before a snapshot of its name: %+v, %v", d.From, err)
	}
	for _, sides := range [][2]string{{"bohr", "einstein"}, {"einstein", "bohr"}} {
		if d, err := api.Do(one, guarded, api.DiffComputers, &api.TwoSides{From: sides[0], To: sides[1]}); holt.CodeOf(err) != holt.Forbidden {
			t.Errorf("%v: %+v %+v, %v", sides, d.From, d.To, err)
		}
	}
	if d, err := api.Do(one, guarded, api.DiffComputers, &api.TwoSides{From: "einstein@bohr", To: "einstein"}); err != nil || d.From.Name != "bohr" {
		t.Errorf("the snapshot: %+v, %v", d.From, err)
	}
}

// twoComputers makes einstein and bohr, and returns the nouns without checks and a registry with them.
func twoComputers(t *testing.T) (all nouns.Set, guarded *api.Registry, ids map[string]holt.ComputerID) {
	t.Helper()
	all, ids = servertest.NewSandboxed(t).Nouns(), map[string]holt.ComputerID{}
	for _, name := range []string{"einstein", "bohr"} {
		c, err := all.Computers.Create(t.Context(), holt.ComputerSpec{Name: name}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = c.ID
	}
	all.Snapshots = unrestored{all.Snapshots}
	return all, httpapi.New(httpapi.Options{Nouns: all, Authorize: authz.New(all)}).Registry(), ids
}
