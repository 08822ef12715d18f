package workspaces

import (
	"context"
	"fmt"
	"os"
	"strings"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Delete removes a workspace with everything in it.
//
// Errors: NotFound, Conflict while a computer has it or the host has it mounted.
func (s *Store) Delete(ctx context.Context, ref, key string) error {
	_, err := idempotency.Once(ctx, s.keys, idempotency.Call[struct{}]{
		Key: key, Method: "workspace.delete", Request: ref,
		Act: func(ctx context.Context, claim *idempotency.Claim) (struct{}, error) {
			return struct{}{}, s.delete(ctx, ref, claim)
		},
		// The half-deleted workspace was removed when the daemon started.
		Again: func(context.Context, string) (struct{}, error) { return struct{}{}, nil },
	})
	return err
}

func (s *Store) delete(ctx context.Context, ref string, claim *idempotency.Claim) error {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return err
	}
	if err := s.finishArtifacts(ctx, r.id); err != nil {
		return err
	}
	s.mounts.changing.Lock()
	defer s.mounts.changing.Unlock()
	c, has, err := s.having(ctx, r.id)
	if err != nil {
		return err
	}
	if has {
		return holt.Errorf(holt.Conflict, "the workspace %s belongs to the computer %s", r.name, c.Name).
			WithHint("holt computer delete %s removes both", c.Name)
	}
	if err := s.keepsSnapshots(ctx, r); err != nil {
		return err
	}
	if err := s.Unmounted(ctx, r.id); err != nil {
		return err
	}
	err = s.table.change(ctx, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(r.id)); err != nil {
			return err
		}
		return tx.Exec(`UPDATE workspace SET state = 'deleting' WHERE id = ?`, r.id)
	})
	if err != nil {
		return err
	}
	return s.remove(context.WithoutCancel(ctx), r.id) // a delete that has begun is finished
}

// keepsSnapshots returns Conflict if a computer has snapshots in the workspace.
func (s *Store) keepsSnapshots(ctx context.Context, r row) error {
	if s.guests == nil {
		return nil
	}
	c, keeps, err := s.guests.Keeping(ctx, r.id)
	if err != nil || !keeps {
		return err
	}
	return holt.Errorf(holt.Conflict, "the workspace %s holds snapshots of the computer %s", r.name, c.Name).
		WithHint("delete them first, and the workspace is deleted with the last one: holt snapshot list %s, holt snapshot delete", c.Name)
}

// finishArtifacts stores what was published from a workspace that is to be deleted. It may take as long as there are bytes, so
// it is called before locks are taken, and again when nothing more can be published.
func (s *Store) finishArtifacts(ctx context.Context, id holt.WorkspaceID) error {
	if s.artifacts == nil {
		return nil
	}
	return s.artifacts.Finish(ctx, id)
}

// remove deletes the files of a workspace, its space in the archive, and its row. It is no error if some of
// them do not exist.
func (s *Store) remove(ctx context.Context, id holt.WorkspaceID) error {
	err := s.table.change(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(`UPDATE workspace SET parent_was = coalesce((SELECT name FROM workspace p WHERE p.id = ?1), '') WHERE parent = ?1`, id); err != nil {
			return err
		}
		return tx.Exec(`UPDATE workspace SET state = 'deleting' WHERE id = ?`, id)
	})
	if err != nil && !hosterror.IsFull(err) {
		return err
	}
	if err := s.finishArtifacts(ctx, id); err != nil { // nothing more is published from it
		return err
	}
	gone := s.open.drop(id)
	if err := os.RemoveAll(s.open.path(id)); err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	if err := s.open.base.Archive.Drop(ctx, string(id)); err != nil && !hosterror.IsFull(err) {
		return fmt.Errorf("remove workspace from the archive: %w", err)
	}
	if err := s.table.write(ctx, `DELETE FROM workspace WHERE id = ?`, id); err != nil {
		return err
	}
	gone() // now the row is gone, too
	return nil
}

// Remove deletes the workspace of a computer; see [holt/internal/computer.Workspaces].
func (s *Store) Remove(ctx context.Context, id holt.WorkspaceID) error {
	if err := s.finishArtifacts(ctx, id); err != nil {
		return err
	}
	s.mounts.changing.Lock()
	defer s.mounts.changing.Unlock()
	if err := s.Unmounted(ctx, id); err != nil {
		return err
	}
	return s.remove(ctx, id)
}

// Unmounted returns Conflict while the host has a workspace mounted.
func (s *Store) Unmounted(_ context.Context, id holt.WorkspaceID) error {
	var dirs []string
	for _, m := range s.mounts.of(id) {
		dirs = append(dirs, m.Dir)
	}
	if len(dirs) == 0 {
		return nil
	}
	return holt.Errorf(holt.Conflict, "the workspace is mounted on %s", strings.Join(dirs, ", ")).
		WithHint("unmount it first: holt workspace unmount %s", dirs[0])
}
