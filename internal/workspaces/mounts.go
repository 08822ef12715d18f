package workspaces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"holt"
	"holt/internal/guest/mount"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// hostMount is a workspace mounted on a host directory by this process.
type hostMount struct {
	holt.Mount
	id holt.WorkspaceID
	m  *mount.HostMount
	e  *entry
}

// hostMounts are the workspaces mounted on directories of the host.
type hostMounts struct {
	data   string // the daemon's own directory, which cannot be mounted on
	log    *slog.Logger
	table  table
	open   *openCache
	keeper *mount.Keeper // keeps mounts when this process ends; nil: they end with it
	having func(context.Context, holt.WorkspaceID) (holt.Computer, bool, error)

	changing sync.Mutex // held during a whole change

	mu     sync.Mutex
	mounts map[string]*hostMount  // by directory
	kept   map[string]*mount.Kept // from the daemon before this one, by directory
	wg     sync.WaitGroup         // watchers
}

func (h *hostMounts) mount(ctx context.Context, ref string, spec holt.MountSpec, claim *idempotency.Claim) (holt.Mount, error) {
	r, err := h.table.find(ctx, ref)
	if err != nil {
		return holt.Mount{}, err
	}
	dir, err := h.mountDir(spec.Dir)
	if err != nil {
		return holt.Mount{}, err
	}
	h.changing.Lock()
	defer h.changing.Unlock()
	if err := h.mayMount(ctx, r, spec.ReadOnly); err != nil {
		return holt.Mount{}, err
	}
	// The row comes first: the next daemon must clear a mount that a killed one leaves.
	at := mountRow{dir: dir, id: r.id, readOnly: spec.ReadOnly, mount: mount.NewID()}
	err = h.table.change(ctx, func(tx *db.Tx) error {
		if err := claim.Bind(tx, dir); err != nil {
			return err
		}
		return insertMount(tx, at)
	})
	if err != nil {
		return holt.Mount{}, err
	}
	if err := h.serve(ctx, at, nil); err != nil {
		return holt.Mount{}, errors.Join(err, h.table.forgetMount(context.WithoutCancel(ctx), dir))
	}
	return at.shown(), nil
}

// shown is the mount as the API shows it.
func (r mountRow) shown() holt.Mount { return holt.Mount{Dir: r.dir, ReadOnly: r.readOnly} }

// mountDir returns the directory without symbolic links, if it can be mounted on.
func (h *hostMounts) mountDir(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", holt.Errorf(holt.InvalidArgument, "the directory %q is not an absolute path", clip(dir)).WithHint("begin it with /")
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", holt.Errorf(holt.InvalidArgument, "cannot mount on %s: %w", dir, err).WithHint("create the directory first")
	}
	if within(real, h.data) || within(h.data, real) {
		return "", holt.Errorf(holt.InvalidArgument, "cannot mount on %s: the daemon's data directory is in it or above it", dir).
			WithHint("choose another directory")
	}
	h.mu.Lock()
	at := h.mounts[real]
	above := ""
	for m := range h.mounts {
		if m != real && within(real, m) {
			above = m
		}
	}
	h.mu.Unlock()
	if above != "" { // the mount above could not be unmounted first
		return "", holt.Errorf(holt.InvalidArgument, "cannot mount on %s: it is in the workspace mounted on %s", dir, above).
			WithHint("choose another directory")
	}
	if at != nil {
		return "", holt.Errorf(holt.AlreadyExists, "a workspace is already mounted on %s", dir).
			WithHint("unmount it first: holt workspace unmount %s", dir)
	}
	f, err := os.Open(real)
	if err != nil {
		return "", hosterror.Describe(fmt.Errorf("open %s: %w", dir, err))
	}
	defer f.Close()
	if _, err := f.Readdirnames(1); err == nil {
		return "", holt.Errorf(holt.InvalidArgument, "the directory %s is not empty", dir).
			WithHint("choose an empty one: a mount hides what is in its directory")
	} else if !errors.Is(err, io.EOF) {
		return "", holt.Errorf(holt.InvalidArgument, "cannot mount on %s: %w", dir, err)
	}
	return real, nil
}

// within reports whether a clean path is dir or in it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// mayMount returns Conflict if something else writes to the workspace.
func (h *hostMounts) mayMount(ctx context.Context, r row, readOnly bool) error {
	if readOnly {
		return nil
	}
	for _, m := range h.of(r.id) {
		if !m.ReadOnly {
			return holt.Errorf(holt.Conflict, "the workspace %s is mounted read-write on %s", r.name, m.Dir).
				WithHint("use --read-only, or unmount it first: holt workspace unmount %s", m.Dir)
		}
	}
	c, has, err := h.having(ctx, r.id)
	if err != nil {
		return err
	}
	if has && c.State != holt.ComputerStopped {
		return holt.Errorf(holt.Conflict, "the computer %s uses the workspace %s", c.Name, r.name).
			WithHint("use --read-only, or stop the computer first: holt computer stop %s", c.Name)
	}
	return nil
}

// serve mounts a workspace, or resumes a mount that its keeper has kept, and watches the mount.
func (h *hostMounts) serve(ctx context.Context, r mountRow, kept *mount.Kept) error {
	e, ws, err := h.open.acquire(r.id)
	if err != nil {
		if kept != nil {
			err = errors.Join(err, kept.End())
		}
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	opt := mount.HostOptions{ReadOnly: r.readOnly, Writer: person(), Notifier: h.notifier(ws, r.readOnly), Keeper: h.keeper, ID: r.mount, Log: h.log}
	var hm *mount.HostMount
	if kept != nil {
		hm, err = mount.Resume(bounded, ws, kept, opt)
	} else {
		hm, err = mount.Host(bounded, ws, r.dir, opt)
	}
	if err != nil {
		h.open.release(e)
		return err
	}
	at := &hostMount{Mount: r.shown(), id: r.id, m: hm, e: e}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mounts[r.dir] = at
	h.wg.Go(func() { h.watch(at) })
	return nil
}

// notifier notifies the kernel of changes that do not come through its mount. A
// read-only mount needs none: it caches nothing.
func (h *hostMounts) notifier(ws *workspace.Workspace, readOnly bool) *mount.Notifier {
	if readOnly {
		return nil
	}
	return h.open.kernels.of(ws)
}

// person is the writer of changes through a host mount.
func person() workspace.Writer {
	name := "host"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return workspace.Writer{Kind: "person", Name: name}
}

// WriterOf returns the writer of the changes of a call: its token, schedule or
// computer, or else the user of this process.
func WriterOf(ctx context.Context) workspace.Writer {
	if a, ok := holt.ActorOf(ctx); ok {
		if a.Schedule != "" {
			return workspace.Writer{Kind: "schedule", Name: a.Name}
		}
		if a.Computer != "" {
			return workspace.Writer{Kind: "computer", Name: a.Name}
		}
		return workspace.Writer{Kind: "token", Name: a.Name, Token: string(a.Token)}
	}
	return person()
}

// watch waits for the end of a mount. If another program unmounted it, its row goes.
func (h *hostMounts) watch(at *hostMount) {
	<-at.m.Done()
	h.mu.Lock()
	mine := h.mounts[at.Dir] == at
	if mine {
		delete(h.mounts, at.Dir)
	}
	h.mu.Unlock()
	h.open.release(at.e)
	if !mine {
		return // this process ended it
	}
	h.log.Info("another program unmounted a host mount", "dir", at.Dir, "workspace", at.id)
	if err := h.table.forgetMount(context.Background(), at.Dir); err != nil {
		h.log.Error("forget host mount", "dir", at.Dir, "err", err)
	}
}

func (h *hostMounts) unmount(ctx context.Context, dir string) error {
	if !filepath.IsAbs(dir) {
		return holt.Errorf(holt.InvalidArgument, "the directory %q is not an absolute path", clip(dir)).WithHint("begin it with /")
	}
	dir = filepath.Clean(dir)
	h.changing.Lock()
	defer h.changing.Unlock()
	at := h.hide(dir)
	if at == nil {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
			at = h.hide(dir)
		}
	}
	if at == nil {
		return h.unmountDead(ctx, dir)
	}
	if err := at.m.Unmount(); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return h.table.forgetMount(ctx, dir)
}

// unmountDead removes the row of a mount that could not be made again.
func (h *hostMounts) unmountDead(ctx context.Context, dir string) error {
	rows, err := h.table.mountRows(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.dir == dir {
			return errors.Join(mount.Clear(dir), h.table.forgetMount(ctx, dir))
		}
	}
	return holt.Errorf(holt.NotFound, "no workspace is mounted on %s", dir).
		WithHint("holt workspace list shows all mounts")
}

// flush has the kernel write the changes that programs have made through memory maps.
func (h *hostMounts) flush(ctx context.Context, id holt.WorkspaceID) error {
	h.mu.Lock()
	var writing *hostMount // one at most
	for _, at := range h.mounts {
		if at.id == id && !at.ReadOnly {
			writing = at
		}
	}
	h.mu.Unlock()
	if writing == nil {
		return nil
	}
	return writing.m.WriteBack(ctx)
}

// hide takes a mount off the list, so that watch knows that this process ends it.
func (h *hostMounts) hide(dir string) *hostMount {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.mounts[dir]
	delete(h.mounts, dir)
	return at
}

// of returns the host mounts of a workspace.
func (h *hostMounts) of(id holt.WorkspaceID) []holt.Mount {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []holt.Mount
	for _, at := range h.mounts {
		if at.id == id {
			list = append(list, at.Mount)
		}
	}
	slices.SortFunc(list, func(a, b holt.Mount) int { return strings.Compare(a.Dir, b.Dir) })
	return list
}

// find takes the mounts of the daemon before this one over from their keepers. It
// must be called before any workspace is opened: opening a workspace ends the
// mounts that it does not know.
func (h *hostMounts) find(ctx context.Context) error {
	if h.keeper == nil {
		return nil
	}
	rows, err := h.table.mountRows(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		kept, err := h.keeper.Find(ctx, r.dir, r.mount)
		switch {
		case holt.CodeOf(err) == holt.NotFound:
		case err != nil:
			if ctx.Err() != nil {
				return err
			}
			// No process can serve it: programs that use it would wait forever.
			err = errors.Join(err, mount.End(r.dir))
			h.log.ErrorContext(ctx, "a host mount is not taken over from its keeper", "dir", r.dir, "workspace", r.id, "err", err)
		default:
			h.kept[r.dir] = kept
			if !r.readOnly {
				h.open.hostMounts[r.id] = kept.ID()
			}
		}
	}
	return nil
}

// remount resumes the host mounts of the daemon before this one, or makes them
// again. One that fails is logged and keeps its row: the next start tries again.
func (h *hostMounts) remount(ctx context.Context) error {
	rows, err := h.table.mountRows(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		err := h.remake(ctx, r, h.kept[r.dir])
		if err != nil && h.kept[r.dir] != nil {
			h.log.WarnContext(ctx, "a host mount is not resumed; it is made again", "dir", r.dir, "workspace", r.id, "err", err)
			err = h.remake(ctx, r, nil)
		}
		if err != nil {
			h.log.ErrorContext(ctx, "a host mount is not made again", "dir", r.dir, "workspace", r.id, "err", err)
		}
	}
	return nil
}

func (h *hostMounts) remake(ctx context.Context, r mountRow, kept *mount.Kept) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	if kept != nil {
		return h.serve(ctx, r, kept)
	}
	if err := mount.Clear(r.dir); err != nil {
		return err
	}
	found, err := h.table.find(ctx, string(r.id))
	if holt.CodeOf(err) == holt.NotFound {
		return h.table.forgetMount(ctx, r.dir)
	}
	if err != nil {
		return err
	}
	if err := h.mayMount(ctx, found, r.readOnly); err != nil {
		return err
	}
	if h.keeper != nil {
		if err := h.keeper.Clear(r.mount); err != nil {
			return err
		}
	}
	r.mount = mount.NewID()
	if err := h.table.change(ctx, func(tx *db.Tx) error { return insertMount(tx, r) }); err != nil {
		return err
	}
	return h.serve(ctx, r, nil)
}

// leave leaves the mounts of this process to their keepers and the next daemon.
func (h *hostMounts) leave() error {
	h.changing.Lock()
	defer h.changing.Unlock()
	_, err := h.endAll((*mount.HostMount).Leave)
	return err
}

// unmountAll ends all host mounts, also for the next daemon, and returns their directories.
func (h *hostMounts) unmountAll(ctx context.Context) ([]string, error) {
	h.changing.Lock()
	defer h.changing.Unlock()
	dirs, err := h.endAll((*mount.HostMount).Unmount)
	return dirs, errors.Join(err, h.table.write(ctx, `DELETE FROM host_mount`))
}

func (h *hostMounts) endAll(end func(*mount.HostMount) error) (dirs []string, err error) {
	h.mu.Lock()
	var all []*hostMount
	for dir, at := range h.mounts {
		all = append(all, at)
		delete(h.mounts, dir)
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b *hostMount) int { return strings.Compare(a.Dir, b.Dir) })
	for _, at := range all {
		if one := end(at.m); one != nil {
			err = errors.Join(err, fmt.Errorf("end the mount on %s: %w", at.Dir, one))
			continue
		}
		dirs = append(dirs, at.Dir)
	}
	return dirs, err
}
