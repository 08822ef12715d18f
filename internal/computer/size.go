package computer

import (
	"context"

	"holt"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// bytesPerFile is how many bytes of a workspace's size there are for each file that it may have, as ext4 has it, and
// fewestFiles how many it may have whatever its size.
const (
	bytesPerFile = 16 << 10
	fewestFiles  = 1 << 14
)

// WorkspaceQuota is the quota of a workspace of a size in MiB; 0: no limit.
func WorkspaceQuota(sizeMB int) holt.Quota {
	if sizeMB == 0 {
		return holt.Quota{}
	}
	bytes := int64(sizeMB) * mib
	return holt.Quota{Bytes: bytes, Files: max(fewestFiles, bytes/bytesPerFile)}
}

func checkWorkspaceSize(spec holt.ComputerSpec) error {
	switch {
	case spec.WorkspaceSizeMB < 0 || spec.WorkspaceSizeMB > mostDiskSize:
		return holt.Errorf(holt.InvalidArgument, "invalid workspace size %d MiB", spec.WorkspaceSizeMB).WithHint("the maximum is %d; omit it for no limit", mostDiskSize)
	case spec.Workspace != "" && spec.WorkspaceSizeMB != 0:
		return holt.Errorf(holt.InvalidArgument, "the workspace %s exists already, so its size cannot be given", spec.Workspace).
			WithHint("change its size with holt workspace quota %s --max-bytes", spec.Workspace)
	}
	return nil
}

// bound gives the workspace of a new computer a size, as part of a transaction, if its tenant has a
// limit for disks: the default size, or that of the parent's workspace, which must have one.
func (r *record) bound(tx *db.Tx) error {
	if !r.owned || r.WorkspaceSizeMB != 0 {
		return nil
	}
	l, err := limitOf(tx, r.Tenant)
	if err != nil || l.MaxDiskMB == 0 {
		return err
	}
	if r.Parent != nil {
		return boundless(*r, l)
	}
	r.WorkspaceSizeMB = holt.DefaultWorkspaceMB
	return nil
}

// boundless is the error of a workspace without a size limit.
func boundless(r record, l holt.Limit) error {
	return holt.Errorf(holt.TooMany, "the tenant %s is limited to %d MiB of disks, and the workspace of its computer %s has no size limit", r.Tenant, l.MaxDiskMB, r.Name).
		WithHint("set one with holt workspace quota NAME --max-bytes SIZE, which forks inherit; or remove the tenant's limit with holt limit set --tenant %s --max-disk-mb 0", r.Tenant)
}

// Bounded records the new size limit of a workspace, 0 for none, and counts it for the tenant of
// its computer.
//
// Errors: TooMany (see [table.admit]; also no limit where the tenant has one for disks).
func (g *Guests) Bounded(ctx context.Context, id holt.WorkspaceID, bytes int64) error {
	return write(ctx, g.cfg.DB, func(tx *db.Tx) error {
		all, err := selectRecords(tx, `WHERE workspace = ? AND owned`, id)
		if err != nil || len(all) == 0 {
			return err
		}
		r := all[0]
		r.WorkspaceSizeMB = int(min((bytes+mib-1)/mib, mostDiskSize))
		l, err := limitOf(tx, r.Tenant)
		if err == nil && bytes == 0 && l.MaxDiskMB > 0 {
			err = boundless(r, l)
		}
		if err == nil {
			err = g.table.admit(tx, r)
		}
		if err != nil {
			return err
		}
		return tx.Exec(`UPDATE computer SET workspace_mb = ? WHERE id = ?`, r.WorkspaceSizeMB, r.ID)
	})
}

// noSpace adds to a guest's OutOfSpace error how to get more space.
func (f *Files) noSpace(ctx context.Context, computer string, err error) error {
	if holt.CodeOf(err) != holt.OutOfSpace {
		return err
	}
	r, lost := f.table.find(ctx, computer)
	if lost != nil {
		return err
	}
	return holt.AsError(err).WithHint("remove some files, or add space: below %s with holt workspace quota %s --max-bytes, on the root disk with holt computer resize %s --disk-size-mb",
		workspace.Home, r.Workspace, r.Name)
}
