package servertest

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/workspace"
)

func (n workspaces) Fork(ctx context.Context, ref string, spec holt.ForkSpec, key string) (holt.Forked, error) {
	return once(n.m, key, []any{"fork", ref, spec}, func() (out holt.Forked, err error) {
		parent, err := n.m.workspace(ref)
		if err != nil {
			return out, err
		}
		for i := range cmp.Or(spec.Count, 1) {
			name := cmp.Or(spec.Name, parent.Name)
			if spec.Count > 1 || spec.Name == "" {
				name = fmt.Sprintf("%s-%d", name, i+1)
			}
			w, err := n.fork(ctx, parent, name, &spec.At)
			switch {
			case err == nil:
				out.Workspaces = append(out.Workspaces, holt.ForkedWorkspace{Name: name, Workspace: w})
			case spec.Count > 1:
				out.Workspaces = append(out.Workspaces, holt.ForkedWorkspace{Name: name, Error: holt.AsError(err)})
			default:
				return out, err
			}
		}
		return out, nil
	})
}

func (n workspaces) fork(ctx context.Context, parent *holt.Workspace, name string, at *string) (*holt.Workspace, error) {
	if _, err := n.m.workspace(name); err == nil {
		return nil, holt.Errorf(holt.AlreadyExists, "there is a workspace %q already", name)
	}
	t, err := n.m.treeLocked(parent.Name)
	if err != nil {
		return nil, err
	}
	id := holt.NewWorkspaceID()
	dir := filepath.Join(n.m.dir, string(id))
	point, err := t.Fork(ctx, dir, workspace.ForkOptions{At: *at, Name: parent.Name, Child: name})
	if err != nil {
		return nil, err
	}
	if n.m.trees[id], err = workspace.Open(dir, workspace.Options{}); err != nil {
		return nil, err
	}
	*at = point.Name
	w := &holt.Workspace{ID: id, Name: name, CreatedAt: time.Now().UTC(), Files: parent.Files, Bytes: parent.Bytes,
		Parent: &holt.ForkPoint{ID: parent.ID, Name: parent.Name, Checkpoint: point.Name}}
	n.m.workspaces[id] = w
	return w, nil
}

func (n workspaces) Merge(ctx context.Context, ref string, spec holt.MergeSpec, key string) (holt.MergeReport, error) {
	return once(n.m, key, []any{"merge", ref, spec}, func() (out holt.MergeReport, err error) {
		from, err := n.m.treeLocked(spec.From)
		if err != nil {
			return out, err
		}
		into, err := n.m.treeLocked(ref)
		if err != nil {
			return out, err
		}
		return workspace.History{W: into}.Merge(ctx, from, spec.From, ref, spec)
	})
}
