package authz

import (
	"context"

	"holt"
)

// run checks a call about one run, by its computer and its Linux user.
func (g *guard) run(ctx context.Context, id holt.RunID, op operation) error {
	a, free, err := unrestricted(ctx, op)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return forbidden(a)
	}
	r, err := g.n.Runs.Get(ctx, id)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !(a.Rights.Computer(r.ComputerID) && a.Rights.User(r.Spec.User)) {
		return forbidden(a)
	}
	return err
}

// terminal checks a call about one terminal, by its computer and its Linux user.
func (g *guard) terminal(ctx context.Context, computer, ref string, op operation) error {
	if err := g.computer(ctx, computer, op); err != nil {
		return err
	}
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || len(a.Rights.Users) == 0 {
		return nil
	}
	t, err := g.n.Terminals.Get(ctx, computer, ref)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.User(t.Spec.User) {
		return forbidden(a)
	}
	return err
}

// port checks a connection to a port of a computer. A unix socket needs the Linux user root.
func (g *guard) port(ctx context.Context, computer string, to holt.PortAddress) error {
	a, free, err := unrestricted(ctx, write)
	if err != nil || free {
		return err
	}
	if a.Computer != "" || to.Socket != "" && !a.Rights.User("root") {
		return forbidden(a)
	}
	if !a.Rights.Narrow() {
		return nil
	}
	c, err := g.n.Computers.Get(ctx, computer)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.Port(c.ID, to.Port) {
		return forbidden(a)
	}
	return err
}
