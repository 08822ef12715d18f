package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holt"
	"holt/client"
	"holt/internal/daemon"
)

// wroteReport checks who wrote a file of a workspace.
func wroteReport(t *testing.T, rows [][]any, run holt.RunID) {
	t.Helper()
	if len(rows) != 1 || fmt.Sprint(rows[0]...) != fmt.Sprint("nightly", "schedule", string(run)) {
		t.Errorf("who wrote the report: %v, in the run %s", rows, run)
	}
}

const whoWrote = `SELECT writer, writer_kind, run FROM files WHERE path = '/report.md'`

// A schedule's run on a paused computer writes in its name, and the computer is paused again.
func TestScheduleOfPaused(t *testing.T) {
	d := up(t, dozes(t, home(t)))
	c := create(t, d, holt.ComputerSpec{Name: "einstein", IdleTimeout: holt.NeverIdle})
	ctx := t.Context()
	_, err := d.Nouns().Schedules.Create(ctx, holt.ScheduleSpec{Computer: "einstein", Name: "nightly", Cron: "0 3 * * *",
		Spec: holt.RunSpec{Command: "echo begun > begun; until [ -e goon ]; do sleep 0.1; done; echo $WHAT > report.md", Env: map[holt.OSString]holt.OSString{"WHAT": "fine"}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Computers().Memory().Pause(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	fired, err := d.Nouns().Schedules.Run(ctx, "nightly", "")
	if err != nil || fired.State != holt.FiringRunning {
		t.Fatalf("%+v %v", fired, err)
	}
	if _, err := d.Nouns().Schedules.Run(ctx, "nightly", ""); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("again, while it runs: %v", err)
	}
	if woken, err := d.Computers().Get(ctx, "einstein"); err != nil || !strings.Contains(woken.WokenBy, "schedule") {
		t.Errorf("woken by %q, %v", woken.WokenBy, err)
	}
	succeeds(t, d, "einstein", "until [ -e begun ]; do sleep 0.1; done")
	succeeds(t, d, "einstein", "touch goon")
	rested(t, d, "einstein", holt.ComputerPaused)
	history, err := d.Nouns().Schedules.History(ctx, "nightly", 0)
	if err != nil || len(history) != 1 || history[0].State != holt.FiringExited || history[0].Run != fired.Run || history[0].ExitCode != 0 {
		t.Errorf("%+v %v", history, err)
	}
	q, err := d.Workspaces().Query(ctx, "einstein", holt.QuerySpec{SQL: whoWrote})
	if err != nil {
		t.Fatal(err)
	}
	wroteReport(t, q.Rows, fired.Run)
	if got := read(t, d, "einstein", "/home/agent/report.md"); got != "fine\n" {
		t.Errorf("the report: %q", got)
	}
	gone, err := d.Computers().Delete(ctx, string(c.ID), "")
	if err != nil || !slices.Equal(gone.Schedules, []string{"nightly"}) {
		t.Errorf("%+v %v", gone, err)
	}
	if all, err := d.Nouns().Schedules.List(ctx, ""); err != nil || len(all) > 0 {
		t.Errorf("schedules of computers that are gone: %+v %v", all, err)
	}
}

// A schedule's run that a pause holds up goes on when another is asked for, and the computer is paused after it.
func TestScheduleThaws(t *testing.T) {
	d := up(t, dozes(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "einstein", IdleTimeout: holt.NeverIdle})
	ctx := t.Context()
	if _, err := d.Nouns().Schedules.Create(ctx, holt.ScheduleSpec{Computer: "einstein", Name: "nightly", Cron: "0 3 * * *", Spec: holt.RunSpec{Command: "until [ -e goon ]; do sleep 0.1; done"}}, ""); err != nil {
		t.Fatal(err)
	}
	if fired, err := d.Nouns().Schedules.Run(ctx, "nightly", ""); err != nil || fired.State != holt.FiringRunning {
		t.Fatalf("%+v %v", fired, err)
	}
	if _, err := d.Computers().Memory().Pause(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Nouns().Schedules.Run(ctx, "nightly", ""); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("again, while it is held up: %v", err)
	}
	awaitComputer(t, d, "einstein", func(c holt.Computer) bool { // by whom is said behind the wake
		return c.State == holt.ComputerRunning && c.WokenBy == "schedule: nightly"
	})
	succeeds(t, d, "einstein", "touch goon")
	rested(t, d, "einstein", holt.ComputerPaused)
	if history, err := d.Nouns().Schedules.History(ctx, "nightly", 0); err != nil || len(history) != 1 || history[0].State != holt.FiringExited {
		t.Errorf("%+v %v", history, err)
	}
}

// What begins in a computer that a schedule is about to have stopped again is not lost, neither before the computer is
// taken hold of nor after. One in which a terminal was left is paused.
func TestScheduleOfStopped(t *testing.T) {
	ctx := t.Context()
	cfg := dozes(t, home(t))
	var d *daemon.Daemon
	var at atomic.Value
	done := make(chan error, 1)
	at.Store("")
	cfg.Fail = func(point string) error {
		if !at.CompareAndSwap(point, "") {
			return nil
		}
		go func() { done <- runsFor(ctx, d, "sleep 1") }()
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			a, err := d.Computers().Awake(ctx, "einstein")
			if err != nil || slices.ContainsFunc(a.Uses, func(u holt.Use) bool { return u.Kind == holt.UseRun }) {
				return err
			}
		}
		return errors.New("no run begins")
	}
	d = up(t, cfg)
	create(t, d, holt.ComputerSpec{Name: "einstein", IdleTimeout: holt.NeverIdle})
	if _, err := d.Nouns().Schedules.Create(ctx, holt.ScheduleSpec{Computer: "einstein", Name: "nightly", Cron: "0 3 * * *", Spec: holt.RunSpec{Command: "true"}}, ""); err != nil {
		t.Fatal(err)
	}
	fires := func() {
		t.Helper()
		if _, err := d.Computers().Stop(ctx, "einstein", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Nouns().Schedules.Run(ctx, "nightly", ""); err != nil {
			t.Fatal(err)
		}
	}
	fires()
	rested(t, d, "einstein", holt.ComputerStopped)
	for _, point := range []string{"schedule/rest", "stop/halt"} {
		if point == "stop/halt" {
			fires()
			at.Store(point)
		} else {
			at.Store(point)
			fires()
		}
		if err := <-done; err != nil {
			t.Errorf("what begins at %s: %v", point, err)
		}
	}
	fires()
	if _, err := d.Computers().Terminals().Open(ctx, "einstein", holt.TerminalSpec{Name: "left", Command: "cat", User: "root"}, ""); err != nil {
		t.Fatal(err)
	}
	rested(t, d, "einstein", holt.ComputerPaused)
	all, err := d.Computers().Terminals().List(ctx, "einstein")
	if err != nil || len(all) == 0 || all[0].State != holt.TerminalRunning {
		t.Errorf("%+v %v", all, err)
	}
}

// runsFor is a run that has to end well.
func runsFor(ctx context.Context, d *daemon.Daemon, command holt.OSString) error {
	r, err := d.Computers().Runs().Start(ctx, "einstein", holt.RunSpec{Command: command, User: "root"}, "")
	for err == nil && r.State == holt.RunRunning {
		time.Sleep(20 * time.Millisecond)
		r, err = d.Computers().Runs().Get(ctx, r.ID)
	}
	if err == nil && (r.State != holt.RunExited || r.ExitCode != 0) {
		err = fmt.Errorf("%+v", r)
	}
	return err
}

// rested waits for a computer to rest, or to be in another state.
func rested(t *testing.T, d *daemon.Daemon, name string, as holt.ComputerState) {
	t.Helper()
	awaitComputer(t, d, name, func(c holt.Computer) bool { return c.State == as })
}

// awaitComputer waits until a computer is as wanted.
func awaitComputer(t *testing.T, d *daemon.Daemon, name string, is func(holt.Computer) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		c, err := d.Computers().Get(t.Context(), name)
		if err == nil && is(c) {
			return
		}
		if time.Now().After(end) {
			awake, _ := d.Computers().Awake(t.Context(), name)
			t.Fatalf("%s is %s, woken by %q: %+v %v", name, c.State, c.WokenBy, awake, err)
		}
	}
}

// A run of a schedule that is started at a step at which the daemon dies is started once by the next.
func TestScheduleKilled(t *testing.T) {
	for _, point := range []string{"schedule/prepared", "run/start", "schedule/started", "schedule/ended"} {
		t.Run(strings.ReplaceAll(point, "/", "-"), func(t *testing.T) {
			dir := home(t)
			p := spawn(t, dir, "")
			if _, err := p.Computers.Create(t.Context(), holt.ComputerSpec{Name: "einstein"}, ""); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Schedules.Create(t.Context(), holt.ScheduleSpec{Computer: "einstein", Name: "nightly", Cron: "0 3 * * *", Spec: holt.RunSpec{Command: "echo once >> report.md"}}, ""); err != nil {
				t.Fatal(err)
			}
			p.kill()
			p = spawn(t, dir, point)
			go p.Schedules.Run(t.Context(), "nightly", "now")
			select {
			case err := <-p.done:
				p.done <- err
			case <-time.After(patience):
				t.Fatal("the daemon lives on")
			}
			p = spawn(t, dir, "")
			ended(t, p.Client, "nightly")
			runs, err := p.Runs.List(t.Context(), "einstein", "", 10)
			if err != nil || len(runs) != 1 {
				t.Errorf("%+v %v", runs, err)
			}
			q, err := p.Workspaces.Query(t.Context(), "einstein", holt.QuerySpec{SQL: `SELECT size FROM files WHERE path = '/report.md'`})
			if err != nil || len(q.Rows) != 1 || fmt.Sprint(q.Rows[0][0]) != "5" {
				t.Errorf("the report's size: %v %v", q.Rows, err)
			}
			if gone, err := p.Computers.Delete(t.Context(), "einstein", ""); err != nil || !slices.Equal(gone.Schedules, []string{"nightly"}) {
				t.Errorf("%+v %v", gone, err)
			}
		})
	}
}

// ended waits for the last firing of a schedule to have run, and returns it.
func ended(t *testing.T, c *client.Client, schedule string) holt.Firing {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		history, err := c.Schedules.History(t.Context(), schedule, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(history) > 0 && history[0].State == holt.FiringExited {
			return history[0]
		}
		if len(history) > 0 && !history[0].State.Running() || time.Now().After(end) {
			t.Fatalf("%+v", history)
		}
	}
}

// TestScheduleAtNight: a schedule that is due fires on a paused machine, whose daemon is killed while it runs; the
// report is the schedule's, and the machine is paused again.
func TestScheduleAtNight(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein", MemoryMB: 256}, ""); err != nil {
		t.Fatal(err)
	}
	v.says("einstein", "echo kept > /run/memory")
	if _, err := v.Computers.Pause(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	// It is due at the next minute, and then not for a year.
	at := time.Now().UTC().Add(3 * time.Second).Truncate(time.Minute).Add(time.Minute)
	_, err := v.Schedules.Create(ctx, holt.ScheduleSpec{Computer: "einstein", Name: "nightly", Cron: fmt.Sprintf("%d %d %d %d *", at.Minute(), at.Hour(), at.Day(), at.Month()),
		Spec: holt.RunSpec{Command: "cat /run/memory > report.md; sleep 5"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		s, err := v.Schedules.Get(ctx, "nightly")
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v %v", s, err)
		}
		if s.Firing != nil && s.Firing.State == holt.FiringRunning {
			break
		}
	}
	v.kill()
	v.again("")
	fired := ended(t, v.Client, "nightly")
	if !fired.Due.Equal(at) || fired.ExitCode != 0 || fired.Manual {
		t.Errorf("fired: %+v", fired)
	}
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		c, err := v.Computers.Get(ctx, "einstein")
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v %v", c, err)
		}
		if c.State == holt.ComputerPaused {
			t.Logf("counts: due %v, began %v later, ended %v after that, paused %v after that", at, fired.StartedAt.Sub(at), fired.EndedAt.Sub(*fired.StartedAt), time.Since(*fired.EndedAt))
			break
		}
	}
	q, err := v.Workspaces.Query(ctx, "einstein", holt.QuerySpec{SQL: whoWrote})
	if err != nil {
		t.Fatal(err)
	}
	wroteReport(t, q.Rows, fired.Run)
	if said := v.says("einstein", "cat report.md"); said != "kept" {
		t.Errorf("the report: %q", said)
	}
	if _, err := v.Computers.Delete(ctx, "einstein", ""); err != nil {
		t.Error(err)
	}
}
