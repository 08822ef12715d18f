package authz

import (
	"context"
	"slices"
	"strings"

	"holt"
	"holt/internal/api"
)

// seesEvent hides events about what a token does not cover.
func seesEvent(ctx context.Context, e holt.Event) error {
	if a, free, err := free(ctx, look); err != nil || !free && !tells(a.Rights, e) {
		return denied(a)
	}
	return nil
}

// tells reports whether rights cover the subject of an event. Only ids are compared: a deleted thing has no name.
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

// file is the right to the file of an upload: that of writing it at once. The context that it returns cannot leave what is covered.
func (w *warden) file(ctx context.Context, spec holt.UploadSpec, u use) (context.Context, error) {
	if spec.Workspace != "" {
		if u == change {
			return w.owned(ctx, spec.Workspace, string(spec.Path), spec.User)
		}
		return w.files(ctx, spec.Workspace, string(spec.Path), u)
	}
	return ctx, w.inside(ctx, spec.Computer, "root", u) // as [api.ComputerFiles]
}

// upload is the rule of calls about an existing upload.
func (w *warden) upload(u use) rule {
	return func(ctx context.Context, in any) (context.Context, error) {
		a, free, err := free(ctx, u)
		if err != nil || free {
			return ctx, err
		}
		one, err := w.n.Uploads.Get(ctx, holt.UploadID(api.Text(in, "Upload")))
		if holt.CodeOf(err) == holt.NotFound {
			return ctx, denied(a)
		}
		if err != nil {
			return ctx, err
		}
		return w.file(ctx, one.Spec, u)
	}
}

func (w *warden) seesUpload(ctx context.Context, one holt.Upload) error {
	if _, free, err := free(ctx, look); err != nil || free {
		return err
	}
	_, err := w.file(ctx, one.Spec, look)
	return err
}
