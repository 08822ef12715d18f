package servertest

import (
	"slices"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
)

func scheduleVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "einstein")
	newComputer(t, n, "bohr")
	spec := holt.ScheduleSpec{Computer: "einstein", Name: "nightly", Cron: "30 2 * * *", TimeZone: "Europe/Berlin",
		Spec: holt.RunSpec{Command: "exit 3", Env: map[holt.OSString]holt.OSString{"A": "1"}}}
	made := Must(n.Schedules.Create(ctx, spec, "make"))(t)
	if again := Must(n.Schedules.Create(ctx, spec, "make"))(t); again.ID != made.ID {
		t.Errorf("a repeated create: %+v, the first %+v", again, made)
	}
	if made.ComputerID != c.ID || made.Computer != "einstein" || !made.Enabled || len(made.Next) == 0 || made.Next[0].Before(time.Now()) || made.Spec.Env != nil ||
		!slices.Equal(made.Variables, holt.OSStrings{"A"}) || made.Missed != holt.MissedOnce || made.Overlap != holt.OverlapSkip {
		t.Errorf("made %+v", made)
	}
	_, err := n.Schedules.Create(ctx, spec, "")
	WantCode(t, err, holt.AlreadyExists)
	for _, bad := range []holt.ScheduleSpec{
		{Computer: "einstein", Name: "bad", Cron: "0 0 30 2 *", Spec: spec.Spec}, {Computer: "einstein", Name: "bad", Cron: "@daily", TimeZone: "Mars/Base", Spec: spec.Spec},
		{Computer: "einstein", Name: "Bad", Cron: "@daily", Spec: spec.Spec}, {Computer: "einstein", Name: "bad", Cron: "@daily"},
	} {
		_, err := n.Schedules.Create(ctx, bad, "")
		WantCode(t, err, holt.InvalidArgument)
	}
	spec.Computer = "nobody"
	_, err = n.Schedules.Create(ctx, spec, "")
	WantCode(t, err, holt.NotFound)
	spec.Computer = "bohr"
	other := Must(n.Schedules.Create(ctx, spec, ""))(t)
	_, err = n.Schedules.Get(ctx, "nightly")
	WantCode(t, err, holt.Conflict)
	for _, ref := range []string{"bohr@nightly", string(other.ID)} {
		if got := Must(n.Schedules.Get(ctx, ref))(t); got.ID != other.ID {
			t.Errorf("get %s: %+v", ref, got)
		}
	}
	if all := Must(n.Schedules.List(ctx, ""))(t); len(all) != 2 {
		t.Errorf("listed: %+v", all)
	}
	if all := Must(n.Schedules.List(ctx, "bohr"))(t); len(all) != 1 || all[0].ID != other.ID {
		t.Errorf("of one computer: %+v", all)
	}
	name, off := "renamed", false
	if got := Must(n.Schedules.Update(ctx, "bohr@nightly", holt.ScheduleChange{Name: &name, Enabled: &off}, ""))(t); got.Name != name || got.Enabled || len(got.Next) > 0 {
		t.Errorf("updated: %+v", got)
	}
	fire(t, n, c)
	fail(t, n.Schedules.Delete(ctx, "renamed", "delete"))
	fail(t, n.Schedules.Delete(ctx, "renamed", "delete"))
	_, err = n.Schedules.History(ctx, "renamed", 0)
	WantCode(t, err, holt.NotFound)
	if gone := Must(n.Computers.Delete(ctx, "einstein", ""))(t); !slices.Equal(gone.Schedules, []string{"nightly"}) {
		t.Errorf("deleted with its computer: %+v", gone)
	}
	if all := Must(n.Schedules.List(ctx, ""))(t); len(all) != 0 {
		t.Errorf("of computers that are gone: %+v", all)
	}
}

// fire runs a schedule of a stopped computer, which is stopped again.
func fire(t *testing.T, n nouns.Set, c holt.Computer) {
	ctx := t.Context()
	Must(n.Computers.Stop(ctx, "einstein", ""))(t)
	fired := Must(n.Schedules.Run(ctx, "nightly", "now"))(t)
	if again := Must(n.Schedules.Run(ctx, "nightly", "now"))(t); again.Due != fired.Due || fired.Run == "" || !fired.Manual {
		t.Errorf("a repeated run: %+v, the first %+v", again, fired)
	}
	if run := Must(n.Runs.Get(ctx, fired.Run))(t); run.Schedule != "nightly" || run.ComputerID != c.ID {
		t.Errorf("its run: %+v", run)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		history := Must(n.Schedules.History(ctx, "nightly", 1))(t)
		state := Must(n.Computers.Get(ctx, "einstein"))(t).State
		if len(history) == 1 && history[0].State == holt.FiringExited && state == holt.ComputerStopped {
			if f := history[0]; f.ExitCode != 3 || f.Run != fired.Run || f.EndedAt == nil || f.StartedAt == nil {
				t.Errorf("ended: %+v", f)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the computer is %s; history: %+v", state, history)
		}
	}
	if got := Must(n.Schedules.Get(ctx, "nightly"))(t); got.Firing != nil || got.Last == nil || got.Last.Run != fired.Run {
		t.Errorf("after it has run: %+v", got)
	}
}
