package computer

import (
	"context"
	"log/slog"

	"holt"
	"holt/internal/idempotency"
)

// registry is what the parts of a [Store] share: the computers on record, their
// locks and machines, what uses them, and the end of the daemon.
type registry struct {
	cfg      Config
	log      *slog.Logger
	table    table
	machines *machines
	uses     *uses
	shutdown *shutdown
}

// hold locks a computer and returns it as it is then: it may have changed, or
// been deleted, while the lock was waited for.
func (g *registry) hold(ctx context.Context, ref string) (record, func(), error) {
	r, err := g.table.find(ctx, ref)
	if err != nil {
		return record{}, nil, err
	}
	unlock, err := g.machines.lock(ctx, r.ID)
	if err != nil {
		return record{}, nil, err
	}
	if r, err = g.table.find(ctx, string(r.ID)); err != nil {
		unlock()
		return record{}, nil, err
	}
	return r, unlock, nil
}

// shown is a computer as callers see it: a guest that does not answer shows in its reason.
func (g *registry) shown(r record) holt.Computer {
	r.LastSnapshot, r.Pending = r.snapshot, r.pending()
	if r.State != holt.ComputerRunning || r.Reason != "" {
		return r.Computer
	}
	l := g.machines.live(r.ID)
	if l == nil {
		return r.Computer
	}
	if client, _, fault := l.state(); client == nil && fault != nil {
		r.Reason = "the guest agent does not answer: " + fault.Error()
	}
	return r.Computer
}

// shownAtWork is shown, with the call that holds the computer's lock.
func (g *registry) shownAtWork(r record) holt.Computer {
	c := g.shown(r)
	c.AtWork = g.machines.atWork(r.ID)
	return c
}

// verb changes a computer's state: once for a key, and to its end even when its caller leaves.
func (g *registry) verb(ctx context.Context, method, ref, key string, act func(context.Context, string) (holt.Computer, error)) (holt.Computer, error) {
	return detach(ctx, g.shutdown, func(ctx context.Context) (holt.Computer, error) {
		return idempotency.Once(ctx, g.cfg.Keys, idempotency.Call[holt.Computer]{
			Key: key, Method: method, Request: ref,
			Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Computer, error) { return act(ctx, ref) },
		})
	})
}

// explain adds the command that gives more memory to what a guest says of a lack of it.
func (g *registry) explain(o *holt.OutOfMemory, id holt.ComputerID) {
	r, err := g.table.find(context.Background(), string(id))
	if err == nil {
		o.Raise = r.raiseMemory()
	}
}
