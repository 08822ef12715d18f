package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		q, want float64
	}{
		{[]float64{3}, 0.5, 3},
		{[]float64{9, 1, 5}, 0.5, 5},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{1, 2, 3, 4, 5}, 0, 1},
		{[]float64{1, 2, 3, 4, 5}, 1, 5},
		{[]float64{0, 10}, 0.95, 9.5},
	} {
		if got := quantile(c.samples, c.q); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.samples, c.q, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("nothing has a median")
	}
	unsorted := []float64{2, 1}
	median(unsorted)
	if unsorted[0] != 2 {
		t.Error("median changed its argument")
	}
}

func TestRatios(t *testing.T) {
	nan := math.NaN()
	got := ratios([]float64{10, nan, 30, 40}, []float64{5, 2, 0, 20, 1})
	if diff := cmp.Diff([]float64{2, 2}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]float64{1, 2}, finite([]float64{1, nan, 2}), cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.01234: "0.0123", 0.5: "0.500", 1.236: "1.24", 12.36: "12.4", 123.6: "124",
		1234.5: "1,234", 1234567: "1,234,567", -1234: "-1,234", -0.25: "-0.250", 100: "100",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
	if got := number(math.NaN()); got != "–" {
		t.Errorf("number(NaN) = %q", got)
	}
}
