package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holt"
	"holt/computer"
	"holt/db"
	"holt/mount"
	"holt/workspace"
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

// Mount mounts a workspace on a directory of the host, also after restarts of
// the daemon, until Unmount. It is read-write only if nothing else has it so.
//
// Errors: NotFound, InvalidArgument (the directory), AlreadyExists (something
// is mounted there), Conflict (the workspace is in use), Unsupported.
func (w *Workspaces) Mount(ctx context.Context, ref string, spec holt.MountSpec, key string) (holt.Mount, error) {
	return computer.Once(ctx, w.keys, computer.Call[holt.Mount]{
		Key: key, Method: "workspace.mount", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *computer.Claim) (holt.Mount, error) {
			return w.mount(ctx, ref, spec, claim)
		},
		Again: func(_ context.Context, dir string) (holt.Mount, error) { // remade when the daemon started
			return holt.Mount{Dir: dir, ReadOnly: spec.ReadOnly}, nil
		},
	})
}

func (w *Workspaces) mount(ctx context.Context, ref string, spec holt.MountSpec, claim *computer.Claim) (holt.Mount, error) {
	r, err := w.find(ctx, ref)
	if err != nil {
		return holt.Mount{}, err
	}
	dir, err := w.mountDir(spec.Dir)
	if err != nil {
		return holt.Mount{}, err
	}
	w.mounting.Lock()
	defer w.mounting.Unlock()
	if err := w.mayMount(ctx, r, spec.ReadOnly); err != nil {
		return holt.Mount{}, err
	}
	// On record first: a mount that a killed daemon leaves must be cleared.
	err = w.change(ctx, func(tx *db.Tx) error {
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
	if err := w.serve(ctx, r.id, m); err != nil {
		return holt.Mount{}, errors.Join(err, w.forgetMount(context.WithoutCancel(ctx), dir))
	}
	return m, nil
}

// mountDir returns the directory without symlinks, if it can be mounted on.
func (w *Workspaces) mountDir(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", holt.Errorf(holt.InvalidArgument, "the directory %q is not absolute", clip(dir)).WithHint("begin it with /")
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", holt.Errorf(holt.InvalidArgument, "%s cannot be mounted on: %w", dir, err).WithHint("make the directory first")
	}
	if data := filepath.Dir(w.dir); real == data || strings.HasPrefix(real+"/", data+"/") || strings.HasPrefix(data+"/", real+"/") {
		return "", holt.Errorf(holt.InvalidArgument, "%s cannot be mounted on: it holds the daemon's own data, or lies in it", dir).
			WithHint("choose a directory elsewhere")
	}
	w.mu.Lock()
	at := w.mounts[real]
	w.mu.Unlock()
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

// mayMount refuses a second writer.
func (w *Workspaces) mayMount(ctx context.Context, r row, readOnly bool) error {
	if readOnly {
		return nil
	}
	for _, m := range w.mountsOf(r.id) {
		if !m.ReadOnly {
			return holt.Errorf(holt.Conflict, "the workspace %s is mounted read-write on %s", r.name, m.Dir).
				WithHint("mount it with --read-only, or end that first: holt workspace unmount %s", m.Dir)
		}
	}
	c, has, err := w.computers.Having(ctx, r.id)
	if err != nil {
		return err
	}
	if has && c.State != holt.ComputerStopped {
		return holt.Errorf(holt.Conflict, "the computer %s writes to the workspace %s", c.Name, r.name).
			WithHint("mount it with --read-only, or stop the computer first: holt computer stop %s", c.Name)
	}
	return nil
}

// serve mounts and watches the mount.
func (w *Workspaces) serve(ctx context.Context, id holt.WorkspaceID, m holt.Mount) error {
	e, err := w.acquire(id)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, mountLimit)
	defer cancel()
	hm, err := mount.Host(bounded, e.ws, m.Dir, mount.HostOptions{ReadOnly: m.ReadOnly, Writer: person(), Log: w.log})
	if err != nil {
		w.release(e)
		return err
	}
	h := &hostMount{Mount: m, id: id, m: hm, e: e}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mounts[m.Dir] = h
	w.wg.Go(func() { w.watch(h) })
	return nil
}

// person is whom changes through a host mount are attributed to.
func person() workspace.Writer {
	name := "host"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return workspace.Writer{Kind: "person", Name: name}
}

// watch notices when someone else unmounts.
func (w *Workspaces) watch(h *hostMount) {
	<-h.m.Done()
	w.mu.Lock()
	mine := w.mounts[h.Dir] == h
	if mine {
		delete(w.mounts, h.Dir)
	}
	w.mu.Unlock()
	w.release(h.e)
	if !mine {
		return // Unmount or hideMounts did it
	}
	w.log.Info("host mount was ended from outside", "dir", h.Dir, "workspace", h.id)
	if err := w.forgetMount(context.Background(), h.Dir); err != nil {
		w.log.Error("forget host mount", "dir", h.Dir, "err", err)
	}
}

// Unmount ends the host mount at dir, busy or not.
func (w *Workspaces) Unmount(ctx context.Context, dir, key string) error {
	_, err := computer.Once(ctx, w.keys, computer.Call[struct{}]{
		Key: key, Method: "workspace.unmount", Request: dir,
		Act: func(ctx context.Context, _ *computer.Claim) (struct{}, error) { return struct{}{}, w.unmount(ctx, dir) },
	})
	return err
}

func (w *Workspaces) unmount(ctx context.Context, dir string) error {
	if !filepath.IsAbs(dir) {
		return holt.Errorf(holt.InvalidArgument, "the directory %q is not absolute", clip(dir)).WithHint("begin it with /")
	}
	dir = filepath.Clean(dir)
	w.mounting.Lock()
	defer w.mounting.Unlock()
	h := w.hide(dir)
	if h == nil {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
			h = w.hide(dir)
		}
	}
	if h == nil {
		return w.unmountDead(ctx, dir)
	}
	if err := h.m.Unmount(); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return w.forgetMount(ctx, dir)
}

// unmountDead forgets a mount that is on record only: it could not be remade.
func (w *Workspaces) unmountDead(ctx context.Context, dir string) error {
	rows, err := w.mountRows(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.dir == dir {
			return errors.Join(mount.Clear(dir), w.forgetMount(ctx, dir))
		}
	}
	return holt.Errorf(holt.NotFound, "no workspace is mounted on %s", dir).
		WithHint("holt workspace list shows the mounts there are")
}

// hide takes a mount off the list, so that its end is no surprise.
func (w *Workspaces) hide(dir string) *hostMount {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.mounts[dir]
	delete(w.mounts, dir)
	return h
}

func (w *Workspaces) forgetMount(ctx context.Context, dir string) error {
	return w.write(ctx, `DELETE FROM host_mount WHERE dir = ?`, dir)
}

// mountsOf lists the host mounts of a workspace.
func (w *Workspaces) mountsOf(id holt.WorkspaceID) []holt.Mount {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []holt.Mount
	for _, h := range w.mounts {
		if h.id == id {
			list = append(list, h.Mount)
		}
	}
	slices.SortFunc(list, func(a, b holt.Mount) int { return strings.Compare(a.Dir, b.Dir) })
	return list
}

type mountRow struct {
	dir      string
	id       holt.WorkspaceID
	readOnly bool
}

func (w *Workspaces) mountRows(ctx context.Context) ([]mountRow, error) {
	var list []mountRow
	err := w.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT dir, workspace, read_only FROM host_mount ORDER BY dir`, nil, func(r *db.Row) error {
			list = append(list, mountRow{r.Text(0), holt.WorkspaceID(r.Text(1)), r.Int64(2) != 0})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read host mounts: %w", err)
	}
	return list, nil
}

// remount makes the host mounts of the daemon before this one again. One that
// cannot be is logged and stays on record: the next start tries again.
func (w *Workspaces) remount(ctx context.Context) error {
	rows, err := w.mountRows(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := w.remake(ctx, r); err != nil {
			w.log.Error("remake host mount", "dir", r.dir, "workspace", r.id, "err", err)
		}
	}
	return nil
}

func (w *Workspaces) remake(ctx context.Context, r mountRow) error {
	w.mounting.Lock()
	defer w.mounting.Unlock()
	if err := mount.Clear(r.dir); err != nil {
		return err
	}
	found, err := w.find(ctx, string(r.id))
	if holt.CodeOf(err) == holt.NotFound {
		return w.forgetMount(ctx, r.dir)
	}
	if err != nil {
		return err
	}
	if err := w.mayMount(ctx, found, r.readOnly); err != nil {
		return err
	}
	return w.serve(ctx, r.id, holt.Mount{Dir: r.dir, ReadOnly: r.readOnly})
}

// hideMounts ends the mounts of this process; the next daemon makes them again.
func (w *Workspaces) hideMounts() error {
	w.mounting.Lock()
	defer w.mounting.Unlock()
	_, err := w.endAll()
	return err
}

// unmountAll ends all host mounts for good and returns their directories.
func (w *Workspaces) unmountAll(ctx context.Context) ([]string, error) {
	w.mounting.Lock()
	defer w.mounting.Unlock()
	dirs, err := w.endAll()
	return dirs, errors.Join(err, w.write(ctx, `DELETE FROM host_mount`))
}

func (w *Workspaces) endAll() (dirs []string, err error) {
	w.mu.Lock()
	var all []*hostMount
	for dir, h := range w.mounts {
		all = append(all, h)
		delete(w.mounts, dir)
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b *hostMount) int { return strings.Compare(a.Dir, b.Dir) })
	for _, h := range all {
		if one := h.m.Unmount(); one != nil {
			err = errors.Join(err, fmt.Errorf("unmount %s: %w", h.Dir, one))
			continue
		}
		dirs = append(dirs, h.Dir)
	}
	return dirs, err
}
