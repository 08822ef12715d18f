package holt

import (
	"context"
	"time"
)

// Actor is who calls: what the call changes is attributed to them.
type Actor struct {
	Token    TokenID    // "" unless it is one
	Schedule ScheduleID // likewise
	Computer ComputerID // likewise: one that speaks of itself, see docs/design/networkprocess.md
	Name     string     // the token's, the schedule's or the computer's
	Tenant   string     // to whose things the call is confined; "": the daemon's own work, which sees all
	Rights   Rights     // of a token
	Expires  time.Time  // likewise; zero: never
}

// Person says that it is nobody's credential: the person whose daemon it is, or the daemon itself.
func (a Actor) Person() bool { return a.Token == "" && a.Schedule == "" && a.Computer == "" }

// Admin says whether it may do what is the host's, and act for every tenant.
func (a Actor) Admin() bool { return a.Person() || a.Token != "" && a.Rights.Admin }

type actorKey struct{}

// WithActor returns a context whose calls are the actor's.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActingFor returns ctx with the actor of another call, and what is asked before it: for work that goes on when its
// caller leaves, and must still see and do no more than he does.
func ActingFor(ctx, call context.Context) context.Context {
	a, _ := call.Value(actorKey{}).(Actor)
	may, _ := call.Value(beforeKey{}).(func(context.Context) error)
	return Before(WithActor(ctx, a), may)
}

type beforeKey struct{}

// Before returns a context in which a call that changes something asks may before it begins. The repeat of one that has
// begun does not: it gets the answer of that, or finishes it. (One that a daemon's end cut off may not have been asked: such
// an end lets one call more in.)
func Before(ctx context.Context, may func(context.Context) error) context.Context {
	return context.WithValue(ctx, beforeKey{}, may)
}

// AskBefore asks, if there is something to ask. What the call calls with the context that it returns asks no more.
func AskBefore(ctx context.Context) (context.Context, error) {
	may, _ := ctx.Value(beforeKey{}).(func(context.Context) error)
	if may == nil {
		return ctx, nil
	}
	ctx = Before(ctx, nil)
	return ctx, may(ctx)
}

// ActorOf returns whose call ctx belongs to; false: the person's whose daemon it is.
func ActorOf(ctx context.Context) (Actor, bool) {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a, !a.Person()
}

// TenantOf returns whose what a call makes is, and whose names it speaks of.
func TenantOf(ctx context.Context) string {
	if in := Confined(ctx); in != "" {
		return in
	}
	return DefaultTenant
}

// Confined returns the tenant to whose things a call is confined: for it nothing else exists. "" is the
// daemon's own work, which sees all. Every look-up of something that is a tenant's asks it.
func Confined(ctx context.Context) string {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a.Tenant
}

type beneathKey struct{}

// Beneath returns a context whose calls on a workspace's files cannot leave a directory of it, whatever
// symbolic links there are.
func Beneath(ctx context.Context, dir string) context.Context {
	return context.WithValue(ctx, beneathKey{}, dir)
}

// BeneathOf returns that directory; "": anywhere.
func BeneathOf(ctx context.Context) string {
	dir, _ := ctx.Value(beneathKey{}).(string)
	return dir
}
