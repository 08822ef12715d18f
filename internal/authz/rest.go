package authz

import (
	"context"

	"holt"
)

// schedule checks a call about one schedule, by its computer and the Linux user of its command.
func (g *guard) schedule(ctx context.Context, ref string, op operation) error {
	a, free, err := unrestricted(ctx, op)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return forbidden(a)
	}
	s, err := g.n.Schedules.Get(ctx, ref)
	if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Conflict || err == nil && !(a.Rights.Computer(s.ComputerID) && a.Rights.User(s.Spec.User)) {
		return forbidden(a)
	}
	return err
}

// visible checks a list of the objects of one computer or, with "", of all that the caller covers.
func (g *guard) visible(ctx context.Context, computer string) error {
	if a, _ := holt.ActorOf(ctx); computer == "" && a.Computer == "" {
		return nil
	}
	return g.computer(ctx, computer, read)
}

// job checks a call about one job, by the Linux user of its command.
func (g *guard) job(ctx context.Context, id holt.JobID, op operation) error {
	if err := g.tenant(ctx, op); err != nil {
		return err
	}
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || len(a.Rights.Users) == 0 {
		return nil
	}
	j, err := g.n.Jobs.Get(ctx, id)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.User(j.Spec.Run.User) {
		return forbidden(a)
	}
	return err
}
