package authz

import (
	"context"
	"slices"
	"strings"

	"holt"
	"holt/internal/api"
)

// seesEvent hides events about objects that the token does not cover.
func seesEvent(ctx context.Context, e holt.Event) error {
	if a, free, err := unrestricted(ctx, read); err != nil || !free && !coversEvent(a.Rights, e) {
		return forbidden(a)
	}
	return nil
}

// coversEvent reports whether rights cover the object of an event. Only ids are compared, since names of deleted
// objects cannot be looked up.
func coversEvent(r holt.Rights, e holt.Event) bool {
	noun, _, _ := strings.Cut(string(e.Kind), ".")
	switch noun {
	case "ready", "reset":
		return true
	case "workspace", "checkpoint":
		if !r.User("agent") { // agent owns the files
			return false
		}
		if slices.ContainsFunc(r.Workspaces, func(s holt.WorkspaceScope) bool { return string(s.Workspace) == e.Ref }) {
			return true
		}
	case "run", "terminal", "schedule", "firing": // events do not name the Linux user
		if len(r.Users) > 0 {
			return false
		}
	case "job":
		return !r.Narrow() && len(r.Users) == 0
	}
	return !r.Narrow() || e.Computer != "" && slices.Contains(r.Computers, e.Computer)
}

// uploadTarget checks the right to write the file of an upload. The context that it returns confines the call to the
// directory that the token covers.
func (g *guard) uploadTarget(ctx context.Context, spec holt.UploadSpec, op operation) (context.Context, error) {
	if spec.Workspace != "" {
		if op == write {
			return g.filesAs(ctx, spec.Workspace, string(spec.Path), spec.User)
		}
		return g.files(ctx, spec.Workspace, string(spec.Path), op)
	}
	return ctx, g.asUser(ctx, spec.Computer, "root", op) // as in [api.ComputerFiles]
}

// upload returns the rule of calls about an existing upload.
func (g *guard) upload(op operation) rule {
	return func(ctx context.Context, in any) (context.Context, error) {
		a, free, err := unrestricted(ctx, op)
		if err != nil || free {
			return ctx, err
		}
		one, err := g.n.Uploads.Get(ctx, holt.UploadID(api.Text(in, "Upload")))
		if holt.CodeOf(err) == holt.NotFound {
			return ctx, forbidden(a)
		}
		if err != nil {
			return ctx, err
		}
		return g.uploadTarget(ctx, one.Spec, op)
	}
}

func (g *guard) seesUpload(ctx context.Context, one holt.Upload) error {
	if _, free, err := unrestricted(ctx, read); err != nil || free {
		return err
	}
	_, err := g.uploadTarget(ctx, one.Spec, read)
	return err
}
