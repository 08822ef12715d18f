package computer

import (
	"context"
	"time"

	"holt"
	"holt/internal/guest/agent"
)

// Follow calls emit with the run's output from an offset on, as it is written, and finally with its
// exit. It survives a broken channel to the guest. Output that the guest no longer has comes from
// the saved output; what is lost shows as a gap. It returns an error of emit.
func (r *Runs) Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error {
	f := &follower{r: r, id: id, offset: max(0, offset), emit: emit}
	for {
		done, err := f.session(ctx)
		if done || err != nil {
			return err
		}
	}
}

// follower is one caller of Follow and how far it has come.
type follower struct {
	r      *Runs
	id     holt.RunID
	offset int64
	emit   func(holt.RunEvent) error
	at     *live           // the machine that is followed
	kept   []holt.RunEvent // what is kept of the output, as far as a session asked for it
	asked  bool            // it did
	broke  error           // what emit returned
	cuts   int             // how often the guest broke off while its channel stayed up
}

// mostCuts is how often the guest may break off a follow while its channel stays up, as an agent
// does that is ending.
const mostCuts = 8

// session follows until the channel breaks. done reports that everything was emitted.
func (f *follower) session(ctx context.Context) (done bool, err error) {
	run, err := f.r.rows.get(ctx, f.id)
	if err != nil {
		return false, err
	}
	l := f.r.machines.live(run.ComputerID)
	if l == nil {
		if run.State != holt.RunRunning {
			return true, f.rest(ctx, run)
		}
		if err := f.known(ctx, run); err != nil {
			return false, err
		}
		return false, f.wait(ctx, run.ComputerID)
	}
	client, err := l.agent(ctx, l.limits.Reconnect)
	if err != nil {
		if !l.running() {
			return false, f.r.waker.settled(ctx, run.ComputerID)
		}
		return false, err
	}
	f.at, f.asked = l, false
	question := l.runs.launches.ask(f.id)
	defer question.done()
	err = client.FollowRun(ctx, f.id, f.offset, f.event)
	switch {
	case err == nil:
		return true, nil
	case f.broke != nil:
		return false, f.broke
	case ctx.Err() != nil:
		return false, gone(ctx)
	case broken(client):
		return false, nil
	case agent.Ended(err) && f.cuts < mostCuts:
		backoff(ctx, f.cuts)
		f.cuts++
		return false, nil
	case holt.CodeOf(err) == holt.NotFound:
		return f.unknown(ctx, run, question)
	default:
		return false, aheadOfGuest(err)
	}
}

// wait waits until a computer without a machine gets one. Following does not wake a paused
// computer.
func (f *follower) wait(ctx context.Context, id holt.ComputerID) error {
	came := f.r.machines.coming()
	backoff(ctx, 2)
	if err := f.r.waker.settled(ctx, id); err != nil {
		return err
	}
	r, err := f.r.table.find(ctx, string(id))
	if err != nil || r.State != holt.ComputerPaused {
		return err
	}
	look := time.NewTimer(restLook)
	defer look.Stop()
	select {
	case <-came:
	case <-look.C:
	case <-ctx.Done():
		return gone(ctx)
	}
	return nil
}

// event emits an event of the guest. Of the run's record, only how it ended is the guest's to say.
func (f *follower) event(e holt.RunEvent) error {
	switch e.Kind {
	case holt.RunStdout, holt.RunStderr:
		return f.pass(e)
	case holt.RunGap:
		return f.fill(e)
	case holt.RunExit:
		if e.Run != nil {
			e.Run.ID = f.id
			f.at.runTracker.exited(*e.Run)
		}
		run, err := f.r.rows.get(context.Background(), f.id)
		if err != nil {
			return err
		}
		e.Run = &run
	}
	return f.pass(e)
}

func (f *follower) pass(e holt.RunEvent) error {
	f.offset = eventEnd(e)
	f.broke = f.emit(e)
	return f.broke
}

// fill emits saved output for a gap.
func (f *follower) fill(gap holt.RunEvent) error {
	if !f.asked {
		f.kept, f.asked = f.r.outputs.get(f.at.id, f.id), true
	}
	for len(f.kept) > 0 && eventEnd(f.kept[0]) <= gap.Offset {
		f.kept = f.kept[1:]
	}
	for _, e := range between(f.kept, gap.Offset, eventEnd(gap)) {
		if err := f.pass(e); err != nil {
			return err
		}
	}
	return nil
}

// rest emits what is saved of a run that no guest has, and its exit.
func (f *follower) rest(ctx context.Context, run holt.Run) error {
	if err := f.known(ctx, run); err != nil {
		return err
	}
	return f.pass(holt.RunEvent{Kind: holt.RunExit, Offset: f.offset, Run: &run})
}

// known emits what is saved of a run. For a run that may continue it stops at the first gap: the
// guest has more.
func (f *follower) known(ctx context.Context, run holt.Run) error {
	events, err := f.r.outputs.since(ctx, run, f.offset)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Kind == holt.RunGap && run.State == holt.RunRunning {
			return nil
		}
		if err := f.pass(e); err != nil {
			return err
		}
	}
	return nil
}

// unknown ends the follow of a run that the guest does not know, unless it is being started.
func (f *follower) unknown(ctx context.Context, run holt.Run, asked *question[holt.RunID]) (done bool, err error) {
	if run.State == holt.RunRunning {
		if lost, err := f.r.rows.lose(ctx, asked, f.id); err != nil || !lost {
			backoff(ctx, 3)
			return false, err
		}
		if run, err = f.r.rows.get(ctx, f.id); err != nil {
			return false, err
		}
	}
	return true, f.rest(ctx, run)
}
