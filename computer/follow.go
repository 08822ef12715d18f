package computer

import (
	"context"

	"holt"
)

// Follow calls emit with the run's output from offset on, as it comes, and at
// last with its exit. It goes on when the channel to the guest breaks and comes
// back. Output that the guest no longer has shows as a gap; after the machine
// ended only the exit is left. An error of emit ends it and is returned.
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
	at     *live // the machine that is followed
	broke  error // what emit returned
}

// session follows until the channel breaks; done says that all was emitted.
func (f *follower) session(ctx context.Context) (done bool, err error) {
	run, err := f.r.s.runs.get(ctx, f.id)
	if err != nil {
		return false, err
	}
	l := f.r.s.seats.live(run.ComputerID)
	if l == nil {
		if run.State != holt.RunRunning {
			return true, f.exit(run)
		}
		backoff(ctx, 2) // it may be paused, and whoever only follows does not wake it
		return false, waking{f.r.s}.settled(ctx, run.ComputerID)
	}
	client, err := l.agent(ctx, l.limits.Reconnect)
	if err != nil {
		if !l.running() {
			return false, waking{f.r.s}.settled(ctx, run.ComputerID)
		}
		return false, err
	}
	f.at = l
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
	case holt.CodeOf(err) == holt.NotFound:
		return true, f.unknown(ctx, run)
	default:
		return false, ahead(err)
	}
}

// event passes one of the guest's events on. What a run's record says of it is
// ours; only how it ended is the guest's.
func (f *follower) event(e holt.RunEvent) error {
	switch e.Kind {
	case holt.RunStdout, holt.RunStderr:
		f.offset = e.Offset + int64(len(e.Data))
	case holt.RunGap:
		f.offset = e.Offset + e.Dropped
	case holt.RunExit:
		if e.Run != nil {
			e.Run.ID = f.id
			f.at.attendant.exited(*e.Run)
		}
		run, err := f.r.s.runs.get(context.Background(), f.id)
		if err != nil {
			return err
		}
		e.Run = &run
	}
	f.broke = f.emit(e)
	return f.broke
}

func (f *follower) exit(run holt.Run) error {
	return f.emit(holt.RunEvent{Kind: holt.RunExit, Offset: f.offset, Run: &run})
}

// unknown ends the following of a run that the guest does not know: it ended
// long ago, or the agent was started anew.
func (f *follower) unknown(ctx context.Context, run holt.Run) error {
	if run.State == holt.RunRunning {
		if err := f.r.s.runs.lose(ctx, `id = ?2`, f.id); err != nil {
			return err
		}
		var err error
		if run, err = f.r.s.runs.get(ctx, f.id); err != nil {
			return err
		}
	}
	return f.exit(run)
}
