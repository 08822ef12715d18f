package authz

import (
	"context"

	"holt"
)

// seeComputer checks a read of a computer's record, which a token for a port of that computer may see too.
func (g *guard) seeComputer(ctx context.Context, ref string) error {
	a, _ := holt.ActorOf(ctx)
	if a.Token != "" && len(a.Rights.Ports) > 0 {
		c, err := g.n.Computers.Get(ctx, ref)
		for _, p := range a.Rights.Ports {
			if err == nil && p.Computer == c.ID {
				return nil
			}
		}
	}
	return g.self(ctx, ref, read)
}

// getComputer returns a computer that the caller may see.
func (g *guard) getComputer(ctx context.Context, ref string) (holt.Computer, error) {
	if err := g.seeComputer(ctx, ref); err != nil {
		return holt.Computer{}, err
	}
	return g.n.Computers.Get(ctx, ref)
}

// snapshot checks a call about one snapshot, by its computer.
func (g *guard) snapshot(ctx context.Context, ref string, op operation) error {
	a, free, err := unrestricted(ctx, op)
	if err != nil || free || a.Token != "" && !a.Rights.Narrow() {
		return err
	}
	if a.Computer != "" || len(a.Rights.Computers) == 0 {
		return forbidden(a)
	}
	m, err := g.n.Snapshots.Get(ctx, ref)
	if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Conflict || err == nil && !a.Rights.Computer(m.ComputerID) {
		return forbidden(a)
	}
	return err
}

// diffSide checks one side of a diff: a computer or, if none has the name, a snapshot.
func (g *guard) diffSide(ctx context.Context, ref string) error {
	err := g.asUser(ctx, ref, "root", read)
	if a, _ := holt.ActorOf(ctx); err == nil || a.Computer != "" || !a.Rights.User("root") {
		return err
	}
	if _, none := g.n.Computers.Get(ctx, ref); holt.CodeOf(none) != holt.NotFound {
		return err // a computer comes before a snapshot of the same name
	}
	return g.snapshot(ctx, ref, read)
}
