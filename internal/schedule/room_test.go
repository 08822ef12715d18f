package schedule

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holt"
)

// TestWaitsForRoom: if more computers are due than the host has room for, they run one after the other, and firings that
// wait have a reason; also if the daemon is killed meanwhile.
func TestWaitsForRoom(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint("dies ", dies), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range 20 {
					names = append(names, fmt.Sprint("c-", i))
				}
				w := newWorld(t, names...)
				w.room = 8
				s := w.open()
				for _, name := range names {
					w.add(name, name, "0 3 * * *", "10m", func(s *holt.ScheduleSpec) { s.Missed = holt.MissedSkip })
				}
				time.Sleep(3*time.Hour + 5*time.Minute)
				waiting := 0
				for _, name := range names {
					list, err := s.History(t.Context(), name, 0)
					w.ok(err)
					if len(list) == 1 && list[0].State == holt.FiringStarting && strings.Contains(list[0].Reason, "no memory") && list[0].Run == "" {
						waiting++
					}
				}
				if waiting != 12 || w.begun() != 8 {
					t.Errorf("%d wait with a reason, %d have begun", waiting, w.begun())
				}
				if dies {
					w.fatal(func(string) bool { return true })
					<-w.dead
					w.ok(s.Close())
					w.fatal(nil)
					time.Sleep(5 * time.Minute)
					s = w.open()
				}
				time.Sleep(50 * time.Minute)
				for _, name := range names {
					w.wants(name, "03:00 exited")
					if c, _ := w.Get(t.Context(), name); c.State != holt.ComputerPaused {
						t.Errorf("%s is %s", name, c.State)
					}
				}
				if w.begun() != len(names) {
					t.Errorf("%d runs", w.begun())
				}
				w.ok(s.Close())
			})
		})
	}
}

// TestRoomNeverComes: the wait for room is bounded, due times in the meantime follow the overlap policy, and a manual run
// returns at once.
func TestRoomNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein")
		s := w.open()
		w.add("einstein", "skip", "0,30 * * * *", "1m", nil)
		w.add("einstein", "replace", "10,40 * * * *", "1m", func(s *holt.ScheduleSpec) { s.Overlap = holt.OverlapReplace })
		w.refuses(holt.Errorf(holt.Unavailable, "it does not come up"))
		f, err := s.Run(t.Context(), "skip", "")
		if err != nil || f.State != holt.FiringStarting || !strings.Contains(f.Reason, "does not come up") {
			t.Errorf("%+v %v", f, err)
		}
		time.Sleep(62 * time.Minute)
		w.wants("skip", "00:00 failed", "00:30 skipped", "01:00 skipped")
		w.wants("replace", "00:10 skipped", "00:40 starting")
		w.refuses(nil)
		time.Sleep(30 * time.Minute)
		w.wants("skip", "00:00 failed", "00:30 skipped", "01:00 skipped", "01:30 exited")
		w.wants("replace", "00:10 skipped", "00:40 exited", "01:10 exited")
		w.refuses(holt.Errorf(holt.NotFound, "there is no such user"))
		if f, err := s.Run(t.Context(), "skip", ""); err != nil || f.State != holt.FiringFailed {
			t.Errorf("a permanent error: %+v %v", f, err)
		}
		w.ok(s.Close())
	})
}
