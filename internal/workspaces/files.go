package workspaces

import (
	"context"
	"io"
	"path"
	"strconv"
	"strings"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/workspace"
)

// Files are the files of workspaces, by paths that begin at their root; see
// [holt/internal/nouns.Files]. A read comes from the workspace itself. A
// change goes through the guest of the computer that runs with the workspace, so
// that file watchers there see it; if none runs, directly to the workspace.
type Files struct{ w *Store }

// Files returns the files of all workspaces.
func (s *Store) Files() Files { return Files{s} }

// guest returns the running computer that has a workspace; "" if none does, or if
// the caller is confined to a directory: only the workspace itself enforces that.
func (f Files) guest(ctx context.Context, ref string) (string, error) {
	r, err := f.w.table.find(ctx, ref)
	if err != nil || holt.BeneathOf(ctx) != "" {
		return "", err
	}
	c, has, err := f.w.having(ctx, r.id)
	if err != nil || !has || c.State != holt.ComputerRunning {
		return "", err
	}
	return string(c.ID), nil
}

// inGuest returns the path of a workspace's file in a computer.
func inGuest[S ~string](p S) S { return S(path.Join(workspace.Home, path.Clean("/"+string(p)))) }

// atHome confines calls on a computer's files to its workspace, whatever symbolic links are there: the guest
// does them as root, and the caller may have rights on the workspace only.
func atHome(ctx context.Context) context.Context { return holt.Beneath(ctx, workspace.Home) }

// fromGuest turns a path in a computer into a path in its workspace.
func fromGuest(info holt.FileInfo, err error) (holt.FileInfo, error) {
	if info.Path = holt.OSString(strings.TrimPrefix(string(info.Path), workspace.Home)); info.Path == "" {
		info.Path, info.Name = "/", ""
	}
	return info, err
}

// use calls fn with a workspace's files.
func (f Files) use(ctx context.Context, ref, owner string, fn func(context.Context, workspace.Files) error) error {
	c := workspace.Caller{UID: agentUID, GID: agentUID, Writer: WriterOf(ctx)}
	switch id, err := strconv.ParseUint(owner, 10, 32); {
	case owner == "root":
		c.UID, c.GID = 0, 0
	case owner == "" || owner == "agent":
	case err == nil:
		c.UID, c.GID = uint32(id), uint32(id)
	default:
		return holt.Errorf(holt.InvalidArgument, "the user %q is not known, because no computer runs with the workspace", clip(owner)).
			WithHint("use agent, root or a number, or start the computer")
	}
	return f.w.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		defer f.w.open.kernels.settle(ctx, ws)
		defer ws.BeginDirectChange()()
		return fn(ctx, workspace.Files{Tree: ws.Tree(), Caller: c, Inherit: owner == "", Beneath: holt.BeneathOf(ctx), Changed: f.w.open.kernels.changed(ws)})
	})
}

// read calls fn with a workspace's files for reading. If ref is
// WORKSPACE@CHECKPOINT, the files are those of the checkpoint.
func (f Files) read(ctx context.Context, ref string, fn func(context.Context, workspace.Files) error) error {
	ref, checkpoint := holt.CutCheckpoint(ref)
	return f.w.use(ctx, ref, reading(checkpoint, fn))
}

// reading calls fn with the files of a workspace at a checkpoint; "" is the present.
func reading(checkpoint string, fn func(context.Context, workspace.Files) error) func(context.Context, *workspace.Workspace) error {
	return func(ctx context.Context, ws *workspace.Workspace) error {
		files := workspace.Files{Tree: ws.Tree(), Beneath: holt.BeneathOf(ctx)}
		if checkpoint != "" && checkpoint != holt.Live {
			var err error
			if files.At, err = ws.At(checkpoint); err != nil {
				return err
			}
		}
		return fn(ctx, files)
	}
}

func (f Files) Stat(ctx context.Context, ref, path string) (info holt.FileInfo, err error) {
	err = f.read(ctx, ref, func(ctx context.Context, files workspace.Files) error {
		info, err = files.Stat(path)
		return err
	})
	return info, err
}

func (f Files) List(ctx context.Context, ref, path string, spec holt.PageSpec) (page holt.Page[holt.FileInfo], err error) {
	err = f.read(ctx, ref, func(ctx context.Context, files workspace.Files) error {
		page, err = files.List(path, spec)
		return err
	})
	return page, err
}

func (f Files) Read(ctx context.Context, ref, path string, off, n int64, w io.Writer) error {
	return f.read(ctx, ref, func(ctx context.Context, files workspace.Files) error { return files.Read(ctx, path, off, n, w) })
}

func (f Files) Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (info holt.FileInfo, err error) {
	if mode := max(spec.Mode, spec.NewMode); mode > 0o7777 {
		return info, holt.Errorf(holt.InvalidArgument, "invalid file mode %#o", mode).WithHint("use octal permission bits, at most 07777")
	}
	guest, err := f.guest(ctx, ref)
	if err != nil {
		return info, err
	}
	if guest != "" {
		return fromGuest(f.w.inGuests.Write(atHome(ctx), guest, inGuest(path), spec, r))
	}
	err = f.use(ctx, ref, spec.User, func(ctx context.Context, files workspace.Files) error {
		info, err = files.Write(ctx, path, spec, r)
		return err
	})
	return info, err
}

func (f Files) Mkdir(ctx context.Context, ref string, spec holt.MkdirSpec, key string) (holt.FileInfo, error) {
	return once(ctx, f, "mkdir", key, []any{ref, spec}, func(ctx context.Context) (info holt.FileInfo, err error) {
		guest, err := f.guest(ctx, ref)
		if err != nil {
			return info, err
		}
		if guest != "" {
			spec.Path = inGuest(spec.Path)
			return fromGuest(f.w.inGuests.Mkdir(atHome(ctx), guest, spec, ""))
		}
		err = f.use(ctx, ref, spec.User, func(ctx context.Context, files workspace.Files) error {
			info, err = files.Mkdir(string(spec.Path), spec.Mode, spec.Parents)
			return err
		})
		return info, err
	})
}

func (f Files) Symlink(ctx context.Context, ref string, spec holt.SymlinkSpec, key string) (holt.FileInfo, error) {
	return once(ctx, f, "symlink", key, []any{ref, spec}, func(ctx context.Context) (info holt.FileInfo, err error) {
		guest, err := f.guest(ctx, ref)
		if err != nil {
			return info, err
		}
		if guest != "" {
			spec.Path = inGuest(spec.Path)
			return fromGuest(f.w.inGuests.Symlink(atHome(ctx), guest, spec, ""))
		}
		err = f.use(ctx, ref, spec.User, func(ctx context.Context, files workspace.Files) error {
			info, err = files.Symlink(string(spec.Path), string(spec.Target))
			return err
		})
		return info, err
	})
}

func (f Files) Remove(ctx context.Context, ref, path string, recursive bool, key string) error {
	remove := callOf("remove", key, []any{ref, path, recursive}, func(ctx context.Context) (struct{}, error) {
		guest, err := f.guest(ctx, ref)
		if err != nil {
			return struct{}{}, err
		}
		if guest != "" && path != "/" { // the workspace refuses to remove its root
			return struct{}{}, f.w.inGuests.Remove(atHome(ctx), guest, inGuest(path), recursive, "")
		}
		return struct{}{}, f.use(ctx, ref, "", func(ctx context.Context, files workspace.Files) error { return files.Remove(ctx, path, recursive) })
	})
	remove.Removes = true
	_, err := idempotency.Once(ctx, f.w.keys, remove)
	return err
}

func (f Files) Rename(ctx context.Context, ref string, spec holt.RenameSpec, key string) error {
	_, err := once(ctx, f, "rename", key, []any{ref, spec}, func(ctx context.Context) (struct{}, error) {
		guest, err := f.guest(ctx, ref)
		if err != nil {
			return struct{}{}, err
		}
		if guest != "" {
			return struct{}{}, f.w.inGuests.Rename(atHome(ctx), guest, holt.RenameSpec{From: inGuest(spec.From), To: inGuest(spec.To)}, "")
		}
		return struct{}{}, f.use(ctx, ref, "", func(ctx context.Context, files workspace.Files) error {
			return files.Rename(string(spec.From), string(spec.To))
		})
	})
	return err
}

// once does a call on files once for each key.
func once[T any](ctx context.Context, f Files, verb, key string, request any, act func(context.Context) (T, error)) (T, error) {
	return idempotency.Once(ctx, f.w.keys, callOf(verb, key, request, act))
}

func callOf[T any](verb, key string, request any, act func(context.Context) (T, error)) idempotency.Call[T] {
	return idempotency.Call[T]{
		Key: key, Method: "workspace.file." + verb, Request: request,
		Act: func(ctx context.Context, _ *idempotency.Claim) (T, error) { return act(ctx) },
	}
}
