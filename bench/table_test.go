package main

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSection(t *testing.T) {
	fast := &figure{name: "create", unit: perSecond, targets: []target{{"ours", "bare", 0.7}, {"ours", "", 1000}}}
	for _, v := range []float64{900, 1000, 1100} {
		fast.add("ours", v)
		fast.add("bare", v*2)
	}
	slow := &figure{name: "a|b", unit: seconds, targets: []target{{"ours", "bare", 1.5}, {"other", "", 3}}}
	slow.add("ours", 1.2)
	slow.add("bare", 1)
	slow.fail("other", errors.New("it broke\nand more"))
	s := section{
		title: "Files", about: "\nWhat it is.\n", columns: []string{"ours", "bare", "other"},
		ratios: [][2]string{{"ours", "bare"}}, figures: []*figure{fast, slow}, notes: []string{"a note"},
	}
	var b strings.Builder
	s.write(&b)
	want := `## Files

What it is.

| work | ours | bare | other | ours ÷ bare | target |   |
| --- | --: | --: | --: | --: | --- | --- |
| create, /s | 1,000 (900–1,100) | 2,000 (1,800–2,200) | – | 0.50 × | ≥ 0.7 × bare<br>≥ 1,000 /s | **missed**: 0.50 ×<br>met |
| a\|b, s | 1.20 | 1.00 | – | 1.20 × | ≤ 1.5 × bare<br>≤ 3.00 s | met<br>not measured |

- a|b, other: it broke
- a note

`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestMet(t *testing.T) {
	f := &figure{unit: millis}
	f.add("x", 40)
	for limit, want := range map[float64]bool{40: true, 39: false, 41: true} {
		if got := f.met(target{"x", "", limit}); got != want {
			t.Errorf("40 ms against at most %v: %v", limit, got)
		}
	}
	if f.met(target{"y", "", math.Inf(1)}) || f.met(target{"x", "y", math.Inf(1)}) {
		t.Error("what was not measured met its target")
	}
}
