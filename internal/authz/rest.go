package authz

import (
	"context"

	"holt"
)

// schedule is asked by what is about one schedule: of which computer it is, and as whom it runs.
func (w *warden) schedule(ctx context.Context, ref string, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return denied(a)
	}
	s, err := w.n.Schedules.Get(ctx, ref)
	if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Conflict || err == nil && !(a.Rights.Computer(s.ComputerID) && a.Rights.User(s.Spec.User)) {
		return denied(a)
	}
	return err
}

// visible is asked by a list of what belongs to a computer, or, with "", to those that are covered.
func (w *warden) visible(ctx context.Context, computer string) error {
	if a, _ := holt.ActorOf(ctx); computer == "" && a.Computer == "" {
		return nil
	}
	return w.computer(ctx, computer, look)
}

// job is asked by what is about one job: as whom it runs.
func (w *warden) job(ctx context.Context, id holt.JobID, u use) error {
	if err := w.tenant(ctx, u); err != nil {
		return err
	}
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || len(a.Rights.Users) == 0 {
		return nil
	}
	j, err := w.n.Jobs.Get(ctx, id)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.User(j.Spec.Run.User) {
		return denied(a)
	}
	return err
}
