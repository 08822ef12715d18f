package authz

import (
	"context"

	"holt"
)

// run is asked by what is about one run: of which computer it is, and of which user.
func (w *warden) run(ctx context.Context, id holt.RunID, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return denied(a)
	}
	r, err := w.n.Runs.Get(ctx, id)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !(a.Rights.Computer(r.ComputerID) && a.Rights.User(r.Spec.User)) {
		return denied(a)
	}
	return err
}

// terminal is asked by what is about one terminal: of which user it is.
func (w *warden) terminal(ctx context.Context, computer, ref string, u use) error {
	if err := w.computer(ctx, computer, u); err != nil {
		return err
	}
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || len(a.Rights.Users) == 0 {
		return nil
	}
	t, err := w.n.Terminals.Get(ctx, computer, ref)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.User(t.Spec.User) {
		return denied(a)
	}
	return err
}

func (w *warden) port(ctx context.Context, computer string, to holt.PortAddress) error {
	a, free, err := free(ctx, change)
	if err != nil || free {
		return err
	}
	if a.Computer != "" || to.Socket != "" && !a.Rights.User("root") {
		return denied(a)
	}
	if !a.Rights.Narrow() {
		return nil
	}
	c, err := w.n.Computers.Get(ctx, computer)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.Port(c.ID, to.Port) {
		return denied(a)
	}
	return err
}
