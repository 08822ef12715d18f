package computer

import (
	"context"

	"holt"
)

// Guests answers what workspaces ask of the computers that use them.
type Guests struct {
	*registry
	snapshots snapshotTable
	runs      runTable
	terminals terminalTable
}

func (s *Store) Guests() *Guests { return s.guests }

// Having returns the computer that uses a workspace; ok is false if none does.
func (g *Guests) Having(ctx context.Context, id holt.WorkspaceID) (c holt.Computer, ok bool, err error) {
	r, ok, err := g.table.byWorkspace(ctx, id)
	return r.Computer, ok, err
}

// Keeping returns a computer with snapshots in a workspace, which after a restore may not be its
// own; ok is false if there is none.
func (g *Guests) Keeping(ctx context.Context, id holt.WorkspaceID) (c holt.Computer, ok bool, err error) {
	list, err := g.table.list(ctx, `WHERE id IN (SELECT computer FROM snapshot WHERE workspace = ?)`, id)
	if err != nil || len(list) == 0 {
		return c, false, err
	}
	return list[0].Computer, true, nil
}

// Snapshot returns the snapshot that a checkpoint belongs to; ok is false if there is none.
func (g *Guests) Snapshot(ctx context.Context, id holt.WorkspaceID, checkpoint string) (m holt.Snapshot, ok bool, err error) {
	list, err := g.snapshots.list(ctx, `WHERE workspace = ? AND id = ? AND state <> 'deleting'`, id, checkpoint)
	if err != nil || len(list) == 0 {
		return m, false, err
	}
	return list[0].Snapshot, true, nil
}

// at returns the machine that uses a workspace, or nil.
func (g *Guests) at(ctx context.Context, id holt.WorkspaceID) *live {
	r, ok, err := g.table.byWorkspace(ctx, id)
	if err != nil || !ok {
		return nil
	}
	return g.machines.live(r.ID)
}

// Flush makes the guest of a workspace write back what its programs hold in memory, within
// [Limits].Flush. It does nothing without a guest.
func (g *Guests) Flush(ctx context.Context, id holt.WorkspaceID) error {
	l := g.at(ctx, id)
	if l == nil || !l.running() {
		return nil
	}
	return l.flush(ctx)
}

// Settle waits for the checkpoints after runs that have ended in a workspace, within
// [Limits].Flush.
func (g *Guests) Settle(ctx context.Context, id holt.WorkspaceID) {
	l := g.at(ctx, id)
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.limits.Flush)
	defer cancel()
	if err := l.settled(ctx); err != nil {
		l.log.Debug("wait for checkpoints after runs", "computer", l.id, "err", err)
	}
}

// Rest ends the terminal session of a workspace: later changes are undone apart from earlier ones.
// The caller is about to take the checkpoint that ends the session; if it takes none it calls end.
func (g *Guests) Rest(ctx context.Context, id holt.WorkspaceID) (end func()) {
	if l := g.at(ctx, id); l != nil {
		return l.terminals.work.rest()
	}
	return func() {}
}

// Hold locks the computer that uses a workspace until done is called.
func (g *Guests) Hold(ctx context.Context, id holt.WorkspaceID) (done func(), err error) {
	r, ok, err := g.table.byWorkspace(ctx, id)
	if err != nil || !ok {
		return func() {}, err
	}
	return g.machines.lock(ctx, r.ID)
}

// Running reports whether a run is running in the computer of a workspace, or will be when that is
// resumed.
func (g *Guests) Running(ctx context.Context, id holt.WorkspaceID, run holt.RunID) (bool, error) {
	r, ok, err := g.table.byWorkspace(ctx, id)
	if err != nil || !ok {
		return false, err
	}
	list, err := g.runs.list(ctx, `WHERE id = ? AND computer = ? AND state = ?`, run, r.ID, holt.RunRunning)
	return len(list) > 0, err
}

// Terminals returns the terminals of a name on record for the computer of a workspace.
func (g *Guests) Terminals(ctx context.Context, id holt.WorkspaceID, name string) (ids []holt.TerminalID, err error) {
	r, ok, err := g.table.byWorkspace(ctx, id)
	if err != nil || !ok {
		return nil, err
	}
	list, err := g.terminals.list(ctx, `WHERE computer = ? AND name = ?`, r.ID, name)
	for _, one := range list {
		ids = append(ids, one.ID)
	}
	return ids, err
}
