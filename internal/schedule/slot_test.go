package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holt"
)

// withDown is a world in which each wake of a computer of tenant a fails after two minutes, and one of tenant b wakes.
func withDown(t *testing.T, n int) (w *world, names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("down-", i))
	}
	w = newWorld(t, append(slices.Clone(names), "sound")...)
	for _, c := range w.computers {
		if c.Tenant = "b"; c.Name != "sound" {
			c.Tenant = "a"
			w.down[c.ID] = 2 * time.Minute
		}
	}
	return w, names
}

// begins returns when the last firing of a schedule started its run.
func (w *world) begins(ref string) (clock string) {
	w.t.Helper()
	list, err := w.s.History(w.t.Context(), ref, 1)
	w.ok(err)
	if len(list) == 0 || list[0].StartedAt == nil {
		return "never"
	}
	return list[0].StartedAt.Format(time.TimeOnly)
}

// TestDownComputer: a computer that fails to wake, with many schedules, does not delay others. It is retried at growing
// intervals, once for all its schedules, each of which has a reason. Once it wakes they run.
func TestDownComputer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, names := withDown(t, 1)
		s := w.open()
		for i := range 20 {
			w.add(names[0], fmt.Sprint("s-", i), "0 3 * * *", "1m", nil)
		}
		w.add("sound", "nightly", "0 3 * * *", "1m", nil)
		time.Sleep(3*time.Hour + time.Minute)
		if at := w.begins("nightly"); at != "03:00:03" {
			t.Errorf("the run began at %s", at)
		}
		time.Sleep(49 * time.Minute)
		if tries := w.tried() - 1; tries < 4 || tries > 8 { // 2 minutes each, with pauses of 15 s, 30 s, 1, 2, 4, 8 and 10 minutes
			t.Errorf("%d tries in 50 minutes", tries)
		}
		for i := range 20 {
			list, err := s.History(t.Context(), fmt.Sprint("s-", i), 1)
			w.ok(err)
			if list[0].State != holt.FiringStarting || !strings.Contains(list[0].Reason, "does not come up") {
				t.Errorf("%+v", list[0])
			}
		}
		w.mends()
		time.Sleep(13 * time.Minute)
		for i := range 20 {
			w.wants(fmt.Sprint("s-", i), "03:00 exited")
		}
		w.ok(s.Close())
	})
}

// TestDownOfOneTenant: if several computers of one tenant fail to wake, the next slot goes to another tenant. A manual run
// tries again.
func TestDownOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, names := withDown(t, 12)
		s := w.open()
		for _, name := range names {
			w.add(name, name, "0 3 * * *", "1m", nil)
		}
		w.add("sound", "nightly", "1 3 * * *", "1m", nil) // while all others wait
		time.Sleep(3*time.Hour + 20*time.Minute)
		if at := w.begins("nightly"); at != "03:02:03" {
			t.Errorf("the run began at %s", at)
		}
		w.add(names[0], "other", "@yearly", "1m", nil)
		w.mends()
		if f, err := s.Run(t.Context(), "other", ""); err != nil || f.State != holt.FiringRunning {
			t.Errorf("%+v %v", f, err)
		}
		w.ok(s.Close())
	})
}

// TestDownUntilStarted: a computer that failed to wake and was then started by a person runs its schedule soon.
func TestDownUntilStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, names := withDown(t, 1)
		s := w.open()
		w.add(names[0], "nightly", "0 3 * * *", "1m", nil)
		time.Sleep(3*time.Hour + 32*time.Minute)
		w.mends()
		w.mu.Lock()
		tries := w.tries
		for _, c := range w.computers {
			c.State = holt.ComputerRunning
		}
		w.mu.Unlock()
		time.Sleep(2 * time.Minute)
		w.wants("nightly", "03:00 exited")
		if again := w.tried(); again > tries+1 {
			t.Errorf("%d more wakes", again-tries)
		}
		w.ok(s.Close())
	})
}
