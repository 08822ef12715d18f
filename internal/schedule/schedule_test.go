package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holt"
	"holt/internal/store/db"
)

// The clock of a synctest bubble starts at midnight, 2000-01-01 UTC.

// TestFiresAtNight: a schedule wakes a paused computer, runs, and the computer is paused again.
func TestFiresAtNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein")
		s := w.open()
		made := w.add("einstein", "nightly", "30 3 * * *", "10m", nil)
		if made.Computer != "einstein" || len(made.Next) != 3 || made.Next[0].Format(time.DateTime) != "2000-01-01 03:30:00" || made.TimeZone != "UTC" || made.Missed != holt.MissedOnce || made.Overlap != holt.OverlapSkip {
			t.Errorf("%+v", made)
		}
		time.Sleep(3*time.Hour + 31*time.Minute)
		is, err := s.Get(t.Context(), "nightly")
		w.ok(err)
		c, _ := w.Get(t.Context(), "einstein")
		if is.Firing == nil || is.Firing.State != holt.FiringRunning || is.Firing.Run == "" || c.State != holt.ComputerRunning {
			t.Errorf("at night: %+v, the computer is %s", is.Firing, c.State)
		}
		time.Sleep(24 * time.Hour)
		w.wants("nightly", "03:30 exited", "03:30 running")
		time.Sleep(15 * time.Minute)
		w.wants("nightly", "03:30 exited", "03:30 exited")
		if rested := w.restedAs(); !slices.Equal(rested, []holt.ComputerState{holt.ComputerPaused, holt.ComputerPaused}) {
			t.Errorf("the computer went to states %v", rested)
		}
		if is, err = s.Get(t.Context(), "einstein@nightly"); err != nil || is.Firing != nil || is.Last.State != holt.FiringExited || is.Last.EndedAt.Sub(*is.Last.StartedAt) != 10*time.Minute {
			t.Errorf("%+v %v", is.Last, err)
		}
		if by, _ := w.was(is.Last.Run); by != "nightly" {
			t.Errorf("the run has the actor %q", by)
		}
		w.ok(s.Close())
	})
}

// TestRestoresState: after a run a computer returns to its former state, running, stopped or paused. With keep_awake it
// stays running. A computer that two schedules use returns to it when the last one has ended.
func TestRestoresState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "paused", "stopped", "running", "kept", "shared")
		for _, c := range w.computers {
			if c.Name == "stopped" || c.Name == "running" {
				c.State = holt.ComputerState(c.Name)
			}
		}
		s := w.open()
		for _, name := range []string{"paused", "stopped", "running"} {
			w.add(name, "hourly", "@hourly", "1m", nil)
		}
		w.add("kept", "hourly", "@hourly", "1m", func(s *holt.ScheduleSpec) { s.KeepAwake = true })
		w.add("shared", "first", "0 * * * *", "10m", nil)
		w.add("shared", "second", "5 * * * *", "10m", nil)
		time.Sleep(time.Hour + 14*time.Minute)
		want := map[string]holt.ComputerState{"paused": holt.ComputerPaused, "stopped": holt.ComputerStopped, "running": holt.ComputerRunning, "kept": holt.ComputerRunning, "shared": holt.ComputerRunning}
		for range 2 {
			for name, state := range want {
				if c, err := w.Get(t.Context(), name); err != nil || c.State != state {
					t.Errorf("%s is %s", name, c.State)
				}
			}
			time.Sleep(5 * time.Minute)
			want["shared"] = holt.ComputerPaused
		}
		_, err := s.Get(t.Context(), "hourly")
		if holt.CodeOf(err) != holt.Conflict || !strings.Contains(holt.AsError(err).Hint, "COMPUTER@hourly") {
			t.Errorf("a name of four schedules: %v", err)
		}
		w.ok(s.Close())
	})
}

// TestMissed: due times while no daemon runs, or while the host is suspended, follow the schedule's policy.
func TestMissed(t *testing.T) {
	for _, sleeps := range []bool{false, true} {
		t.Run(fmt.Sprint("sleeps ", sleeps), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "einstein")
				s := w.open()
				for _, policy := range []holt.MissedPolicy{holt.MissedSkip, holt.MissedOnce, holt.MissedAll} {
					w.add("einstein", string(policy), "0 * * * *", "1m", func(s *holt.ScheduleSpec) { s.Missed = policy })
				}
				w.add("einstein", "often", "* * * * *", "1s", func(s *holt.ScheduleSpec) { s.Missed = holt.MissedAll })
				_, err := s.Update(t.Context(), "often", holt.ScheduleChange{Enabled: new(bool)}, "")
				w.ok(err)
				time.Sleep(90 * time.Minute)
				if sleeps {
					w.jump(4 * time.Hour)
				} else {
					w.ok(s.Close())
					time.Sleep(4 * time.Hour)
					s = w.open()
				}
				time.Sleep(10 * time.Minute) // 05:40
				w.wants("skip", "01:00 exited", "02:00-05:00 4 missed")
				w.wants("once", "01:00 exited", "02:00-04:00 3 missed", "05:00 exited")
				w.wants("all", "01:00 exited", "02:00 exited", "03:00 exited", "04:00 exited", "05:00 exited")
				w.wants("often") // due times while the schedule is disabled do not count as missed
				on := true
				_, err = s.Update(t.Context(), "often", holt.ScheduleChange{Enabled: &on}, "")
				w.ok(err)
				w.jump(time.Hour)
				time.Sleep(5 * time.Minute)
				if got := w.tells("often"); len(got) < holt.MostMadeUp+1 || !strings.HasSuffix(got[0], " missed") || slices.ContainsFunc(got[1:], func(s string) bool { return strings.Contains(s, "missed") }) {
					t.Errorf("an hour of minutes: %q", got)
				}
				w.ok(s.Close())
			})
		})
	}
}

// TestClock: a short absence of the daemon misses nothing. After a small step back of the clock no due time fires twice;
// after a large one the schedules follow the new time.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein")
		s := w.open()
		w.add("einstein", "hourly", "0 * * * *", "1s", func(s *holt.ScheduleSpec) { s.Missed = holt.MissedSkip })
		time.Sleep(59 * time.Minute)
		w.ok(s.Close())
		time.Sleep(2 * time.Minute)
		s = w.open()
		time.Sleep(2 * time.Minute) // 01:03
		w.wants("hourly", "01:00 exited")
		w.jump(-30 * time.Minute)
		time.Sleep(31 * time.Minute)
		w.wants("hourly", "01:00 exited")
		w.jump(40 * 24 * time.Hour)
		time.Sleep(2 * time.Minute)
		w.jump(-40 * 24 * time.Hour)
		time.Sleep(time.Hour)
		if got := w.tells("hourly"); len(got) != 3 || got[2] != "02:00 exited" {
			t.Errorf("after a large step back: %q", got)
		}
		w.ok(s.Close())
	})
}

func TestOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein")
		s := w.open()
		for _, policy := range []holt.OverlapPolicy{holt.OverlapSkip, holt.OverlapQueue, holt.OverlapReplace} {
			w.add("einstein", string(policy), "*/10 * * * *", "25m", func(s *holt.ScheduleSpec) { s.Overlap = policy })
		}
		_, err := s.Run(t.Context(), "skip", "")
		w.ok(err)
		_, err = s.Run(t.Context(), "skip", "")
		if holt.CodeOf(err) != holt.Conflict {
			t.Errorf("run while it runs: %v", err)
		}
		time.Sleep(41 * time.Minute)
		w.wants("skip", "00:00 exited", "00:10 skipped", "00:20 skipped", "00:30 running", "00:40 skipped")
		w.wants("queue", "00:10 exited", "00:20 running", "00:30 skipped", "00:40 queued")
		w.wants("replace", "00:10 exited", "00:20 exited", "00:30 exited", "00:40 running")
		for _, f := range []int{1, 2} { // SIGTERM, then SIGKILL
			list, err := s.History(t.Context(), "replace", 0)
			w.ok(err)
			if _, signals := w.was(list[f].Run); list[f].ExitCode != 137 || !strings.Contains(list[f].Reason, "replaced by") || !slices.Equal(signals, []string{"SIGTERM", "SIGKILL"}) {
				t.Errorf("replaced: %+v", list[f])
			}
		}
		time.Sleep(20 * time.Minute)
		w.wants("queue", "00:10 exited", "00:20 exited", "00:30 skipped", "00:40 running", "00:50 skipped", "01:00 skipped")
		w.ok(s.Close())
	})
}

// TestFails: a firing that fails to start has a reason, and the next due time tries again.
func TestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein")
		s := w.open()
		w.add("einstein", "hourly", "@hourly", "1m", nil)
		w.refuses(holt.Errorf(holt.OutOfSpace, "the disk is full").WithHint("make room"))
		f, err := s.Run(t.Context(), "hourly", "key")
		if err != nil || f.State != holt.FiringFailed || f.Reason != "the disk is full (make room)" || f.Run != "" {
			t.Errorf("%+v %v", f, err)
		}
		if again, err := s.Run(t.Context(), "hourly", "key"); err != nil || again.Due != f.Due {
			t.Errorf("repeated: %+v %v", again, err)
		}
		w.refuses(nil)
		time.Sleep(70 * time.Minute)
		w.wants("hourly", "00:00 failed", "01:00 exited")
		w.ok(s.Close())
	})
}

// TestKilled: if the daemon is killed at any step the run starts once, and the computer returns to its state.
func TestKilled(t *testing.T) {
	for _, point := range []string{"schedule/fired", "schedule/prepared", "schedule/started", "schedule/ended"} {
		for _, policy := range []holt.MissedPolicy{holt.MissedSkip, holt.MissedOnce} {
			for _, away := range []time.Duration{time.Minute, 5 * time.Hour} {
				t.Run(fmt.Sprint(point, policy, away), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, "einstein")
						w.fatal(func(p string) bool { return p == point })
						s := w.open()
						w.add("einstein", "nightly", "0 3 * * *", "10m", func(s *holt.ScheduleSpec) { s.Missed = policy })
						<-w.dead
						w.ok(s.Close())
						w.fatal(nil)
						time.Sleep(away)
						s = w.open()
						time.Sleep(20 * time.Minute)
						want, runs := "03:00 exited", 1
						if policy == holt.MissedSkip && away > grace && (point == "schedule/fired" || point == "schedule/prepared") {
							want, runs = "03:00 missed", 0
						}
						w.wants("nightly", want)
						if c, _ := w.Get(t.Context(), "einstein"); w.begun() != runs || c.State != holt.ComputerPaused {
							t.Errorf("%d runs, the computer is %s", w.begun(), c.State)
						}
						w.ok(s.Close())
					})
				})
			}
		}
	}
}

func TestVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein", "bohr")
		s := w.open()
		ctx := t.Context()
		spec := holt.ScheduleSpec{Computer: "einstein", Name: "nightly", Cron: "0 3 * * *", TimeZone: "Europe/Berlin",
			Spec: holt.RunSpec{Command: "1m", Env: map[holt.OSString]holt.OSString{"B": "hidden", "A": "1"}}}
		first, err := s.Create(ctx, spec, "key")
		w.ok(err)
		again, err := s.Create(ctx, spec, "key")
		if err != nil || again.ID != first.ID || first.Spec.Env != nil || !slices.Equal(first.Variables, holt.OSStrings{"A", "B"}) {
			t.Errorf("%+v %v", first, err)
		}
		if first.Next[0].Format(zoned) != "2000-01-01T03:00:00+01:00" {
			t.Errorf("next is %v", first.Next)
		}
		for i, bad := range []func(*holt.ScheduleSpec){
			func(s *holt.ScheduleSpec) { s.Name = "No" }, func(s *holt.ScheduleSpec) { s.Cron = "x" }, func(s *holt.ScheduleSpec) { s.TimeZone = "x" },
			func(s *holt.ScheduleSpec) { s.Missed = "x" }, func(s *holt.ScheduleSpec) { s.Overlap = "x" }, func(s *holt.ScheduleSpec) { s.Spec.Command = "" },
			func(s *holt.ScheduleSpec) { s.Spec.Stdin = true }, func(s *holt.ScheduleSpec) { s.Spec.Secrets = holt.Secrets{"A": "secret"} },
			func(s *holt.ScheduleSpec) { s.Spec.Command = holt.OSString(strings.Repeat("x", mostCommand+1)) },
		} {
			one := spec
			one.Name = "other"
			bad(&one)
			if _, err := s.Create(ctx, one, ""); holt.CodeOf(err) != holt.InvalidArgument {
				t.Errorf("%d: %v", i, err)
			}
		}
		if _, err := s.Create(ctx, spec, ""); holt.CodeOf(err) != holt.AlreadyExists {
			t.Errorf("a name in use: %v", err)
		}
		if _, err := s.Get(ctx, "bohr@nightly"); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("a name in use on another computer: %v", err)
		}
		name, cron, run := "weekly", "0 4 * * 7", holt.RunSpec{Command: "2m"}
		is, err := s.Update(ctx, "nightly", holt.ScheduleChange{Name: &name, Cron: &cron, Spec: &run}, "")
		if err != nil || is.Name != name || is.Next[0].Format(zoned) != "2000-01-02T04:00:00+01:00" || is.Variables != nil || is.ID != first.ID {
			t.Errorf("%+v %v", is, err)
		}
		w.add("bohr", "weekly", "@weekly", "1m", nil)
		if all, err := s.List(ctx, ""); err != nil || len(all) != 2 {
			t.Errorf("%+v %v", all, err)
		}
		if all, err := s.List(ctx, "bohr"); err != nil || len(all) != 1 || all[0].Computer != "bohr" {
			t.Errorf("%+v %v", all, err)
		}
		w.ok(s.Delete(ctx, "einstein@weekly", "gone"))
		w.ok(s.Delete(ctx, "einstein@weekly", "gone"))
		if _, err := s.History(ctx, "einstein@weekly", 0); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("deleted: %v", err)
		}
		for i := range mostOfComputer - 1 {
			w.add("bohr", fmt.Sprint("s-", i), "@weekly", "1m", nil)
		}
		if _, err := s.Create(ctx, holt.ScheduleSpec{Computer: "bohr", Name: "more", Cron: "@daily", Spec: run}, ""); holt.CodeOf(err) != holt.TooMany {
			t.Errorf("more than the maximum: %v", err)
		}
		w.ok(s.Close())
	})
}

// TestHistoryIsBounded: the number of firings is bounded. If a schedule is deleted during its run, the computer returns
// to its state after the run and no row is left.
func TestHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein")
		s := w.open()
		w.add("einstein", "often", "* * * * *", "1s", nil)
		time.Sleep((keptFirings + 50) * time.Minute)
		if got := w.tells("often"); len(got) != keptFirings || !strings.HasSuffix(got[0], "exited") {
			t.Errorf("%d firings: %q", len(got), got)
		}
		w.add("einstein", "long", "@yearly", "1h", nil)
		_, err := s.Run(t.Context(), "long", "")
		w.ok(err)
		w.ok(s.Delete(t.Context(), "often", ""))
		w.ok(s.Delete(t.Context(), "long", ""))
		time.Sleep(30 * time.Minute)
		if c, _ := w.Get(t.Context(), "einstein"); c.State != holt.ComputerRunning {
			t.Errorf("during the run: %s", c.State)
		}
		time.Sleep(31 * time.Minute)
		if c, _ := w.Get(t.Context(), "einstein"); c.State != holt.ComputerPaused {
			t.Errorf("after it: %s", c.State)
		}
		w.ok(s.Close())
		w.ok(w.d.Read(t.Context(), func(tx *db.Tx) error {
			left, err := firings(tx, ``)
			if len(left) != 0 {
				t.Errorf("left: %+v", left)
			}
			return err
		}))
	})
}
