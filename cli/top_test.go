package cli

import (
	"testing"
	"time"

	"holt"
)

// TestRates: what is taken is said a second, of a first answer and of a machine that began anew nothing.
func TestRates(t *testing.T) {
	at := time.Now()
	first := holt.ComputerStats{At: at, CPUMS: 1000, Sent: 100, Received: 1000}
	next := holt.ComputerStats{At: at.Add(2 * time.Second), CPUMS: 4000, Sent: 300, Received: 5000}
	if got := rates(first, next); got.CPUPercent != 150 || got.SentRate != 100 || got.ReceivedRate != 2000 {
		t.Errorf("got %+v", got)
	}
	if got := rates(holt.ComputerStats{}, next); got.CPUPercent != 0 || got.SentRate != 0 {
		t.Errorf("of one answer: %+v", got)
	}
	next.CPUMS = 10
	if got := rates(first, next); got.CPUPercent != 0 || got.ReceivedRate != 2000 {
		t.Errorf("of another machine: %+v", got)
	}
}
