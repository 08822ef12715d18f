package authz

import (
	"context"
	"io"
	"strings"

	"holt"
)

// computers is [httpapi.Computers].
type computers struct{ w *warden }

// Create takes a recipe or an image that lies on the host from admins only.
func (n computers) Create(ctx context.Context, spec holt.ComputerSpec, key string) (holt.Computer, error) {
	if err := n.w.tenant(ctx, change); err != nil {
		return holt.Computer{}, err
	}
	if err := n.w.template(ctx, spec.Template); err != nil {
		return holt.Computer{}, err
	}
	return n.w.n.Computers.Create(ctx, spec, key)
}

// template refuses what names a file of the host, to whoever is no admin.
func (w *warden) template(ctx context.Context, t string) error {
	if strings.HasPrefix(t, holt.OCIRegistry) || !strings.ContainsAny(t, "/:") {
		return nil
	}
	return w.admin(ctx)
}

func (n computers) Get(ctx context.Context, ref string) (holt.Computer, error) {
	if err := n.w.named(ctx, ref); err != nil {
		return holt.Computer{}, err
	}
	return n.w.n.Computers.Get(ctx, ref)
}

// named is self for what a token for a port sees, too: which computer it is of.
func (w *warden) named(ctx context.Context, ref string) error {
	a, _ := holt.ActorOf(ctx)
	if a.Token != "" && len(a.Rights.Ports) > 0 {
		c, err := w.n.Computers.Get(ctx, ref)
		for _, p := range a.Rights.Ports {
			if err == nil && p.Computer == c.ID {
				return nil
			}
		}
	}
	return w.self(ctx, ref, look)
}

// List shows a computer itself and its forks, which it may count.
func (n computers) List(ctx context.Context) ([]holt.Computer, error) {
	list, err := n.w.n.Computers.List(ctx)
	if a, _ := holt.ActorOf(ctx); a.Computer != "" && err == nil {
		own := []holt.Computer{}
		for _, c := range list {
			if c.ID == a.Computer || c.Parent != nil && c.Parent.ID == a.Computer {
				own = append(own, c)
			}
		}
		return own, nil
	}
	return onlySeen(ctx, n.w, list, err, func(c holt.Computer) holt.ComputerID { return c.ID })
}

func (n computers) Start(ctx context.Context, ref, key string) (holt.Computer, error) {
	if err := n.w.computer(ctx, ref, change); err != nil {
		return holt.Computer{}, err
	}
	return n.w.n.Computers.Start(ctx, ref, key)
}

func (n computers) Stop(ctx context.Context, ref, key string) (holt.Computer, error) {
	if err := n.w.computer(ctx, ref, change); err != nil {
		return holt.Computer{}, err
	}
	return n.w.n.Computers.Stop(ctx, ref, key)
}

func (n computers) Resize(ctx context.Context, ref string, spec holt.ResizeSpec, key string) (holt.ResizedComputer, error) {
	if err := n.w.computer(ctx, ref, change); err != nil {
		return holt.ResizedComputer{}, err
	}
	return n.w.n.Computers.Resize(ctx, ref, spec, key)
}

func (n computers) Delete(ctx context.Context, ref, key string) (holt.DeletedComputer, error) {
	if err := n.w.computer(ctx, ref, change); err != nil {
		return holt.DeletedComputer{}, err
	}
	return n.w.n.Computers.Delete(ctx, ref, key)
}

func (n computers) Logs(ctx context.Context, ref string, q holt.LogQuery, out io.Writer) error {
	if err := n.w.inside(ctx, ref, "root", look); err != nil {
		return err
	}
	return n.w.n.Computers.Logs(ctx, ref, q, out)
}

func (n computers) Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (holt.Snapshot, error) {
	if err := n.w.self(ctx, ref, change); err != nil {
		return holt.Snapshot{}, err
	}
	return n.w.n.Computers.Snapshot(ctx, ref, spec, key)
}

// Fork makes something in the tenant: who is for one computer cannot.
func (n computers) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	if a, _ := holt.ActorOf(ctx); a.Computer == "" {
		if err := n.w.tenant(ctx, change); err != nil {
			return holt.ForkedComputers{}, err
		}
	}
	if err := n.w.self(ctx, ref, change); err != nil {
		return holt.ForkedComputers{}, err
	}
	return n.w.n.Computers.Fork(ctx, ref, spec, key)
}

func (n computers) Pause(ctx context.Context, ref, key string) (holt.Computer, error) {
	if err := n.w.self(ctx, ref, change); err != nil {
		return holt.Computer{}, err
	}
	return n.w.n.Computers.Pause(ctx, ref, key)
}

func (n computers) Resume(ctx context.Context, ref, key string) (holt.Computer, error) {
	if err := n.w.computer(ctx, ref, change); err != nil {
		return holt.Computer{}, err
	}
	return n.w.n.Computers.Resume(ctx, ref, key)
}

func (n computers) Awake(ctx context.Context, ref string) (holt.Awake, error) {
	if err := n.w.computer(ctx, ref, look); err != nil {
		return holt.Awake{}, err
	}
	return n.w.n.Computers.Awake(ctx, ref)
}

func (n computers) Update(ctx context.Context, ref string, to holt.ComputerUpdate, key string) (holt.Computer, error) {
	if err := n.w.computer(ctx, ref, change); err != nil {
		return holt.Computer{}, err
	}
	return n.w.n.Computers.Update(ctx, ref, to, key)
}

func (n computers) Hold(ctx context.Context, ref string, spec holt.HoldSpec, key string) (holt.Hold, error) {
	if err := n.w.computer(ctx, ref, change); err != nil {
		return holt.Hold{}, err
	}
	return n.w.n.Computers.Hold(ctx, ref, spec, key)
}

func (n computers) Holds(ctx context.Context, ref string) ([]holt.Hold, error) {
	if err := n.w.computer(ctx, ref, look); err != nil {
		return nil, err
	}
	return n.w.n.Computers.Holds(ctx, ref)
}

func (n computers) Release(ctx context.Context, ref string, id holt.HoldID, key string) error {
	if err := n.w.computer(ctx, ref, change); err != nil {
		return err
	}
	return n.w.n.Computers.Release(ctx, ref, id, key)
}

// SetBudget counts forks as well: it is about the tenant.
func (n computers) SetBudget(ctx context.Context, ref string, to holt.BudgetChange, key string) (holt.Budget, error) {
	if err := n.w.tenant(ctx, change); err != nil {
		return holt.Budget{}, err
	}
	return n.w.n.Computers.SetBudget(ctx, ref, to, key)
}

func (n computers) RemoveBudget(ctx context.Context, ref, key string) error {
	if err := n.w.tenant(ctx, change); err != nil {
		return err
	}
	return n.w.n.Computers.RemoveBudget(ctx, ref, key)
}

// snapshots is [httpapi.Snapshots].
type snapshots struct{ w *warden }

func (n snapshots) List(ctx context.Context, computer string) ([]holt.Snapshot, error) {
	if computer != "" {
		if err := n.w.self(ctx, computer, look); err != nil {
			return nil, err
		}
		return n.w.n.Snapshots.List(ctx, computer)
	}
	if a, _ := holt.ActorOf(ctx); a.Computer != "" {
		return nil, denied(a)
	}
	list, err := n.w.n.Snapshots.List(ctx, computer)
	return onlySeen(ctx, n.w, list, err, func(m holt.Snapshot) holt.ComputerID { return m.ComputerID })
}

// snapshot is asked by what is about one snapshot: whose computer it is of.
func (w *warden) snapshot(ctx context.Context, ref string, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free || a.Token != "" && !a.Rights.Narrow() {
		return err
	}
	if a.Computer != "" || len(a.Rights.Computers) == 0 {
		return denied(a)
	}
	m, err := w.n.Snapshots.Get(ctx, ref)
	if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Conflict || err == nil && !a.Rights.Computer(m.ComputerID) {
		return denied(a)
	}
	return err
}

func (n snapshots) Get(ctx context.Context, ref string) (holt.Snapshot, error) {
	if err := n.w.snapshot(ctx, ref, look); err != nil {
		return holt.Snapshot{}, err
	}
	return n.w.n.Snapshots.Get(ctx, ref)
}

func (n snapshots) Delete(ctx context.Context, ref, key string) (holt.SnapshotFreed, error) {
	if err := n.w.snapshot(ctx, ref, change); err != nil {
		return holt.SnapshotFreed{}, err
	}
	return n.w.n.Snapshots.Delete(ctx, ref, key)
}

func (n snapshots) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	if err := n.w.tenant(ctx, change); err != nil {
		return holt.ForkedComputers{}, err
	}
	return n.w.n.Snapshots.Fork(ctx, ref, spec, key)
}

func (n snapshots) Restore(ctx context.Context, ref string, spec holt.SnapshotRestoreSpec, key string) (holt.RestoredComputer, error) {
	if err := n.w.snapshot(ctx, ref, change); err != nil {
		return holt.RestoredComputer{}, err
	}
	return n.w.n.Snapshots.Restore(ctx, ref, spec, key)
}

// Diff shows files whoever they belong to.
func (n snapshots) Diff(ctx context.Context, from, to string) (holt.ComputerDiff, error) {
	for _, side := range []string{from, to} {
		if err := n.w.side(ctx, side); err != nil {
			return holt.ComputerDiff{}, err
		}
	}
	return n.w.n.Snapshots.Diff(ctx, from, to)
}

// side is asked by a diff of what it compares: a computer or else a snapshot.
func (w *warden) side(ctx context.Context, ref string) error {
	err := w.inside(ctx, ref, "root", look)
	if a, _ := holt.ActorOf(ctx); err == nil || a.Computer != "" || !a.Rights.User("root") {
		return err
	}
	if _, none := w.n.Computers.Get(ctx, ref); holt.CodeOf(none) != holt.NotFound {
		return err // a snapshot that has its name does not stand for it
	}
	return w.snapshot(ctx, ref, look)
}

// networks is [httpapi.Networks].
type networks struct{ w *warden }

func (n networks) Get(ctx context.Context, ref string) (holt.NetworkPolicy, error) {
	if err := n.w.self(ctx, ref, look); err != nil {
		return holt.NetworkPolicy{}, err
	}
	return n.w.n.Networks.Get(ctx, ref)
}

// Set bounds a computer: who is for that one alone does not lift it.
func (n networks) Set(ctx context.Context, ref string, policy holt.NetworkPolicy) (holt.NetworkPolicy, error) {
	if err := n.w.tenant(ctx, change); err != nil {
		return holt.NetworkPolicy{}, err
	}
	return n.w.n.Networks.Set(ctx, ref, policy)
}

func (n networks) Traffic(ctx context.Context, ref string) (holt.NetworkTraffic, error) {
	if err := n.w.self(ctx, ref, look); err != nil {
		return holt.NetworkTraffic{}, err
	}
	return n.w.n.Networks.Traffic(ctx, ref)
}

// secrets is [httpapi.Secrets].
type secrets struct{ w *warden }

func (n secrets) List(ctx context.Context, computer string) ([]holt.ComputerSecret, error) {
	if err := n.w.computer(ctx, computer, look); err != nil {
		return nil, err
	}
	return n.w.n.Secrets.List(ctx, computer)
}

func (n secrets) Set(ctx context.Context, computer, name string, secret holt.HostSecret) (holt.ComputerSecret, error) {
	if err := n.w.computer(ctx, computer, change); err != nil {
		return holt.ComputerSecret{}, err
	}
	return n.w.n.Secrets.Set(ctx, computer, name, secret)
}

func (n secrets) Delete(ctx context.Context, computer, name, key string) error {
	if err := n.w.computer(ctx, computer, change); err != nil {
		return err
	}
	return n.w.n.Secrets.Delete(ctx, computer, name, key)
}

// stats is [httpapi.Stats].
type stats struct{ w *warden }

func (n stats) Get(ctx context.Context, ref string) (holt.ComputerStats, error) {
	if err := n.w.computer(ctx, ref, look); err != nil {
		return holt.ComputerStats{}, err
	}
	return n.w.n.Stats.Get(ctx, ref)
}

func (n stats) List(ctx context.Context) ([]holt.ComputerStats, error) {
	if a, _ := holt.ActorOf(ctx); a.Computer != "" {
		return nil, denied(a)
	}
	list, err := n.w.n.Stats.List(ctx)
	return onlySeen(ctx, n.w, list, err, func(c holt.ComputerStats) holt.ComputerID { return c.ComputerID })
}
