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

func (n computers) Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (holt.Snapshot, error) {
	if err := n.m.before(ctx, key); err != nil {
		return holt.Snapshot{}, err
	}
	return once(n.m, key, []any{"snapshot", ref, spec}, func() (holt.Snapshot, error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return holt.Snapshot{}, err
		}
		if c.State != holt.ComputerRunning {
			return holt.Snapshot{}, holt.Errorf(holt.Conflict, "%s is %s", c.Name, c.State)
		}
		if spec.Name != "" && n.m.hasSnapshot(c, spec.Name) {
			return holt.Snapshot{}, holt.Errorf(holt.AlreadyExists, "%s has a snapshot %q already", c.Name, spec.Name).WithHint("choose another name")
		}
		return n.m.take(c, spec.Name, holt.SnapshotManual), nil
	})
}

// take keeps a snapshot; the lock is held.
func (m *Memory) take(c *holt.Computer, name string, kind holt.SnapshotKind) holt.Snapshot {
	one := holt.Snapshot{
		ID: holt.NewSnapshotID(), Name: name, Kind: kind, ComputerID: c.ID, Computer: c.Name, CreatedAt: time.Now().UTC(),
		CPUs: c.CPUs, MemoryMB: c.MemoryMB, Bytes: 1, Workspace: c.Workspace, Parent: c.LastSnapshot,
	}
	c.LastSnapshot = one.ID
	m.snapshots = append(m.snapshots, one)
	return one
}

// snapshot finds one; the lock is held.
func (m *Memory) snapshot(ref string) (int, error) {
	name, whose, shown := ref, holt.ComputerID(""), ""
	if computer, at := holt.CutCheckpoint(ref); at != "" {
		c, err := m.computer(computer)
		if err != nil {
			return -1, err
		}
		name, whose, shown = at, c.ID, c.Name
	}
	at := slices.IndexFunc(m.snapshots, func(one holt.Snapshot) bool {
		return (string(one.ID) == name || one.Name == name) && (whose == "" || one.ComputerID == whose)
	})
	if at < 0 {
		return at, holt.Errorf(holt.NotFound, "there is no snapshot %q", name).WithHint("holt snapshot list %s shows those there are", shown)
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
		var from holt.Snapshot
		if spec.At == "" {
			from = n.m.take(c, "", holt.SnapshotOfFork)
		} else if at, err := n.m.snapshot(spec.At); err != nil {
			return out, err
		} else {
			from = n.m.snapshots[at]
		}
		return n.m.fork(c, from, spec)
	})
}

// fork makes computers with the files that c has now; the lock is held.
func (m *Memory) fork(c *holt.Computer, from holt.Snapshot, spec holt.ComputerForkSpec) (out holt.ForkedComputers, err error) {
	out.Snapshot = from.ID
	for i := range cmp.Or(spec.Count, 1) {
		name := cmp.Or(spec.Name, c.Name+"-1")
		if spec.Count > 1 {
			name = fmt.Sprintf("%s-%d", cmp.Or(spec.Name, c.Name), i+1)
		}
		child := *c
		child.ID, child.Name, child.Workspace, child.State = holt.NewComputerID(), name, name, holt.ComputerRunning
		child.Parent = &holt.Origin{ID: c.ID, Name: c.Name, Snapshot: from.ID}
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

type snapshots struct{ m *Memory }

func (n snapshots) List(_ context.Context, computer string) ([]holt.Snapshot, error) {
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
	all := []holt.Snapshot{}
	for _, one := range n.m.snapshots {
		if id == "" || one.ComputerID == id {
			all = append(all, n.m.withForks(one))
		}
	}
	return all, nil
}

func (m *Memory) withForks(one holt.Snapshot) holt.Snapshot {
	for _, c := range m.computers {
		if c.Parent != nil && c.Parent.Snapshot == one.ID {
			one.Forks = append(one.Forks, holt.Dependent{ID: c.ID, Name: c.Name})
		}
	}
	slices.SortFunc(one.Forks, byName)
	return one
}

// orphan removes the snapshots of a computer that is gone, and says which computers came from it;
// the lock is held.
func (m *Memory) orphan(c *holt.Computer) (out holt.DeletedComputer) {
	m.snapshots = slices.DeleteFunc(m.snapshots, func(one holt.Snapshot) bool {
		if one.ComputerID == c.ID {
			out.Snapshots = append(out.Snapshots, holt.NamedSnapshot{ID: one.ID, Name: one.Name})
		}
		return one.ComputerID == c.ID
	})
	for _, child := range m.computers {
		if child.Parent != nil && child.Parent.ID == c.ID {
			child.Parent = &holt.Origin{ID: c.ID, Was: c.Name, Snapshot: child.Parent.Snapshot}
			out.Forks = append(out.Forks, holt.Dependent{ID: child.ID, Name: child.Name})
		}
	}
	slices.SortFunc(out.Forks, byName)
	return out
}

func byName(a, b holt.Dependent) int { return cmp.Compare(a.Name, b.Name) }

func (n snapshots) Get(_ context.Context, ref string) (holt.Snapshot, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	at, err := n.m.snapshot(ref)
	if err != nil {
		return holt.Snapshot{}, err
	}
	return n.m.withForks(n.m.snapshots[at]), nil
}

func (n snapshots) Delete(_ context.Context, ref, key string) (holt.SnapshotFreed, error) {
	return once(n.m, key, []any{"delete snapshot", ref}, func() (holt.SnapshotFreed, error) {
		at, err := n.m.snapshot(ref)
		if err != nil {
			return holt.SnapshotFreed{}, err
		}
		freed := holt.SnapshotFreed{Bytes: 1, Forks: n.m.withForks(n.m.snapshots[at]).Forks}
		n.m.snapshots = slices.Delete(n.m.snapshots, at, at+1)
		return freed, nil
	})
}

func (n snapshots) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	return once(n.m, key, []any{"fork snapshot", ref, spec}, func() (holt.ForkedComputers, error) {
		at, err := n.m.snapshot(ref)
		if err != nil {
			return holt.ForkedComputers{}, err
		}
		c, err := n.m.computer(string(n.m.snapshots[at].ComputerID))
		if err != nil {
			return holt.ForkedComputers{}, err
		}
		return n.m.fork(c, n.m.snapshots[at], spec)
	})
}

// Restore goes back by name only: files stay as they are here.
func (n snapshots) Restore(_ context.Context, ref string, spec holt.SnapshotRestoreSpec, key string) (holt.RestoredComputer, error) {
	return once(n.m, key, []any{"restore snapshot", ref, spec}, func() (out holt.RestoredComputer, err error) {
		at, err := n.m.snapshot(ref)
		if err != nil {
			return out, err
		}
		target := n.m.snapshots[at]
		c, err := n.m.computer(string(target.ComputerID))
		if err != nil {
			return out, err
		}
		name := cmp.Or(spec.Name, "before-restore")
		for i := 2; spec.Name == "" && n.m.hasSnapshot(c, name); i++ {
			name = fmt.Sprintf("before-restore-%d", i)
		}
		if n.m.hasSnapshot(c, name) {
			return out, holt.Errorf(holt.AlreadyExists, "%s has a snapshot %q already", c.Name, name).WithHint("choose another name")
		}
		out.Present = n.m.take(c, name, holt.SnapshotManual)
		c.LastSnapshot, c.State = target.ID, holt.ComputerRunning
		out.Computer = *c
		return out, nil
	})
}

func (m *Memory) hasSnapshot(c *holt.Computer, name string) bool {
	return slices.ContainsFunc(m.snapshots, func(one holt.Snapshot) bool { return one.ComputerID == c.ID && one.Name == name })
}

// Diff compares only what is known here: that both are there.
func (n snapshots) Diff(_ context.Context, from, to string) (d holt.ComputerDiff, err error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	for i, ref := range []string{from, to} {
		side := []*holt.DiffSide{&d.From, &d.To}[i]
		c, err := n.m.computer(ref)
		if k, lost := n.m.snapshot(ref); err != nil && lost == nil {
			side.Snapshot, side.Name = n.m.snapshots[k].ID, n.m.snapshots[k].Name
			c, err = n.m.computer(string(n.m.snapshots[k].ComputerID))
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
