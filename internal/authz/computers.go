package authz

import (
	"context"

	"holt"
)

// named is self for what a token for a port sees, too: which computer it is of.
func (w *warden) named(ctx context.Context, ref string) error {
	a, _ := holt.ActorOf(ctx)
	if a.Token != "" && len(a.Rights.Ports) > 0 {
		c, err := w.n.Computers.Get(ctx, ref)
		for _, p := range a.Rights.Ports {
			if err == nil && p.Computer == c.ID {
				return nil
			}
		}
	}
	return w.self(ctx, ref, look)
}

// getComputer returns a computer that the caller may see.
func (w *warden) getComputer(ctx context.Context, ref string) (holt.Computer, error) {
	if err := w.named(ctx, ref); err != nil {
		return holt.Computer{}, err
	}
	return w.n.Computers.Get(ctx, ref)
}

// snapshot is asked by what is about one snapshot: whose computer it is of.
func (w *warden) snapshot(ctx context.Context, ref string, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free || a.Token != "" && !a.Rights.Narrow() {
		return err
	}
	if a.Computer != "" || len(a.Rights.Computers) == 0 {
		return denied(a)
	}
	m, err := w.n.Snapshots.Get(ctx, ref)
	if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Conflict || err == nil && !a.Rights.Computer(m.ComputerID) {
		return denied(a)
	}
	return err
}

// side is asked by a diff of what it compares: a computer or else a snapshot.
func (w *warden) side(ctx context.Context, ref string) error {
	err := w.inside(ctx, ref, "root", look)
	if a, _ := holt.ActorOf(ctx); err == nil || a.Computer != "" || !a.Rights.User("root") {
		return err
	}
	if _, none := w.n.Computers.Get(ctx, ref); holt.CodeOf(none) != holt.NotFound {
		return err // a snapshot that has its name does not stand for it
	}
	return w.snapshot(ctx, ref, look)
}
