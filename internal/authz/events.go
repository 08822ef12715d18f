package authz

import (
	"context"
	"io"
	"slices"
	"strings"

	"holt"
)

// events is [httpapi.Events]: what a token may not look at it is not told of.
type events struct{ w *warden }

func (n events) Follow(ctx context.Context, q holt.EventQuery, emit func(holt.Event) error) error {
	a, free, err := free(ctx, look)
	if err != nil {
		return err
	}
	if a.Computer != "" {
		return denied(a)
	}
	if free {
		return n.w.n.Events.Follow(ctx, q, emit)
	}
	return n.w.n.Events.Follow(ctx, q, func(e holt.Event) error {
		if !tells(a.Rights, e) {
			return nil
		}
		return emit(e)
	})
}

// tells says whether rights cover what an event is of. It is held against ids alone: what is gone has no other.
func tells(r holt.Rights, e holt.Event) bool {
	noun, _, _ := strings.Cut(string(e.Kind), ".")
	switch noun {
	case "ready", "reset":
		return true
	case "workspace", "checkpoint":
		if !r.User("agent") { // whose its files are
			return false
		}
		if slices.ContainsFunc(r.Workspaces, func(s holt.WorkspaceScope) bool { return string(s.Workspace) == e.Ref }) {
			return true
		}
	case "run", "terminal", "schedule", "firing": // they are of a Linux user, which events do not name
		if len(r.Users) > 0 {
			return false
		}
	case "job":
		return !r.Narrow() && len(r.Users) == 0
	}
	return !r.Narrow() || e.Computer != "" && slices.Contains(r.Computers, e.Computer)
}

// uploads is [httpapi.Uploads]: they are about the file that they will be.
type uploads struct{ w *warden }

// file asks about the file of an upload, as writing it at once does. The context that it returns cannot leave what is covered.
func (w *warden) file(ctx context.Context, spec holt.UploadSpec, u use) (context.Context, error) {
	if spec.Workspace != "" {
		if u == change {
			return w.owned(ctx, spec.Workspace, string(spec.Path), spec.User)
		}
		return w.files(ctx, spec.Workspace, string(spec.Path), u)
	}
	return ctx, w.inside(ctx, spec.Computer, "root", u) // as [files]
}

// upload asks about one that there is.
func (w *warden) upload(ctx context.Context, id holt.UploadID, u use) (context.Context, error) {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return ctx, err
	}
	one, err := w.n.Uploads.Get(ctx, id)
	if holt.CodeOf(err) == holt.NotFound {
		return ctx, denied(a)
	}
	if err != nil {
		return ctx, err
	}
	return w.file(ctx, one.Spec, u)
}

func (n uploads) Create(ctx context.Context, spec holt.UploadSpec, key string) (holt.Upload, error) {
	ctx, err := n.w.file(ctx, spec, change)
	if err != nil {
		return holt.Upload{}, err
	}
	return n.w.n.Uploads.Create(ctx, spec, key)
}

func (n uploads) Get(ctx context.Context, id holt.UploadID) (holt.Upload, error) {
	ctx, err := n.w.upload(ctx, id, look)
	if err != nil {
		return holt.Upload{}, err
	}
	return n.w.n.Uploads.Get(ctx, id)
}

func (n uploads) List(ctx context.Context) ([]holt.Upload, error) {
	a, free, err := free(ctx, look)
	if err == nil && a.Computer != "" {
		err = denied(a)
	}
	if err != nil {
		return nil, err
	}
	list, err := n.w.n.Uploads.List(ctx)
	if err != nil || free {
		return list, err
	}
	kept := []holt.Upload{}
	for _, one := range list {
		switch _, err := n.w.file(ctx, one.Spec, look); {
		case err == nil:
			kept = append(kept, one)
		case holt.CodeOf(err) != holt.Forbidden:
			return nil, err
		}
	}
	return kept, nil
}

// Halt may end with a commit.
func (n uploads) Halt(ctx context.Context, id holt.UploadID) (holt.Upload, error) {
	ctx, err := n.w.upload(ctx, id, change)
	if err != nil {
		return holt.Upload{}, err
	}
	return n.w.n.Uploads.Halt(ctx, id)
}

func (n uploads) Append(ctx context.Context, id holt.UploadID, offset int64, sum string, r io.Reader) (holt.Upload, error) {
	ctx, err := n.w.upload(ctx, id, change)
	if err != nil {
		return holt.Upload{}, err
	}
	return n.w.n.Uploads.Append(ctx, id, offset, sum, r)
}

func (n uploads) Commit(ctx context.Context, id holt.UploadID, spec holt.UploadCommit) (holt.Upload, error) {
	ctx, err := n.w.upload(ctx, id, change)
	if err != nil {
		return holt.Upload{}, err
	}
	return n.w.n.Uploads.Commit(ctx, id, spec)
}

func (n uploads) Delete(ctx context.Context, id holt.UploadID, key string) error {
	ctx, err := n.w.upload(ctx, id, change)
	if err != nil {
		return err
	}
	return n.w.n.Uploads.Delete(ctx, id, key)
}
