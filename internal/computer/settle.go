package computer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"holt"
	"holt/internal/workspace"
)

// begin takes a checkpoint before a run, so that the run can be undone exactly. A full disk does
// not keep the run from starting: it may be what frees space.
func (l *live) begin(id holt.RunID) {
	if _, err := l.ws.BeginRun(string(id)); err != nil {
		l.log.Warn("no checkpoint before a run", "run", id, "err", err)
	}
}

// exited records the end of a run and settles it.
func (a *runTracker) exited(run holt.Run) {
	a.l.told(run.OutOfMemory)
	gone := a.table.exited(a.l.id, run)
	a.l.runs.forget(gone)
	a.outputs.remove(a.l.id, gone)
	a.settle(run.ID)
	a.l.runs.owe(run.ID)
}

// settle takes the checkpoint after a run, in the background, since the guest may be slow.
func (a *runTracker) settle(id holt.RunID) {
	done := a.l.runs.ended(id)
	if done == nil {
		return
	}
	if !a.l.spawn(func() { defer done(); a.l.end(id) }) {
		done() // the next checkpoint has it
	}
}

func (l *live) end(id holt.RunID) {
	flushed := l.flush(l.ctx)
	if flushed != nil && l.alive() {
		l.log.Debug("flush guest", "run", id, "err", flushed)
	}
	_, changed, err := l.ws.EndRun(l.ctx, string(id), flushed == nil)
	if changed {
		_, err = l.ws.Prune(l.ctx, l.keep)
	}
	if err != nil && l.ctx.Err() == nil {
		l.log.Warn("no checkpoint after a run", "run", id, "err", err)
	}
}

// beginWork takes the checkpoint before a terminal session.
func (l *live) beginWork(id holt.StretchID, terminal string) error {
	_, err := l.ws.BeginSession(id, terminal)
	if err != nil {
		l.log.Warn("no checkpoint before work in a terminal", "computer", l.id, "terminal", terminal, "err", err)
	}
	return err
}

// endWork takes the checkpoint after a terminal session, in the background.
func (l *live) endWork(by map[holt.StretchID]string) {
	l.spawn(func() {
		flushed := l.flush(l.ctx) == nil
		var errs []error
		for _, id := range slices.Sorted(maps.Keys(by)) {
			_, _, err := l.ws.EndSession(l.ctx, id, by[id], flushed)
			errs = append(errs, err)
		}
		_, err := l.ws.Prune(l.ctx, l.keep) // the next terminal session may have begun, with a checkpoint of its own
		if err := errors.Join(append(errs, err)...); err != nil && l.ctx.Err() == nil {
			l.log.Warn("no checkpoint after work in a terminal", "computer", l.id, "err", err)
		}
	})
}

// flush makes the guest write back what it holds of the workspace in memory, within Limits.Flush.
func (l *live) flush(ctx context.Context) error {
	client, _, fault := l.state()
	if client == nil {
		return notAnswering(cmp.Or(fault, errors.New("no answer yet")))
	}
	ctx, cancel := context.WithTimeout(ctx, l.limits.Flush)
	defer cancel()
	return client.Sync(ctx)
}

// trim makes the guest release deleted blocks of its root disk. What it cannot do in half of
// Limits.Flush is left for the next time.
func (l *live) trim(ctx context.Context) {
	client, _, _ := l.state()
	if client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.limits.Flush)
	defer cancel()
	if err := client.Trim(ctx, l.limits.Flush/2); err != nil && holt.CodeOf(err) != holt.Unsupported && l.alive() {
		l.log.Warn("trim the root disk: deleted bytes stay on the host's disk", "computer", l.id, "err", err)
	}
}

// settled waits until every run that has ended is settled.
func (l *live) settled(ctx context.Context) error {
	for _, done := range l.runs.unsettled() {
		select {
		case <-done:
		case <-ctx.Done():
			return gone(ctx)
		}
	}
	return nil
}

// Receipt returns what a run changed in the workspace. After its end it is final, unless the guest
// does not answer.
//
// Errors: NotFound, Conflict (the checkpoints around the run are gone).
func (r *Runs) Receipt(ctx context.Context, id holt.RunID) (holt.Receipt, error) {
	run, err := r.Get(ctx, id) // which finds out whether it has ended
	if err != nil {
		return holt.Receipt{}, err
	}
	c, err := r.table.find(ctx, string(run.ComputerID))
	if err != nil {
		return holt.Receipt{}, err
	}
	r.guests.Settle(ctx, c.workspaceID)
	left, err := r.snapshots.leftBy(ctx, c)
	if err != nil {
		return holt.Receipt{}, err
	}
	// What came after a snapshot that was restored is in the history of the workspace that was left.
	var empty holt.Receipt
	for i, in := range append([]holt.WorkspaceID{c.workspaceID}, left...) {
		receipt, err := r.receipt(ctx, in, id)
		if err != nil || receipt.Before != "" || receipt.Counts.Total() > 0 {
			return receipt, err
		}
		if i == 0 {
			empty = receipt
		}
	}
	return empty, nil
}

func (r *Runs) receipt(ctx context.Context, in holt.WorkspaceID, id holt.RunID) (holt.Receipt, error) {
	ws, release, err := r.cfg.Workspaces.View(ctx, in)
	if err != nil {
		return holt.Receipt{}, err
	}
	defer release()
	return workspace.History{W: ws}.Receipt(ctx, string(id))
}
