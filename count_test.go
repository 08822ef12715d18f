package holt

import (
	"math"
	"testing"
)

func TestCountOf(t *testing.T) {
	for want, got := range map[string]string{
		"1 computer":          CountOf(1, "computer"),
		"0 computers":         CountOf(0, "computer"),
		"2 running computers": CountOf(int64(2), "running computer"),
		"1 process":           CountOf(1, "process"),
		"3 processes":         CountOf(3, "process"),
		"2 entries":           CountOf(2, "entry"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestShortMS(t *testing.T) {
	for want, ms := range map[string]int64{"0s": 0, "100ms": 100, "1.5s": 1500, "12s": 12_345, "15m": 900_000, "2h": 7_200_000, "2562047h47m16s": math.MaxInt64} {
		if got := ShortMS(ms); got != want {
			t.Errorf("%d ms: got %q, want %q", ms, got, want)
		}
	}
}
