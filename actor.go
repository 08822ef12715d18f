package holt

import "context"

// Actor is who calls: what the call changes is attributed to them.
type Actor struct {
	Token    TokenID    // "" unless it is one
	Schedule ScheduleID // likewise
	Computer ComputerID // likewise: one that speaks of itself, see docs/design/networkprocess.md
	Name     string     // the token's, the schedule's or the computer's
	Tenant   string     // whose the token is; "": the default one's
}

type actorKey struct{}

// WithActor returns a context whose calls are the actor's.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns whose call ctx belongs to; false: the person's whose daemon it is.
func ActorOf(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}

// TenantOf returns whose what a call makes is.
func TenantOf(ctx context.Context) string {
	if a, _ := ActorOf(ctx); a.Tenant != "" {
		return a.Tenant
	}
	return DefaultTenant
}
