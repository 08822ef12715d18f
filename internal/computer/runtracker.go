package computer

import (
	"context"
	"strings"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/workspace"
)

// runTracker keeps the records of one machine's runs up to date.
type runTracker struct {
	l       *live
	table   runTable
	outputs outputs
}

// trackEvery is how often the guest is asked whether runs have ended. It remembers an ended run for
// at least 10 minutes.
const trackEvery = time.Second

// attend records the ends of runs and saves their output for as long as a session lasts; with each
// heartbeat it also saves the output of running ones. (Following them would send all output over
// the channel.)
func (a *runTracker) attend(c *agent.Client) {
	tick := time.NewTicker(trackEvery)
	defer tick.Stop()
	beat := time.NewTicker(a.l.limits.Beat)
	defer beat.Stop()
	taken := map[holt.RunID]int64{}
	var full time.Time // when the host's disk last was
	for {
		select {
		case <-a.l.ctx.Done():
			return
		case <-c.Done():
			return
		case <-tick.C:
			a.collect(a.l.ctx, c)
		case <-a.l.runs.owed:
		case <-beat.C:
			if time.Since(full) >= keepEvery && !a.takeRunning(a.l.ctx, c, taken) {
				full = time.Now()
			}
		}
		if time.Since(full) >= keepEvery && !a.keep(a.l.ctx, c) {
			full = time.Now()
		}
	}
}

// glance bounds how long a call that shows records waits for a guest that may have newer ones.
const glance = 3 * time.Second

// collect asks the guest once about every run that is not known to have ended.
func (a *runTracker) collect(ctx context.Context, c *agent.Client) {
	for _, id := range a.l.runs.all() {
		if _, err := a.ask(ctx, c, id); err != nil {
			return // the heartbeat, or the next round, finds out more
		}
	}
}

// ask asks the guest about one run, and records its end.
func (a *runTracker) ask(ctx context.Context, c *agent.Client, id holt.RunID) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.l.limits.Answer)
	defer cancel()
	asked := a.l.runs.launches.ask(id)
	defer asked.done()
	run, err := c.GetRun(ctx, id)
	switch {
	case holt.CodeOf(err) == holt.NotFound:
		if ended, err = a.table.lose(ctx, asked, id); ended {
			a.settle(id)
		}
		return ended, err
	case err != nil || run.State != holt.RunExited:
		return false, err
	}
	run.ID = id
	a.exited(run)
	return true, nil
}

// reconcile compares the runs and terminals on record with those of the guest, at the start of each
// session: some may have ended, or the guest rebooted, while there was none.
func (a *runTracker) reconcile(ctx context.Context, c *agent.Client) error {
	if err := a.compare(ctx, c); err != nil {
		return err
	}
	if _, err := a.l.terminals.reconcile(ctx, c, true); err != nil {
		return err
	}
	a.l.spawn(func() { a.attend(c) })
	a.l.spawn(func() { a.l.terminals.attend(c) })
	return nil
}

// compare is reconcile for runs.
func (a *runTracker) compare(ctx context.Context, c *agent.Client) error {
	asked := a.l.runs.launches.ask()
	defer asked.done()
	told, err := c.Runs(ctx)
	if err != nil {
		return err
	}
	has := make(map[holt.RunID]holt.Run, len(told))
	var running, ended []holt.RunID
	for _, run := range told {
		if has[run.ID] = run; run.State == holt.RunRunning {
			running = append(running, run.ID)
		} else {
			ended = append(ended, run.ID)
		}
	}
	revived, err := a.table.reviveHere(ctx, a.l.id, running)
	if err != nil {
		return err
	}
	a.outputs.remove(a.l.id, revived)
	recorded, err := a.table.list(ctx, `WHERE computer = ? AND state = 'running'`, a.l.id)
	if err != nil {
		return err
	}
	for _, run := range recorded {
		guest, known := has[run.ID]
		switch {
		case known && guest.State == holt.RunExited:
			a.exited(guest)
		case known:
			a.l.runs.opened(run.ID)
		default:
			if _, err := a.table.lose(ctx, asked, run.ID); err != nil {
				return err
			}
		}
	}
	left, err := a.table.untaken(ctx, a.l.id, ended)
	if err != nil {
		return err
	}
	for _, id := range left {
		a.l.runs.owe(id)
	}
	return nil
}

// writer maps the tag of a guest's file request to the writer of the change. The tag is untrusted:
// only operations in progress and runs of this computer count.
func (a *runTracker) writer(tag string) workspace.Writer {
	if w, ok := a.l.marks.writer(tag); ok {
		return w
	}
	if w, ok := a.l.terminals.writer(tag); ok {
		return w
	}
	if w, ok := a.l.units.writer(tag); ok {
		return w
	}
	if id, ok := runTag(tag); ok {
		schedule, here := a.startedHere(id)
		switch {
		case here && schedule != "":
			return workspace.Writer{Kind: "schedule", Name: schedule, Run: string(id)}
		case here:
			return workspace.Writer{Kind: "run", Name: "agent", Run: string(id)}
		}
	}
	if strings.HasPrefix(tag, "container/") { // which one is not kept: a guest can name as many as it likes
		return workspace.Writer{Kind: "system", Name: "container"}
	}
	return workspace.Writer{Kind: "system", Name: "guest"}
}

// runTag returns the run that a tag names.
func runTag(tag string) (holt.RunID, bool) {
	rest, ok := strings.CutPrefix(tag, "run/")
	if !ok {
		return "", false
	}
	id, err := holt.ParseRunID(rest)
	return id, err == nil
}

// startedHere reports whether a run belongs to this computer, and which schedule started it.
func (a *runTracker) startedHere(id holt.RunID) (schedule string, ok bool) {
	if schedule, ok := a.l.runs.known(id); ok {
		return schedule, true
	}
	run, err := a.table.get(context.WithoutCancel(a.l.ctx), id)
	if err != nil || run.ComputerID != a.l.id {
		return "", false
	}
	a.l.runs.know(id, run.Schedule)
	return run.Schedule, true
}
