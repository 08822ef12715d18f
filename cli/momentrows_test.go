package cli

import (
	"slices"
	"testing"

	"holt"
)

// A moment that goes on from another than the one above it names that one, as it is listed.
func TestMomentRows(t *testing.T) {
	all := []holt.Moment{
		{ID: "mom_a", Name: "before", Computer: "einstein"},
		{ID: "mom_b", Computer: "einstein", Parent: "mom_a"},
		{ID: "mom_c", Computer: "einstein", Parent: "mom_a"},
		{ID: "mom_d", Computer: "einstein", Parent: "mom_gone"},
		{ID: "mom_e", Computer: "einstein", Parent: "mom_of"},
	}
	rows := momentRows(all, append(all, holt.Moment{ID: "mom_of", Name: "of-bohr", Computer: "bohr"}))
	for i, want := range []string{"", "", "before", "mom_gone (deleted)", "of-bohr"} {
		if rows[i][2] != want {
			t.Errorf("row %d comes after %q, want %q", i, rows[i][2], want)
		}
	}
}

// A moment is shown with what there is to say of it, and nothing else.
func TestMomentLines(t *testing.T) {
	for _, one := range []struct {
		m    holt.Moment
		want []string
		none []string
	}{
		{holt.Moment{ID: "mom_a", Kind: holt.MomentFork, MemoryMB: 512, PauseMS: 31.4}, []string{"memory 512.0 MiB", "stood still 31 ms"}, []string{"name", "after", "forks", "in archive", "held back", "forced"}},
		{holt.Moment{ID: "mom_a", Kind: holt.MomentSnapshot, PauseMS: 1300, Throttle: 90, Forced: true, Forks: []holt.Dependent{{Name: "try-1"}, {Name: "try-2"}}},
			[]string{"in archive not yet", "stood still 1.3 s", "held back 90 % of its time at last", "forced to stand for all that was left: its memory changed too fast", "forks try-1, try-2"}, nil},
		{holt.Moment{ID: "mom_a", Kind: holt.MomentSnapshot, Stopped: true, MemoryMB: 512}, []string{"memory none: it was stopped"}, []string{"stood still"}},
	} {
		var got []string
		for _, row := range momentLines(one.m, func(id holt.MomentID) string { return string(id) }) {
			got = append(got, row[0]+" "+row[1])
			if slices.Contains(one.none, row[0]) {
				t.Errorf("%s: %q", row[0], row[1])
			}
		}
		for _, want := range one.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q is missing in %q", want, got)
			}
		}
	}
}
