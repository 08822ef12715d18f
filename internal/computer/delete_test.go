package computer

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
)

// goneEngine is an engine of whose machines none is left.
type goneEngine struct{ layered }

func (*goneEngine) Adopt(context.Context, string) (machine.Machine, error) {
	return nil, machine.ErrGone
}

// Whoever deletes a computer is told which snapshots went with it, and which forks go on.
func TestDeleteNamesRelatives(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	w.cfg.Engines.Default = &goneEngine{}
	first, second := w.take(holt.SnapshotManual), w.take(holt.SnapshotOfPause)
	var want holt.DeletedComputer
	for _, m := range []snapshot{first, second} {
		want.Snapshots = append(want.Snapshots, holt.NamedSnapshot{ID: m.ID})
	}
	for _, one := range []struct {
		name  string
		state holt.ComputerState
		from  *holt.Origin
	}{
		{"other", holt.ComputerStopped, nil},
		{"try", holt.ComputerStopped, &holt.Origin{ID: w.r.ID, Snapshot: first.ID}},
		{"half-made", holt.ComputerCreating, &holt.Origin{ID: w.r.ID, Snapshot: first.ID}},
	} {
		r := &record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: one.name, State: one.state, Parent: one.from}, workspaceID: holt.NewWorkspaceID()}
		w.ok(w.table.insert(t.Context(), r, nil, func(string) bool { return false }, nothingWith))
		if one.name == "try" {
			want.Forks = append(want.Forks, holt.Dependent{ID: r.ID, Name: r.Name})
		}
	}
	got, err := w.Delete(t.Context(), "einstein", "")
	w.ok(err)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if all, err := w.Snapshots().List(t.Context(), ""); err != nil || len(all) != 0 {
		t.Errorf("snapshots of a computer that is gone: %+v %v", all, err)
	}
}
