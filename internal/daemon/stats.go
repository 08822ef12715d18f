package daemon

import (
	"context"

	"holt"
	"holt/internal/workspaces"
)

// stats are the resources of the host that computers use, with the sizes of their workspaces.
type stats struct{ d *Daemon }

// Get returns the stats of a computer.
func (s stats) Get(ctx context.Context, ref string) (holt.ComputerStats, error) {
	one, err := s.d.computers.Stats(ctx, ref)
	if err != nil {
		return one, err
	}
	all := []holt.ComputerStats{one}
	err = s.weigh(ctx, all)
	return all[0], err
}

// List returns the stats of all computers.
func (s stats) List(ctx context.Context) ([]holt.ComputerStats, error) {
	all, err := s.d.computers.AllStats(ctx)
	if err != nil {
		return nil, err
	}
	return all, s.weigh(ctx, all)
}

// weigh adds the sizes of the workspaces.
func (s stats) weigh(ctx context.Context, all []holt.ComputerStats) error {
	sizes, err := s.d.workspaces.Sizes(ctx)
	if err != nil {
		return err
	}
	of, err := s.d.computers.List(ctx)
	if err != nil {
		return err
	}
	bytes := map[holt.ComputerID]int64{}
	for _, c := range of {
		bytes[c.ID] = sizes[workspaces.TenantName{Tenant: c.Tenant, Name: c.Workspace}]
	}
	for i := range all {
		all[i].WorkspaceBytes = bytes[all[i].ComputerID]
	}
	return nil
}
