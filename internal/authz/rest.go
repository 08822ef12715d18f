package authz

import (
	"context"
	"io"

	"holt"
)

// limits is [httpapi.Limits]: one's own can be seen, whoever's there are.
type limits struct{ w *warden }

func (n limits) Get(ctx context.Context, tenant string) (holt.Limit, error) {
	err := n.w.tenant(ctx, look)
	if tenant != holt.TenantOf(ctx) {
		ctx, err = n.w.host(ctx)
	}
	if err != nil {
		return holt.Limit{}, err
	}
	return n.w.n.Limits.Get(ctx, tenant)
}

func (n limits) List(ctx context.Context) ([]holt.Limit, error) {
	ctx, err := n.w.host(ctx)
	if err != nil {
		return nil, err
	}
	return n.w.n.Limits.List(ctx)
}

func (n limits) Set(ctx context.Context, tenant string, to holt.LimitChange, key string) (holt.Limit, error) {
	ctx, err := n.w.host(ctx)
	if err != nil {
		return holt.Limit{}, err
	}
	return n.w.n.Limits.Set(ctx, tenant, to, key)
}

// schedule is asked by what is about one schedule: of which computer it is, and as whom it runs.
func (w *warden) schedule(ctx context.Context, ref string, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return denied(a)
	}
	s, err := w.n.Schedules.Get(ctx, ref)
	if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Conflict || err == nil && !(a.Rights.Computer(s.ComputerID) && a.Rights.User(s.Spec.User)) {
		return denied(a)
	}
	return err
}

// visible is asked by a list of what belongs to a computer, or, with "", to those that are covered.
func (w *warden) visible(ctx context.Context, computer string) error {
	if a, _ := holt.ActorOf(ctx); computer == "" && a.Computer == "" {
		return nil
	}
	return w.computer(ctx, computer, look)
}

// jobs is [httpapi.Jobs]: they make computers, so they are for who covers all of a tenant.
type jobs struct{ w *warden }

func (n jobs) Send(ctx context.Context, in io.Reader) (holt.JobInputs, error) {
	if err := n.w.tenant(ctx, change); err != nil {
		return holt.JobInputs{}, err
	}
	return n.w.n.Jobs.Send(ctx, in)
}

func (n jobs) Drop(ctx context.Context, id holt.JobInputsID, key string) error {
	if err := n.w.tenant(ctx, change); err != nil {
		return err
	}
	return n.w.n.Jobs.Drop(ctx, id, key)
}

func (n jobs) Create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error) {
	err := n.w.tenant(ctx, change)
	if a, _ := holt.ActorOf(ctx); err == nil && a.Token != "" && !a.Rights.User(spec.Run.User) {
		err = denied(a)
	}
	if err == nil {
		err = n.w.template(ctx, spec.Template)
	}
	if err != nil {
		return holt.Job{}, err
	}
	return n.w.n.Jobs.Create(ctx, spec, key)
}

// job is asked by what is about one job: as whom it runs.
func (w *warden) job(ctx context.Context, id holt.JobID, u use) error {
	if err := w.tenant(ctx, u); err != nil {
		return err
	}
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || len(a.Rights.Users) == 0 {
		return nil
	}
	j, err := w.n.Jobs.Get(ctx, id)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.User(j.Spec.Run.User) {
		return denied(a)
	}
	return err
}

func (n jobs) Get(ctx context.Context, id holt.JobID) (holt.Job, error) {
	if err := n.w.job(ctx, id, look); err != nil {
		return holt.Job{}, err
	}
	return n.w.n.Jobs.Get(ctx, id)
}

func (n jobs) List(ctx context.Context, after holt.JobID, limit int) ([]holt.Job, error) {
	if err := n.w.tenant(ctx, look); err != nil {
		return nil, err
	}
	if a, _ := holt.ActorOf(ctx); len(a.Rights.Users) > 0 {
		return nil, denied(a)
	}
	return n.w.n.Jobs.List(ctx, after, limit)
}

func (n jobs) Follow(ctx context.Context, id holt.JobID, offset int64, emit func(holt.RunEvent) error) error {
	if err := n.w.job(ctx, id, look); err != nil {
		return err
	}
	return n.w.n.Jobs.Follow(ctx, id, offset, emit)
}

func (n jobs) Cancel(ctx context.Context, id holt.JobID, key string) (holt.Job, error) {
	if err := n.w.job(ctx, id, change); err != nil {
		return holt.Job{}, err
	}
	return n.w.n.Jobs.Cancel(ctx, id, key)
}

func (n jobs) Delete(ctx context.Context, id holt.JobID, key string) error {
	if err := n.w.job(ctx, id, change); err != nil {
		return err
	}
	return n.w.n.Jobs.Delete(ctx, id, key)
}

func (n jobs) Outputs(ctx context.Context, id holt.JobID, out io.Writer) error {
	if err := n.w.job(ctx, id, look); err != nil {
		return err
	}
	return n.w.n.Jobs.Outputs(ctx, id, out)
}

func (n jobs) Release(ctx context.Context, id holt.JobID, key string) (holt.Job, error) {
	if err := n.w.job(ctx, id, change); err != nil {
		return holt.Job{}, err
	}
	return n.w.n.Jobs.Release(ctx, id, key)
}
