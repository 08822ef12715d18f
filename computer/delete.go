package computer

import (
	"context"

	"holt"
)

// Delete ends the machine and removes the computer with its root disk, and
// with its workspace, and those that restores left, if Create made that. It goes on when its caller leaves.
//
// Errors: NotFound, Conflict (its workspace is mounted on the host).
func (s *Store) Delete(ctx context.Context, ref, key string) error {
	_, err := detach(ctx, s.gate, func(ctx context.Context) (struct{}, error) {
		return Once(ctx, s.cfg.Keys, Call[struct{}]{
			Key: key, Method: "computer.delete", Request: ref,
			Act: func(ctx context.Context, claim *Claim) (struct{}, error) {
				return struct{}{}, s.delete(ctx, ref, claim)
			},
			Again: func(ctx context.Context, id string) (struct{}, error) {
				err := s.delete(ctx, id, nil)
				if holt.CodeOf(err) == holt.NotFound {
					err = nil // the call that was cut off had got that far
				}
				return struct{}{}, err
			},
		})
	})
	return err
}

func (s *Store) delete(ctx context.Context, ref string, claim *Claim) error {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return err
	}
	defer unlock()
	if r.owned {
		left, err := s.moments.leftBy(ctx, r)
		if err != nil {
			return err
		}
		for _, id := range append(left, r.workspaceID) {
			if err := s.cfg.Workspaces.Unmounted(ctx, id); err != nil {
				return err
			}
		}
	}
	r.State, r.Reason = holt.ComputerDeleting, ""
	if err := s.table.saveBound(ctx, r, claim); err != nil {
		return err
	}
	if l := s.seats.live(r.ID); l != nil && !r.owned {
		l.halt(ctx, s.cfg.Engine.Capabilities().PowerButton) // the guest writes back what it has in memory
	}
	m := &making{s: s, r: &r}
	if err := m.unmake(ctx, "delete"); err != nil {
		if ctx.Err() != nil {
			return ending() // the next daemon goes on
		}
		m.markFailed(ctx, err)
		return err
	}
	s.log.Info("computer deleted", "computer", r.ID, "name", r.Name, "workspace_kept", !r.owned)
	return nil
}

// unmake removes all there is of a computer, the last made first.
func (m *making) unmake(ctx context.Context, verb string) error {
	m.live = m.s.seats.live(m.r.ID)
	return m.back(ctx, verb, m.steps())
}
