package servertest

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holt"
	"holt/internal/workspace"
)

// workspace finds one; the lock is held.
func (m *Memory) workspace(ref string) (*holt.Workspace, error) {
	for id, w := range m.workspaces {
		if string(id) == ref || w.Name == ref {
			return w, nil
		}
	}
	return nil, holt.Errorf(holt.NotFound, "there is no workspace %q", ref).WithHint("holt workspace list shows what there is")
}

// attach gives a new computer its workspace; the lock is held.
func (m *Memory) attach(c *holt.Computer, existing string) error {
	if existing == "" {
		w := &holt.Workspace{ID: holt.NewWorkspaceID(), Name: c.Name, CreatedAt: c.CreatedAt, Computer: c.Name}
		m.workspaces[w.ID] = w
		return nil
	}
	w, err := m.workspace(existing)
	if err != nil {
		return err
	}
	if w.Computer != "" {
		return holt.Errorf(holt.Conflict, "computer %q has the workspace", w.Computer)
	}
	w.Computer = c.Name
	return nil
}

// detach takes it away again and removes the one that was made with it.
func (m *Memory) detach(c *holt.Computer) {
	for id, w := range m.workspaces {
		if w.Computer == c.Name {
			w.Computer = ""
			if w.Name == c.Name {
				delete(m.workspaces, id)
			}
		}
	}
}

type workspaces struct{ m *Memory }

func (n workspaces) Create(_ context.Context, spec holt.WorkspaceSpec, key string) (holt.Workspace, error) {
	return once(n.m, key, []any{"create workspace", spec}, func() (holt.Workspace, error) {
		if _, err := n.m.workspace(spec.Name); err == nil {
			return holt.Workspace{}, holt.Errorf(holt.AlreadyExists, "there is a workspace %q already", spec.Name)
		}
		w := &holt.Workspace{ID: holt.NewWorkspaceID(), Name: spec.Name, CreatedAt: time.Now().UTC(), Quota: spec.Quota}
		n.m.workspaces[w.ID] = w
		return *w, nil
	})
}

func (n workspaces) Get(_ context.Context, ref string) (holt.Workspace, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	w, err := n.m.workspace(ref)
	if err != nil {
		return holt.Workspace{}, err
	}
	return *w, nil
}

func (n workspaces) List(context.Context) ([]holt.Workspace, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	var all []holt.Workspace
	for _, w := range n.m.workspaces {
		all = append(all, *w)
	}
	return all, nil
}

func (n workspaces) Delete(_ context.Context, ref, key string) error {
	_, err := once(n.m, key, []any{"delete workspace", ref}, func() (struct{}, error) {
		w, err := n.m.workspace(ref)
		if err != nil {
			return struct{}{}, err
		}
		if w.Computer != "" || len(w.Mounts) > 0 {
			return struct{}{}, holt.Errorf(holt.Conflict, "workspace %q is in use", w.Name).WithHint("delete its computer or unmount it first")
		}
		delete(n.m.workspaces, w.ID)
		for _, one := range n.m.workspaces {
			if p := one.Parent; p != nil && p.ID == w.ID {
				one.Parent = &holt.ForkPoint{ID: p.ID, Was: w.Name, Checkpoint: p.Checkpoint}
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (n workspaces) Check(ctx context.Context, ref string) (holt.CheckReport, error) {
	_, err := n.Get(ctx, ref)
	return holt.CheckReport{Inodes: 1}, err
}

// Query asks the trees behind workspaces. Of one that a computer has it knows
// one question: which files there are.
func (n workspaces) Query(ctx context.Context, ref string, q holt.QuerySpec) (holt.QueryResult, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	name, at := holt.CutCheckpoint(ref)
	w, err := n.m.workspace(name)
	if err != nil {
		return holt.QueryResult{}, err
	}
	if w.Computer != "" {
		return n.homeFiles(w, q)
	}
	asked, err := n.asked(w, cmp.Or(at, q.At), q)
	if err != nil {
		return holt.QueryResult{}, err
	}
	limits := workspace.Limits{Rows: q.MaxRows, Time: time.Duration(q.TimeoutMS) * time.Millisecond}
	if len(q.Also) == 0 && !q.Forks {
		return asked[0].Query(ctx, q.SQL, limits)
	}
	return workspace.QueryAcross(ctx, asked, q.SQL, limits)
}

// asked lists the workspaces that a query is about; forks of forks are left out.
func (n workspaces) asked(first *holt.Workspace, at string, q holt.QuerySpec) (all []workspace.QuerySource, err error) {
	add := func(w *holt.Workspace, at string) error {
		t, err := n.m.treeLocked(w.Name)
		all = append(all, workspace.QuerySource{W: t, At: at, Name: w.Name})
		return err
	}
	if err := add(first, at); err != nil {
		return nil, err
	}
	for _, ref := range q.Also {
		name, at := holt.CutCheckpoint(ref)
		w, err := n.m.workspace(name)
		if err == nil {
			err = add(w, cmp.Or(at, q.At))
		}
		if err != nil {
			return nil, err
		}
	}
	for _, w := range n.m.workspaces {
		if q.Forks && w.Parent != nil && w.Parent.ID == first.ID {
			if err := add(w, q.At); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (n workspaces) homeFiles(w *holt.Workspace, q holt.QuerySpec) (holt.QueryResult, error) {
	if !strings.HasPrefix(strings.ToUpper(q.SQL), "SELECT") {
		return holt.QueryResult{}, holt.Errorf(holt.InvalidArgument, "only SELECT is allowed").WithHint("for example: SELECT path FROM files")
	}
	result := holt.QueryResult{Columns: []string{"path", "size", "big", "note"}, ElapsedMS: 0.5}
	c, err := n.m.computer(w.Computer)
	if err != nil {
		return result, err
	}
	home := n.m.home(c)
	err = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(home, path)
		if q.MaxRows > 0 && len(result.Rows) == q.MaxRows {
			result.Truncated = true
			return filepath.SkipAll
		}
		result.Rows = append(result.Rows, []any{name, info.Size(), int64(9007199254740993), nil})
		return nil
	})
	return result, err
}

func (n workspaces) Update(_ context.Context, ref string, to holt.WorkspaceUpdate, key string) (holt.Workspace, error) {
	return once(n.m, key, []any{"update workspace", ref, to}, func() (holt.Workspace, error) {
		name, err := holt.ParseName(to.Name)
		if err != nil {
			return holt.Workspace{}, err
		}
		w, err := n.m.workspace(ref)
		if err != nil {
			return holt.Workspace{}, err
		}
		if other, err := n.m.workspace(name); err == nil && other != w {
			return holt.Workspace{}, holt.Errorf(holt.AlreadyExists, "there is a workspace %q already", name).WithHint("choose another name")
		}
		for _, c := range n.m.computers {
			if c.Workspace == w.Name {
				c.Workspace = name
			}
		}
		w.Name = name
		return *w, nil
	})
}

func (n workspaces) Mounts(context.Context) ([]holt.HostMount, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	all := []holt.HostMount{}
	for _, w := range n.m.workspaces {
		for _, m := range w.Mounts {
			all = append(all, holt.HostMount{Mount: m, WorkspaceID: w.ID, Workspace: w.Name, Tenant: w.Tenant})
		}
	}
	return all, nil
}

func (n workspaces) Mount(_ context.Context, ref string, spec holt.MountSpec, key string) (holt.Mount, error) {
	return once(n.m, key, []any{"mount", ref, spec}, func() (holt.Mount, error) {
		w, err := n.m.workspace(ref)
		if err != nil {
			return holt.Mount{}, err
		}
		if info, err := os.Stat(spec.Dir); err != nil || !info.IsDir() {
			return holt.Mount{}, holt.Errorf(holt.InvalidArgument, "%s is not a directory", spec.Dir).WithHint("make it first")
		}
		mount := holt.Mount(spec)
		w.Mounts = append(w.Mounts, mount)
		return mount, nil
	})
}

func (n workspaces) Unmount(_ context.Context, dir, key string) error {
	_, err := once(n.m, key, []any{"unmount", dir}, func() (struct{}, error) {
		for _, w := range n.m.workspaces {
			if i := slices.IndexFunc(w.Mounts, func(m holt.Mount) bool { return m.Dir == dir }); i >= 0 {
				w.Mounts = slices.Delete(w.Mounts, i, i+1)
				return struct{}{}, nil
			}
		}
		return struct{}{}, holt.Errorf(holt.NotFound, "nothing is mounted at %s", dir).WithHint("holt workspace list shows mounts")
	})
	return err
}
