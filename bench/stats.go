package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// nan stands for what was not measured.
var nan = math.NaN()

// median returns the middle of the samples, NaN if there are none.
func median(samples []float64) float64 {
	return quantile(samples, 0.5)
}

// quantile returns the value below which a share q of the samples lies,
// between two samples by straight line (Hyndman and Fan's type 7).
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	at := q * float64(len(s)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(s)-1)
	return s[low] + (at-float64(low))*(s[high]-s[low])
}

// ratios divides round by round; rounds that only one side finished are left out.
func ratios(a, b []float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		if r := a[i] / b[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			out = append(out, r)
		}
	}
	return out
}

// finite leaves out the rounds that were not finished.
func finite(samples []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(samples), math.IsNaN)
}

// number formats a value with three significant digits, and the digits before
// the point in groups.
func number(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	s := strconv.FormatFloat(v, 'f', digits, 64)
	whole, rest, point := strings.Cut(s, ".")
	sign, whole, negative := cutSign(whole)
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + rest
	}
	if negative {
		return sign + whole
	}
	return whole
}

func cutSign(s string) (sign, rest string, negative bool) {
	rest, negative = strings.CutPrefix(s, "-")
	return "-", rest, negative
}
