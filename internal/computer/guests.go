package computer

import (
	"context"

	"holt"
)

// Guests are the computers as their workspaces see them.
type Guests struct {
	*registry
	snapshots snapshotTable
	runs      runTable
	terminals terminalTable
}

// Guests returns the guests of all workspaces.
func (s *Store) Guests() *Guests { return s.guests }

// Having returns the computer that has a workspace; ok is false if none does.
func (g *Guests) Having(ctx context.Context, id holt.WorkspaceID) (c holt.Computer, ok bool, err error) {
	r, ok, err := g.table.byWorkspace(ctx, id)
	return r.Computer, ok, err
}

// Keeping returns a computer that has snapshots in a workspace, which may be another
// than its own since a restore; ok is false if none has.
func (g *Guests) Keeping(ctx context.Context, id holt.WorkspaceID) (c holt.Computer, ok bool, err error) {
	list, err := g.table.list(ctx, `WHERE id IN (SELECT computer FROM snapshot WHERE workspace = ?)`, id)
	if err != nil || len(list) == 0 {
		return c, false, err
	}
	return list[0].Computer, true, nil
}

// Snapshot returns the snapshot that a checkpoint of a workspace is part of; ok is false
// if it is of none.
func (g *Guests) Snapshot(ctx context.Context, id holt.WorkspaceID, checkpoint string) (m holt.Snapshot, ok bool, err error) {
	list, err := g.snapshots.list(ctx, `WHERE workspace = ? AND id = ? AND state <> 'deleting'`, id, checkpoint)
	if err != nil || len(list) == 0 {
		return m, false, err
	}
	return list[0].Snapshot, true, nil
}

// at returns the machine that has a workspace, nil if none does.
func (g *Guests) at(ctx context.Context, id holt.WorkspaceID) *live {
	r, ok, err := g.table.byWorkspace(ctx, id)
	if err != nil || !ok {
		return nil
	}
	return g.machines.live(r.ID)
}

// Flush has the computer that runs with a workspace write what its programs
// hold of it in memory, within [Limits].Flush. Without one there is nothing to
// write.
func (g *Guests) Flush(ctx context.Context, id holt.WorkspaceID) error {
	l := g.at(ctx, id)
	if l == nil || !l.running() {
		return nil
	}
	return l.flush(ctx)
}

// Settle waits until what ended runs changed in a workspace has its checkpoints,
// for as long as a guest may take for that.
func (g *Guests) Settle(ctx context.Context, id holt.WorkspaceID) {
	l := g.at(ctx, id)
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.limits.Flush)
	defer cancel()
	if err := l.settled(ctx); err != nil {
		l.log.Debug("not waited for what runs changed", "computer", l.id, "err", err)
	}
}

// Rest ends the terminal session in the terminals of a workspace: what they change
// from now on is undone apart from what they changed before. The caller is about to take
// a checkpoint, which is the one after the terminal session; if it takes none it calls end.
func (g *Guests) Rest(ctx context.Context, id holt.WorkspaceID) (end func()) {
	if l := g.at(ctx, id); l != nil {
		return l.terminals.work.rest()
	}
	return func() {}
}

// Hold waits for whoever changes the computer that has a workspace, and keeps others from it until done is called.
func (g *Guests) Hold(ctx context.Context, id holt.WorkspaceID) (done func(), err error) {
	r, ok, err := g.table.byWorkspace(ctx, id)
	if err != nil || !ok {
		return func() {}, err
	}
	return g.machines.lock(ctx, r.ID)
}

// Running says whether a run goes on in the computer that has a workspace, or will when that is resumed.
func (g *Guests) Running(ctx context.Context, id holt.WorkspaceID, run holt.RunID) (bool, error) {
	r, ok, err := g.table.byWorkspace(ctx, id)
	if err != nil || !ok {
		return false, err
	}
	list, err := g.runs.list(ctx, `WHERE id = ? AND computer = ? AND state = ?`, run, r.ID, holt.RunRunning)
	return len(list) > 0, err
}

// Terminals returns the terminals of a name that the computer with a workspace
// has, or had as long as that is on record.
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
