package schedule

import (
	"time"

	"holt"
)

// grace is how late the last of the due times that are found may be and still count as found in
// time: a daemon that is restarted, and a host that sleeps for a snapshot, miss nothing.
const grace = 2 * time.Minute

// found are the due times of a schedule that were found at one look.
type found struct {
	count int
	first time.Time
	last  []time.Time // the last of them, up to holt.MostMadeUp and one more
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

// plan says which of the due times that were found are fired, and how many before them are missed.
// waiting is how many firings of the schedule wait already.
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
