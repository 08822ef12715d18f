package schedule

import (
	"time"

	"holt"
)

// grace is how late a due time may be found without counting as missed, so that a restart of the daemon or
// a short suspension of the host misses nothing.
const grace = 2 * time.Minute

// found collects the due times of a schedule since it fired last.
type found struct {
	count int
	first time.Time
	last  []time.Time // the last holt.MostMadeUp+1 of them
}

func (f *found) add(due time.Time) bool {
	if f.count++; f.count == 1 {
		f.first = due
	}
	if len(f.last) > holt.MostMadeUp {
		f.last = append(f.last[:0], f.last[1:]...)
	}
	f.last = append(f.last, due)
	return true
}

// plan returns the due times that fire, the number of earlier ones that are missed, and the last of these.
// waiting is the number of queued firings of the schedule.
func (f *found) plan(policy holt.MissedPolicy, now time.Time, waiting int) (missed int, until time.Time, fire []time.Time) {
	n := 1
	switch latest := f.last[len(f.last)-1]; {
	case policy == holt.MissedAll && f.count > 1:
		n = max(0, min(len(f.last), holt.MostMadeUp-waiting))
	case policy == holt.MissedSkip && now.Sub(latest) > grace:
		n = 0
	}
	fire = f.last[len(f.last)-n:]
	if missed = f.count - n; missed > 0 {
		until = f.last[len(f.last)-n-1]
	}
	return missed, until, fire
}
