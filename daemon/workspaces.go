package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holt"
	"holt/computer"
	"holt/db"
	"holt/workspace"
)

// idleFor is how long a workspace that nothing uses stays open.
const idleFor = 30 * time.Second

// Workspaces is the registry of workspaces and their host mounts. A workspace
// is opened when something wants it and closed when nothing has for a while.
type Workspaces struct {
	db   *db.DB
	keys *computer.Keys
	dir  string
	log  *slog.Logger
	idle time.Duration

	mounting  sync.Mutex // held over a whole change of host mounts
	computers *computer.Store

	mu      sync.Mutex
	closed  bool
	entries map[holt.WorkspaceID]*entry
	mounts  map[string]*hostMount // by directory
	wg      sync.WaitGroup        // watchers of mounts, closers of idle workspaces
}

// entry is a workspace that is or was open.
type entry struct {
	id holt.WorkspaceID

	mu sync.Mutex // held while it is opened or closed
	ws *workspace.Workspace

	// The rest is guarded by Workspaces.mu.
	users int
	taken bool // by the computer that writes to it
	timer *time.Timer
}

// openWorkspaces opens the registry and removes half-made workspaces.
func openWorkspaces(ctx context.Context, d *db.DB, keys *computer.Keys, dir string, log *slog.Logger) (*Workspaces, error) {
	w := &Workspaces{
		db: d, keys: keys, dir: dir, log: log, idle: idleFor,
		entries: map[holt.WorkspaceID]*entry{}, mounts: map[string]*hostMount{},
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make workspace directory: %w", err)
	}
	half, err := w.rows(ctx, `WHERE state <> 'ready'`)
	if err != nil {
		return nil, err
	}
	for _, r := range half {
		w.log.Info("remove half-made workspace", "workspace", r.id, "name", r.name)
		if err := w.remove(ctx, r.id); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// setComputers says who may have workspaces. Until then nobody has.
func (w *Workspaces) setComputers(s *computer.Store) { w.computers = s }

// close closes all workspaces; nobody uses them any more.
func (w *Workspaces) close() error {
	w.mu.Lock()
	w.closed = true
	var all []*entry
	for _, e := range w.entries {
		if e.timer != nil {
			e.timer.Stop()
		}
		all = append(all, e)
	}
	w.mu.Unlock()
	w.wg.Wait()
	var first error
	for _, e := range all {
		if err := w.shut(e); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (w *Workspaces) path(id holt.WorkspaceID) string { return filepath.Join(w.dir, string(id)) }

// acquire opens a workspace, or finds it open.
func (w *Workspaces) acquire(id holt.WorkspaceID) (*entry, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("try again when it is back")
	}
	e := w.entries[id]
	if e == nil {
		e = &entry{id: id}
		w.entries[id] = e
	}
	e.users++
	w.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ws != nil {
		return e, nil
	}
	ws, err := workspace.Open(w.path(id), workspace.Options{Log: w.log})
	if err != nil {
		w.release(e)
		return nil, described(fmt.Errorf("open workspace: %w", err))
	}
	e.ws = ws
	return e, nil
}

// release says that one user of a workspace needs it no more.
func (w *Workspaces) release(e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.users--
	if e.users > 0 || w.closed {
		return
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(w.idle, func() { w.expire(e) })
}

// expire closes a workspace that is still unused.
func (w *Workspaces) expire(e *entry) {
	w.mu.Lock()
	if w.closed || e.users > 0 {
		w.mu.Unlock()
		return
	}
	w.wg.Add(1)
	w.mu.Unlock()
	defer w.wg.Done()
	if err := w.shutIdle(e); err != nil {
		w.log.Error("close idle workspace", "workspace", e.id, "err", err)
	}
}

func (w *Workspaces) shutIdle(e *entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.mu.Lock()
	used := e.users > 0
	w.mu.Unlock()
	if used || e.ws == nil {
		return nil
	}
	return w.closeEntry(e)
}

// shut closes a workspace whoever uses it.
func (w *Workspaces) shut(e *entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ws == nil {
		return nil
	}
	return w.closeEntry(e)
}

// closeEntry closes the open workspace of an entry, whose lock is held, and
// keeps its figures for lists.
func (w *Workspaces) closeEntry(e *entry) error {
	stats := e.ws.Stat()
	err := e.ws.Close()
	e.ws = nil
	if lost := w.keepFigures(e.id, stats); lost != nil {
		w.log.Warn("keep figures of workspace", "workspace", e.id, "err", lost)
	}
	if err != nil {
		return fmt.Errorf("close workspace %s: %w", e.id, err)
	}
	return nil
}

// use calls fn with an open workspace.
func (w *Workspaces) use(ctx context.Context, ref string, fn func(*workspace.Workspace) error) error {
	r, err := w.find(ctx, ref)
	if err != nil {
		return err
	}
	e, err := w.acquire(r.id)
	if err != nil {
		return err
	}
	defer w.release(e)
	return described(fn(e.ws))
}

// Check recomputes everything a workspace says about itself.
func (w *Workspaces) Check(ctx context.Context, ref string) (report holt.CheckReport, err error) {
	err = w.use(ctx, ref, func(ws *workspace.Workspace) error {
		report, err = ws.Check(ctx)
		return err
	})
	return report, err
}

// Query runs one SQL SELECT over a workspace as it is now.
func (w *Workspaces) Query(ctx context.Context, ref string, q holt.QuerySpec) (result holt.QueryResult, err error) {
	limits := workspace.Limits{Rows: q.MaxRows, Time: time.Duration(q.TimeoutMS) * time.Millisecond}
	err = w.use(ctx, ref, func(ws *workspace.Workspace) error {
		result, err = ws.Query(ctx, q.SQL, limits)
		return err
	})
	return result, err
}
