package access

import (
	"fmt"
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := &Rate{PerSecond: 2, Burst: 4, most: 100, now: func() time.Time { return now }}
	for i := range 4 {
		if wait := r.Take("a"); wait != 0 {
			t.Fatalf("the %d. waits %s", i+1, wait)
		}
	}
	if wait := r.Take("a"); wait != 500*time.Millisecond {
		t.Error("the fifth waits", wait)
	}
	if r.Take("b") != 0 {
		t.Error("another caller waits")
	}
	now = now.Add(500 * time.Millisecond)
	if r.Take("a") != 0 || r.Take("a") == 0 {
		t.Error("after half a second the bucket does not have exactly one")
	}
	for i := range 10_000 {
		r.Take(fmt.Sprint(i))
	}
	if len(r.of) > 100 {
		t.Errorf("%d buckets, want at most 100", len(r.of))
	}
	none := &Rate{}
	for range 100 {
		if none.Take("a") != 0 {
			t.Fatal("a zero Rate limits")
		}
	}
}
