package cli

import (
	"testing"

	"holt"
)

// A moment that goes on from another than the one above it names that one, as it is listed.
func TestMomentRows(t *testing.T) {
	rows := momentRows([]holt.Moment{
		{ID: "mom_a", Name: "before", Computer: "einstein"},
		{ID: "mom_b", Computer: "einstein", Parent: "mom_a"},
		{ID: "mom_c", Computer: "einstein", Parent: "mom_a"},
		{ID: "mom_d", Computer: "einstein", Parent: "mom_gone"},
	})
	for i, want := range []string{"", "", "before", "mom_gone"} {
		if rows[i][2] != want {
			t.Errorf("row %d comes after %q, want %q", i, rows[i][2], want)
		}
	}
}
