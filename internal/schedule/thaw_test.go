package schedule

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holt"
)

// TestThaws: if a run's computer is paused, it is woken when the schedule is due next, the run continues, and the computer
// is paused after it, even if it ran before.
func TestThaws(t *testing.T) {
	for _, policy := range []holt.OverlapPolicy{holt.OverlapSkip, holt.OverlapQueue, holt.OverlapReplace} {
		for _, ran := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, " ran ", ran), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, "einstein")
					if ran {
						for _, c := range w.computers {
							c.State = holt.ComputerRunning
						}
					}
					s := w.open()
					w.add("einstein", "hourly", "@hourly", "10m", func(s *holt.ScheduleSpec) { s.Overlap = policy })
					time.Sleep(65 * time.Minute)
					w.freezes("einstein")
					w.ok(s.Close())
					time.Sleep(10 * time.Minute)
					s = w.open()
					time.Sleep(44 * time.Minute) // 01:59
					w.wants("hourly", "01:00 running")
					if c, _ := w.Get(t.Context(), "einstein"); c.State != holt.ComputerPaused {
						t.Errorf("before the due time: %s", c.State)
					}
					time.Sleep(31 * time.Minute) // 02:30
					second := "02:00 exited"
					if policy == holt.OverlapSkip {
						second = "02:00 skipped"
					}
					w.wants("hourly", "01:00 exited", second)
					if c, _ := w.Get(t.Context(), "einstein"); c.State != holt.ComputerPaused {
						t.Errorf("after the run: %s", c.State)
					}
					time.Sleep(time.Hour)
					w.wants("hourly", "01:00 exited", second, "03:00 exited")
					w.ok(s.Close())
				})
			})
		}
	}
}

// TestThawRefused: if a run's computer cannot be woken, the firing has a reason and the wake is retried for an hour, and when the
// schedule is due next, also by the next daemon. A computer that is paused again stays paused until then.
func TestThawRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein")
		s := w.open()
		w.add("einstein", "often", "0 */2 * * *", "30m", nil)
		says := func(want string) {
			t.Helper()
			is, err := s.Get(t.Context(), "often")
			w.ok(err)
			if is.Firing == nil || is.Firing.State != holt.FiringRunning || !strings.Contains(is.Firing.Reason, want) || want == "" && is.Firing.Reason != "" {
				t.Errorf("%+v, want %q", is.Firing, want)
			}
		}
		time.Sleep(2*time.Hour + 5*time.Minute)
		w.freezes("einstein")
		w.refuses(holt.Errorf(holt.TooMany, "the budget is exhausted"))
		time.Sleep(2 * time.Hour) // 04:05
		says("until 2000-01-01T05:00:00Z, and when the schedule is due next: the budget is exhausted")
		time.Sleep(time.Hour)
		tries := w.tried()
		time.Sleep(50 * time.Minute)
		if more := w.tried() - tries; more > 0 {
			t.Errorf("%d tries after the hour", more)
		}
		says("the budget is exhausted")
		time.Sleep(10 * time.Minute) // 06:05
		w.ok(s.Close())
		w.refuses(nil)
		s = w.open()
		time.Sleep(time.Minute)
		says("")
		w.freezes("einstein")
		time.Sleep(time.Hour)
		says("")
		if c, _ := w.Get(t.Context(), "einstein"); c.State != holt.ComputerPaused {
			t.Errorf("between the due times the computer is %s", c.State)
		}
		if _, err := s.Run(t.Context(), "often", ""); holt.CodeOf(err) != holt.Conflict {
			t.Errorf("run while it runs: %v", err)
		}
		time.Sleep(30 * time.Minute)
		w.wants("often", "02:00 exited", "04:00 skipped", "06:00 skipped")
		time.Sleep(time.Hour)
		w.wants("often", "02:00 exited", "04:00 skipped", "06:00 skipped", "08:00 exited")
		w.ok(s.Close())
	})
}
