package cli

import (
	"slices"
	"testing"

	"holt"
)

// A snapshot that goes on from another than the one above it names that one, as it is listed.
func TestSnapshotRows(t *testing.T) {
	all := []holt.Snapshot{
		{ID: "snap_a", Name: "before", Computer: "einstein"},
		{ID: "snap_b", Computer: "einstein", Parent: "snap_a"},
		{ID: "snap_c", Computer: "einstein", Parent: "snap_a"},
		{ID: "snap_d", Computer: "einstein", Parent: "snap_gone"},
		{ID: "snap_e", Computer: "einstein", Parent: "snap_of"},
	}
	rows := snapshotRows(all, append(all, holt.Snapshot{ID: "snap_of", Name: "of-bohr", Computer: "bohr"}))
	for i, want := range []string{"", "", "before", "snap_gone (deleted)", "of-bohr"} {
		if rows[i][2] != want {
			t.Errorf("row %d comes after %q, want %q", i, rows[i][2], want)
		}
	}
}

// A snapshot is shown with what there is to say of it, and nothing else.
func TestSnapshotLines(t *testing.T) {
	for _, one := range []struct {
		m    holt.Snapshot
		want []string
		none []string
	}{
		{holt.Snapshot{ID: "snap_a", Kind: holt.SnapshotOfFork, MemoryMB: 512, PauseMS: 31.4}, []string{"memory 512.0 MiB", "halted 31 ms"}, []string{"name", "after", "forks", "in archive", "throttled", "forced"}},
		{holt.Snapshot{ID: "snap_a", Kind: holt.SnapshotManual, PauseMS: 1300, Throttle: 90, Forced: true, Forks: []holt.Dependent{{Name: "try-1"}, {Name: "try-2"}}},
			[]string{"in archive not yet", "halted 1.3 s", "throttled processors throttled by up to 90 %, because memory changed quickly", "forced memory changed too quickly, so the rest was copied while the computer was halted", "forks try-1, try-2"}, nil},
		{holt.Snapshot{ID: "snap_a", Kind: holt.SnapshotManual, Stopped: true, MemoryMB: 512}, []string{"memory none; the computer was stopped"}, []string{"halted"}},
	} {
		var got []string
		for _, row := range snapshotLines(one.m, func(id holt.SnapshotID) string { return string(id) }) {
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
