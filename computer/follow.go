package computer

import (
	"context"
	"time"

	"holt"
	"holt/agent"
	"holt/db"
	"holt/workspace"
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
	broke  error // what emit returned
}

// session follows until the channel breaks; done says that all was emitted.
func (f *follower) session(ctx context.Context) (done bool, err error) {
	run, err := f.r.get(ctx, f.id)
	if err != nil {
		return false, err
	}
	l := f.r.s.live(run.ComputerID)
	if l == nil {
		if run.State != holt.RunRunning {
			return true, f.exit(run)
		}
		return false, f.r.s.settled(ctx, run.ComputerID)
	}
	client, err := l.agent(ctx, l.limits.Reconnect)
	if err != nil {
		if ended(ctx, l, 0) {
			return false, f.r.s.settled(ctx, run.ComputerID)
		}
		return false, err
	}
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
		return false, err
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
			f.r.s.recordExit(*e.Run)
		}
		run, err := f.r.get(context.Background(), f.id)
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
		if err := f.r.s.lose(ctx, `id = ?2`, f.id); err != nil {
			return err
		}
		var err error
		if run, err = f.r.get(ctx, f.id); err != nil {
			return err
		}
	}
	return f.exit(run)
}

// settled waits for the verb that is at work on a computer. If its machine
// can then not be reached though it should run, that is the error.
func (s *Store) settled(ctx context.Context, id holt.ComputerID) error {
	r, unlock, err := s.hold(ctx, string(id))
	if err != nil {
		return err
	}
	unlock()
	if r.State == holt.ComputerRunning && s.live(id) == nil {
		if s.ctx.Err() != nil {
			return ending()
		}
		return unreachable(r)
	}
	return nil
}

// attendEvery is how often the guest is asked whether runs have ended. It keeps
// what it knows of an ended run for at least 10 minutes.
const attendEvery = time.Second

// attend puts on record how runs end that nobody follows, for as long as a
// session lasts. (To follow them would carry all output over the channel.)
func (s *Store) attend(l *live, c *agent.Client) {
	tick := time.NewTicker(attendEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-c.Done():
			return
		case <-tick.C:
			s.collect(l.ctx, l, c)
		}
	}
}

// collect asks the guest once about every run that is not known to have ended.
func (s *Store) collect(ctx context.Context, l *live, c *agent.Client) {
	for _, id := range l.openRuns() {
		if _, err := s.ask(ctx, l, c, id); err != nil {
			return // the heartbeat, or the next round, finds out more
		}
	}
}

// ask asks the guest about one run, and puts its end on record.
func (s *Store) ask(ctx context.Context, l *live, c *agent.Client, id holt.RunID) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.limits.Answer)
	defer cancel()
	run, err := c.GetRun(ctx, id)
	switch {
	case holt.CodeOf(err) == holt.NotFound && !l.claimed(id):
		l.runEnded(id)
		return true, s.lose(ctx, `id = ?2`, id)
	case err != nil || run.State != holt.RunExited:
		return false, err
	}
	run.ID = id
	s.recordExit(run)
	l.runEnded(id)
	return true, nil
}

// recordExit writes down how a run ended, as the guest tells it.
func (s *Store) recordExit(run holt.Run) {
	if run.State != holt.RunExited {
		return
	}
	now := time.Now()
	ended := now
	if run.EndedAt != nil && run.EndedAt.Before(now) {
		ended = *run.EndedAt
	}
	err := s.write(context.Background(), func(tx *db.Tx) error {
		return tx.Exec(`UPDATE run SET state = 'exited', exit_code = ?2, signal = ?3, timed_out = ?4, background = ?5,
			ended = max(started, ?6) WHERE id = ?1 AND state = 'running'`,
			run.ID, run.ExitCode&0xff, clip(run.Signal), run.TimedOut, max(0, run.Background), ended.UnixNano())
	})
	if err != nil {
		s.log.Error("record end of run", "run", run.ID, "err", err)
	}
}

// lose marks running runs as lost.
func (s *Store) lose(ctx context.Context, condition string, args ...any) error {
	return s.write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE run SET state = 'lost', ended = ?1 WHERE state = 'running' AND `+condition,
			append([]any{time.Now().UnixNano()}, args...)...)
	})
}

// loseRuns marks the runs of a machine that has ended.
func (s *Store) loseRuns(ctx context.Context, id holt.ComputerID) error {
	return s.lose(ctx, `computer = ?2`, id)
}

// reconcile compares the runs on record with those the guest has: at the start
// of every session, since a run may have ended, or a guest booted, meanwhile.
func (s *Store) reconcile(ctx context.Context, l *live, c *agent.Client) error {
	told, err := c.Runs(ctx)
	if err != nil {
		return err
	}
	has := make(map[holt.RunID]holt.Run, len(told))
	for _, run := range told {
		has[run.ID] = run
	}
	recorded, err := s.Runs().selectRuns(ctx, `WHERE computer = ? AND state = 'running'`, l.id)
	if err != nil {
		return err
	}
	for _, run := range recorded {
		guest, known := has[run.ID]
		switch {
		case known && guest.State == holt.RunExited:
			s.recordExit(guest)
		case known:
			l.runOpen(run.ID)
		case !l.claimed(run.ID):
			if err := s.lose(ctx, `id = ?2`, run.ID); err != nil {
				return err
			}
		}
	}
	l.spawn(func() { s.attend(l, c) })
	return nil
}

// writerOf turns the tag of a guest's file request into whom its change is
// attributed to. The tag is hostile text: only runs that were started in this
// very computer count.
func (s *Store) writerOf(l *live, tag string) workspace.Writer {
	if id, ok := runTag(tag); ok && s.startedHere(l, id) {
		return workspace.Writer{Kind: "run", Name: "agent", Run: string(id)}
	}
	return workspace.Writer{Kind: "system", Name: "guest"}
}
