package computer

import (
	"testing"
	"time"

	"holt"
)

// TestRestarts: a computer that crashes again and again is left alone after some times, others are not, and it may again later.
func TestRestarts(t *testing.T) {
	var r restarts
	id, other, now := holt.NewComputerID(), holt.NewComputerID(), time.Now()
	for i := range 5 {
		if may := r.may(id, mostCrashes, now); may != (i < mostCrashes) {
			t.Errorf("crash %d: %t", i+1, may)
		}
	}
	if !r.may(other, mostCrashes, now) {
		t.Error("another computer is not started again")
	}
	if later := now.Add(restartSpan + time.Second); !r.may(id, mostCrashes, later) || len(r.at) != 1 {
		t.Errorf("later: %v", r.at)
	}
}
