package holt

import (
	"context"
	"time"
)

// Actor is the caller. What a call changes is attributed to it.
type Actor struct {
	Token    TokenID    // set if the caller uses a token
	Schedule ScheduleID // set if the caller is a schedule
	Computer ComputerID // set if the caller is a computer that calls /v1/self, see docs/design/networkprocess.md
	Name     string     // of the token, schedule or computer
	Tenant   string     // tenant that the call is confined to; "": the daemon itself, which sees all
	Rights   Rights     // of the token
	Expires  time.Time  // of the token; zero: never
}

// Person reports whether the caller uses no credential: the owner of the daemon at its socket, or the daemon itself.
func (a Actor) Person() bool { return a.Token == "" && a.Schedule == "" && a.Computer == "" }

// Admin reports whether the caller may change settings of the host and act for every tenant.
func (a Actor) Admin() bool { return a.Person() || a.Token != "" && a.Rights.Admin }

type actorKey struct{}

// WithActor returns a context whose calls are the actor's.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActingFor returns ctx with the actor and the [Before] check of call. Use it for work that outlives its call and must
// keep the caller's rights.
func ActingFor(ctx, call context.Context) context.Context {
	a, _ := call.Value(actorKey{}).(Actor)
	may, _ := call.Value(beforeKey{}).(func(context.Context) error)
	return Before(WithActor(ctx, a), may)
}

type beforeKey struct{}

// Before returns a context in which a call that changes something asks may first. A repeated call with the same
// idempotency key does not ask again: it gets the first call's answer, or completes it. A call that the end of the
// daemon interrupted may not have been asked.
func Before(ctx context.Context, may func(context.Context) error) context.Context {
	return context.WithValue(ctx, beforeKey{}, may)
}

// AskBefore runs the check that [Before] set, if any. The returned context has no check, so nested calls do not ask again.
func AskBefore(ctx context.Context) (context.Context, error) {
	may, _ := ctx.Value(beforeKey{}).(func(context.Context) error)
	if may == nil {
		return ctx, nil
	}
	ctx = Before(ctx, nil)
	return ctx, may(ctx)
}

// ActorOf returns the caller; false if it is a [Actor.Person].
func ActorOf(ctx context.Context) (Actor, bool) {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a, !a.Person()
}

// TenantOf returns the tenant that owns what a call creates and in which it looks names up.
func TenantOf(ctx context.Context) string {
	if in := Confined(ctx); in != "" {
		return in
	}
	return DefaultTenant
}

// Confined returns the tenant that a call is confined to; objects of other tenants do not exist for it. "" is the
// daemon itself, which sees all. Every look-up of a tenant's object must check it.
func Confined(ctx context.Context) string {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a.Tenant
}

type beneathKey struct{}

// Beneath returns a context whose calls on a workspace's files cannot leave a directory, even through symbolic links.
func Beneath(ctx context.Context, dir string) context.Context {
	return context.WithValue(ctx, beneathKey{}, dir)
}

// BeneathOf returns the directory of [Beneath]; "": no restriction.
func BeneathOf(ctx context.Context) string {
	dir, _ := ctx.Value(beneathKey{}).(string)
	return dir
}
