package authz

import (
	"context"
	"slices"

	"holt"
	"holt/internal/api"
	"holt/internal/nouns"
)

// Checker checks the need of each endpoint against the rights of the caller. It is what [api.Registry] asks.
type Checker struct {
	w     *warden
	rules map[*api.Endpoint]rule
	sees  map[*api.Endpoint]seenRule
}

// New returns a checker that looks names up in n.
func New(n nouns.Set) *Checker {
	w := &warden{n}
	return &Checker{w, w.rules(), w.seenRules()}
}

// Check returns the context to go on with, or Forbidden. in points to the input of e.
func (c *Checker) Check(ctx context.Context, e *api.Endpoint, in any) (context.Context, error) {
	w, need := c.w, e.Need
	use := look
	if need.Change {
		use = change
	}
	ref := named(e, in)
	user := api.Text(in, need.User)
	if a, _ := holt.ActorOf(ctx); need.User != "" && a.Token != "" && !a.Rights.User(user) {
		return ctx, denied(a)
	}
	switch need.On {
	case api.Anyone:
		return ctx, nil
	case api.Host:
		return w.host(ctx)
	case api.Admin:
		return ctx, w.admin(ctx)
	case api.Tenant:
		return ctx, w.tenant(ctx, use)
	case api.Computer:
		if need.Self {
			return ctx, w.self(ctx, ref, use)
		}
		return ctx, w.computer(ctx, ref, use)
	case api.Computers:
		if need.Self && ref != "" {
			return ctx, w.self(ctx, ref, use)
		}
		return ctx, w.visible(ctx, ref)
	case api.Workspace:
		return ctx, w.workspace(ctx, ref, use)
	case api.Path:
		if need.User != "" {
			return w.owned(ctx, ref, api.Text(in, need.Path), user)
		}
		return w.files(ctx, ref, api.Text(in, need.Path), use)
	case api.Snapshot:
		return ctx, w.snapshot(ctx, ref, use)
	case api.Schedule:
		return ctx, w.schedule(ctx, ref, use)
	case api.Run:
		return ctx, w.run(ctx, holt.RunID(ref), use)
	case api.Terminal:
		return ctx, w.terminal(ctx, api.Text(in, "Computer"), ref, use)
	case api.Job:
		return ctx, w.job(ctx, holt.JobID(ref), use)
	}
	if r := c.rules[e]; r != nil {
		return r(ctx, in)
	}
	return ctx, holt.Errorf(holt.Internal, "no rule says who may call %s", e.ID)
}

// named returns the name of what a call is about.
func named(e *api.Endpoint, in any) string {
	name := e.Need.Ref
	if name == "" {
		name = map[api.On]string{api.Computer: "Computer", api.Workspace: "Workspace", api.Path: "Workspace", api.Snapshot: "Snapshot", api.Schedule: "Schedule", api.Run: "Run", api.Terminal: "Terminal", api.Job: "Job"}[e.Need.On]
	}
	return api.Text(in, name)
}

// Seen returns Forbidden if the caller may not see an item of an endpoint's list, or its answer.
func (c *Checker) Seen(ctx context.Context, e *api.Endpoint, item any) error {
	a, _ := holt.ActorOf(ctx)
	if see := c.sees[e]; see != nil {
		return see(ctx, item)
	}
	if id, ok := e.OwnerOf(item); ok {
		if ids, all := c.w.seen(ctx); !all && !slices.Contains(ids, id) {
			return denied(a)
		}
	}
	if user, ok := e.UserOf(item); ok && a.Token != "" && !a.Rights.User(user) {
		return denied(a)
	}
	return nil
}
