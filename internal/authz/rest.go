package authz

import (
	"context"

	"holt"
)

// archive is [httpapi.Archive]: all tenants' bytes lie there.
type archive struct{ w *warden }

func (n archive) Get(ctx context.Context) (holt.Archive, error) {
	ctx, err := n.w.host(ctx)
	if err != nil {
		return holt.Archive{}, err
	}
	return n.w.n.Archive.Get(ctx)
}

func (n archive) Collect(ctx context.Context, key string) (holt.Collected, error) {
	ctx, err := n.w.host(ctx)
	if err != nil {
		return holt.Collected{}, err
	}
	return n.w.n.Archive.Collect(ctx, key)
}

func (n archive) Check(ctx context.Context) (holt.ArchiveReport, error) {
	ctx, err := n.w.host(ctx)
	if err != nil {
		return holt.ArchiveReport{}, err
	}
	return n.w.n.Archive.Check(ctx)
}

// images is [httpapi.Images]: the host's, which everybody may make computers of.
type images struct{ w *warden }

func (n images) List(ctx context.Context) ([]holt.Image, error) {
	if a, _ := holt.ActorOf(ctx); a.Computer != "" {
		return nil, denied(a)
	}
	return n.w.n.Images.List(ctx)
}

func (n images) Boot(ctx context.Context, ref string, shape holt.Shape, key string) (holt.Image, error) {
	ctx, err := n.w.host(ctx)
	if err != nil {
		return holt.Image{}, err
	}
	return n.w.n.Images.Boot(ctx, ref, shape, key)
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

// daemon is [httpapi.Daemon].
type daemon struct{ w *warden }

// Health is for everybody, but for where the host has things.
func (n daemon) Health(ctx context.Context) (holt.Health, error) {
	a, _ := holt.ActorOf(ctx)
	if a.Computer != "" {
		return holt.Health{}, denied(a)
	}
	if in, err := n.w.host(ctx); err == nil {
		return n.w.n.Daemon.Health(in)
	}
	h, err := n.w.n.Daemon.Health(ctx)
	h.PID, h.DataDir = 0, ""
	if a.Token != "" && a.Rights.Narrow() {
		h.Running = 0
	}
	return h, err
}

func (n daemon) Doctor(ctx context.Context) ([]holt.Finding, error) {
	ctx, err := n.w.host(ctx)
	if err != nil {
		return nil, err
	}
	return n.w.n.Daemon.Doctor(ctx)
}

func (n daemon) Down(ctx context.Context, spec holt.DownSpec, key string) (holt.DownReport, error) {
	ctx, err := n.w.host(ctx)
	if err != nil {
		return holt.DownReport{}, err
	}
	return n.w.n.Daemon.Down(ctx, spec, key)
}
