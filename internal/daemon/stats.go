package daemon

import (
	"context"

	"holt"
)

// stats are what computers take of the host. Computers know all of it but their workspaces' size.
type stats struct{ d *Daemon }

// Get returns that of a computer.
func (s stats) Get(ctx context.Context, ref string) (holt.ComputerStats, error) {
	one, err := s.d.computers.Stats(ctx, ref)
	if err != nil {
		return one, err
	}
	all := []holt.ComputerStats{one}
	err = s.weigh(ctx, all)
	return all[0], err
}

// List returns that of all.
func (s stats) List(ctx context.Context) ([]holt.ComputerStats, error) {
	all, err := s.d.computers.AllStats(ctx)
	if err != nil {
		return nil, err
	}
	return all, s.weigh(ctx, all)
}

// weigh adds the size of the workspaces.
func (s stats) weigh(ctx context.Context, all []holt.ComputerStats) error {
	sizes, err := s.d.workspaces.sizes(ctx)
	if err != nil {
		return err
	}
	of, err := s.d.computers.List(ctx)
	if err != nil {
		return err
	}
	weighs := map[holt.ComputerID]int64{}
	for _, c := range of {
		weighs[c.ID] = sizes[workspaceOf{c.Tenant, c.Workspace}]
	}
	for i := range all {
		all[i].WorkspaceBytes = weighs[all[i].ComputerID]
	}
	return nil
}

// workspaceOf names a workspace among all: the tenant and the name.
type workspaceOf struct{ tenant, name string }

// sizes are the bytes of content of all workspaces.
func (w *Workspaces) sizes(ctx context.Context) (map[workspaceOf]int64, error) {
	rows, err := w.table.rows(ctx, `WHERE state = 'ready'`)
	if err != nil {
		return nil, err
	}
	sizes := make(map[workspaceOf]int64, len(rows))
	for _, r := range rows {
		if now, open := w.shelf.figures(r.id); open {
			r.bytes = now.Bytes
		}
		sizes[workspaceOf{r.tenant, r.name}] = r.bytes
	}
	return sizes, nil
}
