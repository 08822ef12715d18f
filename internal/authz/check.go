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
	g     *guard
	rules map[*api.Endpoint]rule
	sees  map[*api.Endpoint]seenRule
}

// New returns a checker that looks names up in n.
func New(n nouns.Set) *Checker {
	g := &guard{n}
	return &Checker{g, g.rules(), g.seenRules()}
}

// Check returns the context of the call, or Forbidden. in points to the input of e.
func (c *Checker) Check(ctx context.Context, e *api.Endpoint, in any) (context.Context, error) {
	g, need := c.g, e.Need
	op := read
	if need.Change {
		op = write
	}
	ref := refOf(e, in)
	user := api.Text(in, need.User)
	if a, _ := holt.ActorOf(ctx); need.User != "" && a.Token != "" && !a.Rights.User(user) {
		return ctx, forbidden(a)
	}
	switch need.On {
	case api.Anyone:
		return ctx, nil
	case api.Host:
		return g.host(ctx)
	case api.Admin:
		return ctx, g.admin(ctx)
	case api.Tenant:
		return ctx, g.tenant(ctx, op)
	case api.Computer:
		if need.Self {
			return ctx, g.self(ctx, ref, op)
		}
		return ctx, g.computer(ctx, ref, op)
	case api.Computers:
		if need.Self && ref != "" {
			return ctx, g.self(ctx, ref, op)
		}
		return ctx, g.visible(ctx, ref)
	case api.Workspace:
		return ctx, g.workspace(ctx, ref, op)
	case api.Path:
		if need.User != "" {
			return g.filesAs(ctx, ref, api.Text(in, need.Path), user)
		}
		return g.files(ctx, ref, api.Text(in, need.Path), op)
	case api.Snapshot:
		return ctx, g.snapshot(ctx, ref, op)
	case api.Schedule:
		return ctx, g.schedule(ctx, ref, op)
	case api.Run:
		return ctx, g.run(ctx, holt.RunID(ref), op)
	case api.Terminal:
		return ctx, g.terminal(ctx, api.Text(in, "Computer"), ref, op)
	case api.Job:
		return ctx, g.job(ctx, holt.JobID(ref), op)
	}
	if r := c.rules[e]; r != nil {
		return r(ctx, in)
	}
	return ctx, holt.Errorf(holt.Internal, "no authorisation rule for endpoint %s", e.ID)
}

// refOf returns the name or id of the object of a call.
func refOf(e *api.Endpoint, in any) string {
	name := e.Need.Ref
	if name == "" {
		name = map[api.On]string{api.Computer: "Computer", api.Workspace: "Workspace", api.Path: "Workspace", api.Snapshot: "Snapshot", api.Schedule: "Schedule", api.Run: "Run", api.Terminal: "Terminal", api.Job: "Job"}[e.Need.On]
	}
	return api.Text(in, name)
}

// Seen returns Forbidden if the caller may not see an item of an endpoint's list or stream.
func (c *Checker) Seen(ctx context.Context, e *api.Endpoint, item any) error {
	a, _ := holt.ActorOf(ctx)
	if see := c.sees[e]; see != nil {
		return see(ctx, item)
	}
	if id, ok := e.OwnerOf(item); ok {
		if ids, all := c.g.visibleComputers(ctx); !all && !slices.Contains(ids, id) {
			return forbidden(a)
		}
	}
	if user, ok := e.UserOf(item); ok && a.Token != "" && !a.Rights.User(user) {
		return forbidden(a)
	}
	return nil
}
