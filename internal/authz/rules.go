package authz

import (
	"context"
	"strings"

	"holt"
	"holt/internal/api"
)

// rule checks a call whose right depends on more than one name. in points to the input of the call.
type rule func(ctx context.Context, in any) (context.Context, error)

// on returns a rule for an input.
func on[In any](f func(ctx context.Context, in *In) error) rule {
	return func(ctx context.Context, in any) (context.Context, error) { return ctx, f(ctx, in.(*In)) }
}

// rules are those of the endpoints whose need is [api.Content].
func (w *warden) rules() map[*api.Endpoint]rule {
	return map[*api.Endpoint]rule{
		api.CreateComputer.Endpoint: on(func(ctx context.Context, in *api.Body[holt.ComputerSpec]) error {
			return w.creates(ctx, in.Body.Template)
		}),
		api.CreateJob.Endpoint: on(func(ctx context.Context, in *api.Body[holt.JobSpec]) error {
			return w.creates(ctx, in.Body.Template)
		}),
		api.GetComputer.Endpoint:    on(func(ctx context.Context, in *api.OneComputer) error { return w.named(ctx, in.Computer) }),
		api.ForkComputer.Endpoint:   on(w.forkComputer),
		api.DiffComputers.Endpoint:  on(w.diffComputers),
		api.AttachTerminal.Endpoint: on(w.attachTerminal),
		api.ConnectPort.Endpoint: on(func(ctx context.Context, in *api.PortConnect) error {
			return w.port(ctx, in.Computer, in.Address())
		}),
		api.UpdateSchedule.Endpoint: on(w.updateSchedule),
		api.GetLimit.Endpoint:       w.getLimit,
	}
}

// creates checks a call that makes a computer. Templates that are files of the host are for admins.
func (w *warden) creates(ctx context.Context, template string) error {
	if err := w.tenant(ctx, change); err != nil {
		return err
	}
	if strings.HasPrefix(template, holt.OCIRegistry) || !strings.ContainsAny(template, "/:") {
		return nil
	}
	return w.admin(ctx)
}

// forkComputer refuses tokens for single computers, since a fork is a new computer of the tenant. A computer may fork itself.
func (w *warden) forkComputer(ctx context.Context, in *api.ComputerBody[holt.ComputerForkSpec]) error {
	if a, _ := holt.ActorOf(ctx); a.Computer == "" {
		if err := w.tenant(ctx, change); err != nil {
			return err
		}
	}
	return w.self(ctx, in.Computer, change)
}

// diffComputers needs a right on both sides.
func (w *warden) diffComputers(ctx context.Context, in *api.TwoSides) error {
	if err := w.side(ctx, in.From); err != nil {
		return err
	}
	return w.side(ctx, in.To)
}

// attachTerminal changes the terminal, since whoever is attached types. A terminal that is opened first may not exist yet:
// opening it is a call of its own, which checks the Linux user.
func (w *warden) attachTerminal(ctx context.Context, in *api.TerminalAttach) error {
	if in.Open && !in.Again {
		return w.computer(ctx, in.Computer, change)
	}
	return w.terminal(ctx, in.Computer, in.Terminal, change)
}

// updateSchedule checks the Linux users of the command as it is and as it will be.
func (w *warden) updateSchedule(ctx context.Context, in *api.ScheduleUpdate) error {
	if a, _ := holt.ActorOf(ctx); in.Body.Spec != nil && a.Token != "" && !a.Rights.User(in.Body.Spec.User) {
		return denied(a)
	}
	return w.schedule(ctx, in.Schedule, change)
}

// getLimit lets callers see the limit of their own tenant; the others are for admins.
func (w *warden) getLimit(ctx context.Context, in any) (context.Context, error) {
	if in.(*api.OneTenant).Tenant == holt.TenantOf(ctx) {
		return ctx, w.tenant(ctx, look)
	}
	return w.host(ctx)
}
