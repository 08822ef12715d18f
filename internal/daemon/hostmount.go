package daemon

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
	"time"

	"holt"
	"holt/internal/guest/mount"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// mountLimit bounds one mounting.
const mountLimit = 30 * time.Second

// hostMount is a workspace mounted on a host directory by this process.
type hostMount struct {
	holt.Mount
	id holt.WorkspaceID
	m  *mount.HostMount
	e  *entry
}

// hostMounts are the workspaces mounted on directories of the host.
type hostMounts struct {
	data  string // the daemon's own directory, which cannot be mounted on
	log   *slog.Logger
	table workspaceTable
	shelf *shelf
	// keeper has mounts outlive this process; nil: they end with it.
	keeper *mount.Keeper
	// having returns the computer that has a workspace.
	having func(context.Context, holt.WorkspaceID) (holt.Computer, bool, error)
	// keeping returns a computer that has snapshots in one.
	keeping func(context.Context, holt.WorkspaceID) (holt.Computer, bool, error)

	changing sync.Mutex // held over a whole change

	mu     sync.Mutex
	mounts map[string]*hostMount  // by directory
	kept   map[string]*mount.Kept // that a daemon before has left, by directory
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
	// On record first: a mount that a killed daemon leaves must be cleared.
	err = h.table.change(ctx, func(tx *db.Tx) error {
		if err := claim.Bind(tx, dir); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO host_mount (dir, workspace, read_only) VALUES (?, ?, ?)
			ON CONFLICT (dir) DO UPDATE SET workspace = excluded.workspace, read_only = excluded.read_only`, dir, r.id, spec.ReadOnly)
	})
	if err != nil {
		return holt.Mount{}, err
	}
	m := holt.Mount{Dir: dir, ReadOnly: spec.ReadOnly}
	if err := h.serve(ctx, r.id, m, nil); err != nil {
		return holt.Mount{}, errors.Join(err, h.table.forgetMount(context.WithoutCancel(ctx), dir))
	}
	return m, nil
}

// mountDir returns the directory without symlinks, if it can be mounted on.
func (h *hostMounts) mountDir(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", holt.Errorf(holt.InvalidArgument, "the directory %q is not absolute", clip(dir)).WithHint("begin it with /")
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", holt.Errorf(holt.InvalidArgument, "%s cannot be mounted on: %w", dir, err).WithHint("make the directory first")
	}
	if within(real, h.data) || within(h.data, real) {
		return "", holt.Errorf(holt.InvalidArgument, "%s cannot be mounted on: it holds the daemon's own data, or lies in it", dir).
			WithHint("choose a directory elsewhere")
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
	if above != "" { // which could not end before this one
		return "", holt.Errorf(holt.InvalidArgument, "%s cannot be mounted on: it lies in the workspace mounted on %s", dir, above).
			WithHint("choose a directory elsewhere")
	}
	if at != nil {
		return "", holt.Errorf(holt.AlreadyExists, "a workspace is mounted on %s already", dir).
			WithHint("end that first: holt workspace unmount %s", dir)
	}
	f, err := os.Open(real)
	if err != nil {
		return "", described(fmt.Errorf("look at %s: %w", dir, err))
	}
	defer f.Close()
	if _, err := f.Readdirnames(1); err == nil {
		return "", holt.Errorf(holt.InvalidArgument, "the directory %s is not empty", dir).
			WithHint("what is in it would be hidden; choose an empty one")
	} else if !errors.Is(err, io.EOF) {
		return "", holt.Errorf(holt.InvalidArgument, "%s cannot be mounted on: %w", dir, err)
	}
	return real, nil
}

// within says whether a clean path is dir or lies in it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// mayMount refuses a second writer.
func (h *hostMounts) mayMount(ctx context.Context, r row, readOnly bool) error {
	if readOnly {
		return nil
	}
	for _, m := range h.of(r.id) {
		if !m.ReadOnly {
			return holt.Errorf(holt.Conflict, "the workspace %s is mounted read-write on %s", r.name, m.Dir).
				WithHint("mount it with --read-only, or end that first: holt workspace unmount %s", m.Dir)
		}
	}
	c, has, err := h.having(ctx, r.id)
	if err != nil {
		return err
	}
	if has && c.State != holt.ComputerStopped {
		return holt.Errorf(holt.Conflict, "the computer %s writes to the workspace %s", c.Name, r.name).
			WithHint("mount it with --read-only, or stop the computer first: holt computer stop %s", c.Name)
	}
	return nil
}

// serve mounts, or goes on with a mount that was kept, and watches the mount.
func (h *hostMounts) serve(ctx context.Context, id holt.WorkspaceID, m holt.Mount, kept *mount.Kept) error {
	e, ws, err := h.shelf.acquire(id)
	if err != nil {
		if kept != nil {
			err = errors.Join(err, kept.End())
		}
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, mountLimit)
	defer cancel()
	opt := mount.HostOptions{ReadOnly: m.ReadOnly, Writer: person(), Notifier: h.notifier(ws, m.ReadOnly), Keeper: h.keeper, Log: h.log}
	var hm *mount.HostMount
	if kept != nil {
		hm, err = mount.Resume(bounded, ws, kept, opt)
	} else {
		hm, err = mount.Host(bounded, ws, m.Dir, opt)
	}
	if err != nil {
		h.shelf.release(e)
		return err
	}
	at := &hostMount{Mount: m, id: id, m: hm, e: e}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mounts[m.Dir] = at
	h.wg.Go(func() { h.watch(at) })
	return nil
}

// notifier brings the kernel what is changed beside its mount. One that only
// reads believes nothing for long.
func (h *hostMounts) notifier(ws *workspace.Workspace, readOnly bool) *mount.Notifier {
	if readOnly {
		return nil
	}
	return h.shelf.kernels.of(ws)
}

// person is whom changes through a host mount are attributed to.
func person() workspace.Writer {
	name := "host"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return workspace.Writer{Kind: "person", Name: name}
}

// writerOf is whom what a call changes is attributed to: the token that it came
// with, the schedule or the computer that makes it, else the person whose daemon this is.
func writerOf(ctx context.Context) workspace.Writer {
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

// watch notices when someone else unmounts.
func (h *hostMounts) watch(at *hostMount) {
	<-at.m.Done()
	h.mu.Lock()
	mine := h.mounts[at.Dir] == at
	if mine {
		delete(h.mounts, at.Dir)
	}
	h.mu.Unlock()
	h.shelf.release(at.e)
	if !mine {
		return // Unmount or leave did it
	}
	h.log.Info("host mount was ended from outside", "dir", at.Dir, "workspace", at.id)
	if err := h.table.forgetMount(context.Background(), at.Dir); err != nil {
		h.log.Error("forget host mount", "dir", at.Dir, "err", err)
	}
}

func (h *hostMounts) unmount(ctx context.Context, dir string) error {
	if !filepath.IsAbs(dir) {
		return holt.Errorf(holt.InvalidArgument, "the directory %q is not absolute", clip(dir)).WithHint("begin it with /")
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

// unmountDead forgets a mount that is on record only: it could not be remade.
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
		WithHint("holt workspace list shows the mounts there are")
}

// flush has the kernel write what programs hold of a workspace in memory maps.
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

// hide takes a mount off the list, so that its end is no surprise.
func (h *hostMounts) hide(dir string) *hostMount {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.mounts[dir]
	delete(h.mounts, dir)
	return at
}

// of lists the host mounts of a workspace.
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

// Mounts returns what is mounted on the host, of all tenants.
func (w *Workspaces) Mounts(ctx context.Context) ([]holt.HostMount, error) {
	rows, err := w.table.rows(ctx, `WHERE id IN (SELECT workspace FROM host_mount)`)
	if err != nil {
		return nil, err
	}
	list := []holt.HostMount{}
	for _, r := range rows {
		for _, m := range w.mounts.of(r.id) {
			list = append(list, holt.HostMount{Mount: m, WorkspaceID: r.id, Workspace: r.name, Tenant: r.tenant})
		}
	}
	return list, nil
}

// find takes over the mounts that the daemon before has left to their keepers.
// It comes before any workspace is opened: one that is opened ends the mounts
// that do not go on.
func (h *hostMounts) find(ctx context.Context) error {
	if h.keeper == nil {
		return nil
	}
	rows, err := h.table.mountRows(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		kept, err := h.keeper.Find(ctx, r.dir)
		switch {
		case holt.CodeOf(err) == holt.NotFound:
		case err != nil:
			if ctx.Err() != nil {
				return err
			}
			// Nobody can serve it: what uses it would wait for ever.
			err = errors.Join(err, mount.End(r.dir))
			h.log.ErrorContext(ctx, "take a host mount over", "dir", r.dir, "workspace", r.id, "err", err)
		default:
			h.kept[r.dir] = kept
			if !r.readOnly {
				h.shelf.hostMounts[r.id] = kept.ID()
			}
		}
	}
	return nil
}

// remount goes on with the host mounts of the daemon before this one, or makes
// them again. One that cannot be is logged and stays on record: the next start
// tries again.
func (h *hostMounts) remount(ctx context.Context) error {
	rows, err := h.table.mountRows(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		err := h.remake(ctx, r, h.kept[r.dir])
		if err != nil && h.kept[r.dir] != nil {
			h.log.WarnContext(ctx, "a host mount is not continued", "dir", r.dir, "workspace", r.id, "err", err)
			err = h.remake(ctx, r, nil)
		}
		if err != nil {
			h.log.ErrorContext(ctx, "remake host mount", "dir", r.dir, "workspace", r.id, "err", err)
		}
	}
	return nil
}

func (h *hostMounts) remake(ctx context.Context, r mountRow, kept *mount.Kept) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	if kept != nil {
		return h.serve(ctx, r.id, holt.Mount{Dir: r.dir, ReadOnly: r.readOnly}, kept)
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
	return h.serve(ctx, r.id, holt.Mount{Dir: r.dir, ReadOnly: r.readOnly}, nil)
}

// leave leaves the mounts of this process to the next daemon.
func (h *hostMounts) leave() error {
	h.changing.Lock()
	defer h.changing.Unlock()
	_, err := h.endAll((*mount.HostMount).Leave)
	return err
}

// unmountAll ends all host mounts for good and returns their directories.
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
