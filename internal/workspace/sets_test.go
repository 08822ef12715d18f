package workspace

import (
	"slices"
	"testing"
)

// Numbers in a row are asked for as ranges, all others one by one, each once.
func TestRuns(t *testing.T) {
	var inos, want []Ino
	for i := range Ino(100) {
		inos = append(inos, 1000-i, 2000+2*i, 1000-i) // one run, from behind and twice; none
		want = append(want, 2000+2*i)
	}
	for i := range Ino(runSize - 1) {
		inos, want = append(inos, 3000+i), append(want, 3000+i) // too short
	}
	var ranges []Ino
	others, err := runs(inos, func(first, last Ino) error { ranges = append(ranges, first, last); return nil })
	if err != nil || !slices.Equal(ranges, []Ino{901, 1000}) || !slices.Equal(others, want) {
		t.Error(ranges, others, err)
	}
	if inos[0] != 1000 {
		t.Error("the caller's list was sorted")
	}
}
