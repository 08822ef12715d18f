package servertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"holt"
)

func (n computers) Pause(_ context.Context, ref, key string) (holt.Computer, error) {
	return n.turn(ref, key, holt.ComputerPaused)
}

func (n computers) Resume(_ context.Context, ref, key string) (holt.Computer, error) {
	return n.turn(ref, key, holt.ComputerRunning)
}

func (n computers) Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (holt.Moment, error) {
	if err := n.m.before(ctx, key); err != nil {
		return holt.Moment{}, err
	}
	return once(n.m, key, []any{"snapshot", ref, spec}, func() (holt.Moment, error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return holt.Moment{}, err
		}
		if c.State != holt.ComputerRunning {
			return holt.Moment{}, holt.Errorf(holt.Conflict, "%s is %s", c.Name, c.State)
		}
		if spec.Name != "" && n.m.hasMoment(c, spec.Name) {
			return holt.Moment{}, holt.Errorf(holt.AlreadyExists, "%s has a moment %q already", c.Name, spec.Name).WithHint("choose another name")
		}
		return n.m.take(c, spec.Name, holt.MomentSnapshot), nil
	})
}

// take keeps a moment; the lock is held.
func (m *Memory) take(c *holt.Computer, name string, kind holt.MomentKind) holt.Moment {
	one := holt.Moment{
		ID: holt.NewMomentID(), Name: name, Kind: kind, ComputerID: c.ID, Computer: c.Name, CreatedAt: time.Now().UTC(),
		CPUs: c.CPUs, MemoryMB: c.MemoryMB, Bytes: 1, Workspace: c.Workspace, Parent: c.LastMoment,
	}
	c.LastMoment = one.ID
	m.moments = append(m.moments, one)
	return one
}

// moment finds one; the lock is held.
func (m *Memory) moment(ref string) (int, error) {
	name, whose, shown := ref, holt.ComputerID(""), ""
	if computer, at := holt.CutCheckpoint(ref); at != "" {
		c, err := m.computer(computer)
		if err != nil {
			return -1, err
		}
		name, whose, shown = at, c.ID, c.Name
	}
	at := slices.IndexFunc(m.moments, func(one holt.Moment) bool {
		return (string(one.ID) == name || one.Name == name) && (whose == "" || one.ComputerID == whose)
	})
	if at < 0 {
		return at, holt.Errorf(holt.NotFound, "there is no moment %q", name).WithHint("holt moment list %s shows those there are", shown)
	}
	return at, nil
}

func (n computers) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	if err := n.m.before(ctx, key); err != nil {
		return holt.ForkedComputers{}, err
	}
	return once(n.m, key, []any{"fork", ref, spec}, func() (out holt.ForkedComputers, err error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return out, err
		}
		var from holt.Moment
		if spec.At == "" {
			from = n.m.take(c, "", holt.MomentFork)
		} else if at, err := n.m.moment(spec.At); err != nil {
			return out, err
		} else {
			from = n.m.moments[at]
		}
		return n.m.fork(c, from, spec)
	})
}

// fork makes computers with the files that c has now; the lock is held.
func (m *Memory) fork(c *holt.Computer, from holt.Moment, spec holt.ComputerForkSpec) (out holt.ForkedComputers, err error) {
	out.Moment = from.ID
	for i := range cmp.Or(spec.Count, 1) {
		name := cmp.Or(spec.Name, c.Name+"-1")
		if spec.Count > 1 {
			name = fmt.Sprintf("%s-%d", cmp.Or(spec.Name, c.Name), i+1)
		}
		child := *c
		child.ID, child.Name, child.Workspace, child.State = holt.NewComputerID(), name, name, holt.ComputerRunning
		child.Parent = &holt.Origin{ID: c.ID, Name: c.Name, Moment: from.ID}
		if _, taken := m.computer(name); taken == nil {
			err = holt.Errorf(holt.AlreadyExists, "there is a computer %q already", name).WithHint("choose another name")
		} else if err = m.admit(1, child.MemoryMB, child.DiskSizeMB+child.WorkspaceSizeMB); err != nil { // nothing is made
		} else if err = m.attach(&child, ""); err == nil {
			err = os.CopyFS(m.root(&child), os.DirFS(m.root(c)))
		}
		if err != nil && spec.Count <= 1 {
			return out, err
		}
		if err != nil {
			out.Computers = append(out.Computers, holt.ForkedComputer{Name: name, Error: holt.AsError(err)})
			continue
		}
		if spec.WithSecrets {
			m.secrets[child.ID] = maps.Clone(m.secrets[c.ID])
		}
		if err := m.reach(child.ID, spec.Network, m.policies[c.ID]); err != nil {
			return out, err
		}
		m.computers[child.ID] = &child
		out.Computers = append(out.Computers, holt.ForkedComputer{ID: child.ID, Name: name})
	}
	return out, nil
}

type moments struct{ m *Memory }

func (n moments) List(_ context.Context, computer string) ([]holt.Moment, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	var id holt.ComputerID
	if computer != "" {
		c, err := n.m.computer(computer)
		if err != nil {
			return nil, err
		}
		id = c.ID
	}
	all := []holt.Moment{}
	for _, one := range n.m.moments {
		if id == "" || one.ComputerID == id {
			all = append(all, n.m.withForks(one))
		}
	}
	return all, nil
}

func (m *Memory) withForks(one holt.Moment) holt.Moment {
	for _, c := range m.computers {
		if c.Parent != nil && c.Parent.Moment == one.ID {
			one.Forks = append(one.Forks, holt.Dependent{ID: c.ID, Name: c.Name})
		}
	}
	slices.SortFunc(one.Forks, byName)
	return one
}

// orphan removes the moments of a computer that is gone, and says which computers came from it;
// the lock is held.
func (m *Memory) orphan(c *holt.Computer) (out holt.DeletedComputer) {
	m.moments = slices.DeleteFunc(m.moments, func(one holt.Moment) bool {
		if one.ComputerID == c.ID {
			out.Moments = append(out.Moments, holt.NamedMoment{ID: one.ID, Name: one.Name})
		}
		return one.ComputerID == c.ID
	})
	for _, child := range m.computers {
		if child.Parent != nil && child.Parent.ID == c.ID {
			child.Parent = &holt.Origin{ID: c.ID, Was: c.Name, Moment: child.Parent.Moment}
			out.Forks = append(out.Forks, holt.Dependent{ID: child.ID, Name: child.Name})
		}
	}
	slices.SortFunc(out.Forks, byName)
	return out
}

func byName(a, b holt.Dependent) int { return cmp.Compare(a.Name, b.Name) }

func (n moments) Get(_ context.Context, ref string) (holt.Moment, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	at, err := n.m.moment(ref)
	if err != nil {
		return holt.Moment{}, err
	}
	return n.m.withForks(n.m.moments[at]), nil
}

func (n moments) Delete(_ context.Context, ref, key string) (holt.MomentFreed, error) {
	return once(n.m, key, []any{"delete moment", ref}, func() (holt.MomentFreed, error) {
		at, err := n.m.moment(ref)
		if err != nil {
			return holt.MomentFreed{}, err
		}
		freed := holt.MomentFreed{Bytes: 1, Forks: n.m.withForks(n.m.moments[at]).Forks}
		n.m.moments = slices.Delete(n.m.moments, at, at+1)
		return freed, nil
	})
}

func (n moments) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	return once(n.m, key, []any{"fork moment", ref, spec}, func() (holt.ForkedComputers, error) {
		at, err := n.m.moment(ref)
		if err != nil {
			return holt.ForkedComputers{}, err
		}
		c, err := n.m.computer(string(n.m.moments[at].ComputerID))
		if err != nil {
			return holt.ForkedComputers{}, err
		}
		return n.m.fork(c, n.m.moments[at], spec)
	})
}

// Restore goes back by name only: files stay as they are here.
func (n moments) Restore(_ context.Context, ref string, spec holt.MomentRestoreSpec, key string) (holt.RestoredComputer, error) {
	return once(n.m, key, []any{"restore moment", ref, spec}, func() (out holt.RestoredComputer, err error) {
		at, err := n.m.moment(ref)
		if err != nil {
			return out, err
		}
		target := n.m.moments[at]
		c, err := n.m.computer(string(target.ComputerID))
		if err != nil {
			return out, err
		}
		name := cmp.Or(spec.Name, "before-restore")
		for i := 2; spec.Name == "" && n.m.hasMoment(c, name); i++ {
			name = fmt.Sprintf("before-restore-%d", i)
		}
		if n.m.hasMoment(c, name) {
			return out, holt.Errorf(holt.AlreadyExists, "%s has a moment %q already", c.Name, name).WithHint("choose another name")
		}
		out.Present = n.m.take(c, name, holt.MomentSnapshot)
		c.LastMoment, c.State = target.ID, holt.ComputerRunning
		out.Computer = *c
		return out, nil
	})
}

func (m *Memory) hasMoment(c *holt.Computer, name string) bool {
	return slices.ContainsFunc(m.moments, func(one holt.Moment) bool { return one.ComputerID == c.ID && one.Name == name })
}

// Diff compares only what is known here: that both are there.
func (n moments) Diff(_ context.Context, from, to string) (d holt.ComputerDiff, err error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	for i, ref := range []string{from, to} {
		side := []*holt.DiffSide{&d.From, &d.To}[i]
		c, err := n.m.computer(ref)
		if k, lost := n.m.moment(ref); err != nil && lost == nil {
			side.Moment, side.Name = n.m.moments[k].ID, n.m.moments[k].Name
			c, err = n.m.computer(string(n.m.moments[k].ComputerID))
		}
		if err != nil {
			return d, err
		}
		side.Computer, side.Workspace, side.Unlisted = c.Name, c.Workspace, "nothing runs here"
	}
	d.Unlisted = true
	d.Files.Changes, d.RootFiles.Changes, d.Packages.Changes = []holt.Change{}, []holt.Change{}, []holt.PackageChange{}
	d.Processes.Gone, d.Processes.Came, d.Ports.Gone, d.Ports.Came = []holt.Process{}, []holt.Process{}, []holt.Port{}, []holt.Port{}
	return d, nil
}
