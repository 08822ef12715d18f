package computer

import (
	"cmp"
	"context"

	"holt"
	"holt/db"
	"holt/workspace"
)

// SizeSchema says how much the workspaces that computers were made with may hold.
const SizeSchema = `
ALTER TABLE computer ADD COLUMN workspace_mb INTEGER NOT NULL DEFAULT 0; -- MiB, of a workspace that goes with the computer; 0: it has no bound, or another's
`

// bytesPerFile is how many bytes of a workspace's size there are for each file that it may have, as ext4 has it, and
// fewestFiles how many it may have whatever its size.
const (
	bytesPerFile = 16 << 10
	fewestFiles  = 1 << 14
)

// WorkspaceQuota is what bounds a workspace of a size in MiB; 0: of the default one.
func WorkspaceQuota(sizeMB int) holt.Quota {
	bytes := int64(cmp.Or(sizeMB, holt.DefaultWorkspaceMB)) * mib
	return holt.Quota{Bytes: bytes, Files: max(fewestFiles, bytes/bytesPerFile)}
}

// workspaceMB is how much a computer's new workspace may hold, MiB: what was asked for, or the default.
func workspaceMB(spec holt.ComputerSpec) (int, error) {
	switch {
	case spec.WorkspaceSizeMB < 0 || spec.WorkspaceSizeMB > mostDiskSize:
		return 0, holt.Errorf(holt.InvalidArgument, "a workspace cannot have %d MiB", spec.WorkspaceSizeMB).WithHint("give at most %d; holt workspace quota takes the bound away", mostDiskSize)
	case spec.Workspace == "":
		return cmp.Or(spec.WorkspaceSizeMB, holt.DefaultWorkspaceMB), nil
	case spec.WorkspaceSizeMB != 0:
		return 0, holt.Errorf(holt.InvalidArgument, "the workspace %s is there, and has the size that it has", spec.Workspace).
			WithHint("holt workspace quota %s --max-bytes changes it", spec.Workspace)
	}
	return 0, nil
}

// Bounded says that a workspace may hold so many bytes from now on, 0 for as many as it likes, and counts it for
// the limits of whose computer it goes with.
//
// Errors: TooMany (see [table.admit]; also a workspace without a bound where a limit counts disks).
func (g *Guests) Bounded(ctx context.Context, id holt.WorkspaceID, bytes int64) error {
	return write(ctx, g.s.cfg.DB, func(tx *db.Tx) error {
		var all []record
		err := tx.Query(`SELECT `+recordColumns+` FROM computer WHERE workspace = ? AND owned`, []any{id}, func(row *db.Row) error {
			all = append(all, scanRecord(row))
			return nil
		})
		if err != nil || len(all) == 0 {
			return err
		}
		r := all[0]
		r.WorkspaceSizeMB = int(min((bytes+mib-1)/mib, mostDiskSize))
		l, err := limitOf(tx, r.Tenant)
		if err == nil && bytes == 0 && l.MaxDiskMB > 0 {
			err = holt.Errorf(holt.TooMany, "the tenant %s may have %d MiB of disks, so the workspace of its computer %s has to have a bound", r.Tenant, l.MaxDiskMB, r.Name).
				WithHint("give --max-bytes a size, or take the limit away: holt limit set --tenant %s --max-disk-mb 0", r.Tenant)
		}
		if err == nil {
			err = g.s.table.admit(tx, r)
		}
		if err != nil {
			return err
		}
		return tx.Exec(`UPDATE computer SET workspace_mb = ? WHERE id = ?`, r.WorkspaceSizeMB, r.ID)
	})
}

// noSpace says of a guest's error that there is no room what makes some.
func (f *Files) noSpace(ctx context.Context, computer string, err error) error {
	if holt.CodeOf(err) != holt.OutOfSpace {
		return err
	}
	r, lost := f.s.table.find(ctx, computer)
	if lost != nil {
		return err
	}
	return holt.AsError(err).WithHint("remove something, or make room: below %s with holt workspace quota %s --max-bytes, on its root disk with holt computer resize %s --disk-size-mb",
		workspace.Home, r.Workspace, r.Name)
}
