package computer

import (
	"context"

	"holt"
	"holt/internal/idempotency"
)

// Delete ends the machine and removes the computer with its root disk and, if Create made it, its
// workspace with those that restores left. Its forks stay. It completes even when its caller
// leaves; a repeat after a crash of the daemon returns only the forks.
//
// Errors: NotFound, Conflict (its workspace is mounted on the host).
func (s *Store) Delete(ctx context.Context, ref, key string) (holt.DeletedComputer, error) {
	return detach(ctx, s.shutdown, func(ctx context.Context) (holt.DeletedComputer, error) {
		return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.DeletedComputer]{
			Key: key, Method: "computer.delete", Request: ref,
			Act: func(ctx context.Context, claim *idempotency.Claim) (holt.DeletedComputer, error) {
				return s.delete(ctx, ref, claim)
			},
			Again: func(ctx context.Context, id string) (holt.DeletedComputer, error) {
				out, err := s.delete(ctx, id, nil)
				if holt.CodeOf(err) == holt.NotFound { // the call that was cut off had got that far
					out.Forks, err = s.snapshots.forksOfComputer(ctx, holt.ComputerID(id))
				}
				return out, err
			},
		})
	})
}

func (s *Store) delete(ctx context.Context, ref string, claim *idempotency.Claim) (out holt.DeletedComputer, err error) {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return out, err
	}
	defer unlock()
	if r.owned {
		left, err := s.snapshots.leftBy(ctx, r)
		if err != nil {
			return out, err
		}
		for _, id := range append(left, r.workspaceID) {
			if err := s.cfg.Workspaces.Unmounted(ctx, id); err != nil {
				return out, err
			}
		}
	}
	if out, err = s.snapshots.relatives(ctx, r.ID); err != nil {
		return out, err
	}
	if s.cfg.Schedules != nil {
		if out.Schedules, err = s.cfg.Schedules.Of(ctx, r.ID); err != nil {
			return out, err
		}
	}
	r.State, r.Reason = holt.ComputerDeleting, ""
	if err := s.table.saveBound(ctx, r, claim); err != nil {
		return out, err
	}
	if l := s.machines.live(r.ID); l != nil && !r.owned && r.Job == "" {
		l.halt(ctx, l.engine.Capabilities().PowerButton) // the guest writes back what it has in memory
	}
	m := &transition{s: s, r: &r}
	if err := m.remove(ctx, "delete"); err != nil {
		if ctx.Err() != nil {
			return out, ending() // the next daemon continues
		}
		m.markFailed(ctx, err)
		return out, err
	}
	s.uses.forget(r.ID)
	s.log.InfoContext(ctx, "computer deleted", "computer", r.ID, "name", r.Name, "workspace_kept", !r.owned)
	return out, nil
}

// remove undoes all steps of a computer in reverse order.
func (m *transition) remove(ctx context.Context, verb string) error {
	m.live = m.s.machines.live(m.r.ID)
	m.s.budgets.last(ctx, m.r.ID)
	return m.back(ctx, verb, m.steps())
}
