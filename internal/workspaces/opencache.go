package workspaces

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holt"
	"holt/internal/guest/mount"
	"holt/internal/hosterror"
	"holt/internal/workspace"
)

// openCache is the open-workspace cache. It opens a workspace at its first use
// and closes it when it has been idle.
type openCache struct {
	dir          string
	log          *slog.Logger
	base         workspace.Options                                  // for all workspaces
	onCheckpoint func(holt.WorkspaceID, workspace.Checkpoint, bool) // may be nil, see workspace.Options
	table        table
	idle         time.Duration

	kernels kernels

	// hostMounts are the ids of the host mounts that this daemon took over. It is complete
	// before any workspace is opened.
	hostMounts map[holt.WorkspaceID][16]byte

	mu       sync.Mutex
	closed   bool
	entries  map[holt.WorkspaceID]*entry
	deleting map[holt.WorkspaceID]bool // these cannot be opened any more
	wg       sync.WaitGroup            // goroutines that close idle workspaces
}

func newOpenCache(dir string, base workspace.Options, t table) *openCache {
	return &openCache{dir: dir, log: base.Log, base: base, table: t, idle: idleTime,
		entries: map[holt.WorkspaceID]*entry{}, deleting: map[holt.WorkspaceID]bool{}, hostMounts: map[holt.WorkspaceID][16]byte{},
		kernels: kernels{log: base.Log, set: map[*workspace.Workspace]*mount.Notifier{}}}
}

// entry is a workspace that is or was open.
type entry struct {
	id  holt.WorkspaceID
	ctx context.Context // ends when the workspace is deleted; the cause is the error for its users
	end context.CancelCauseFunc

	mu sync.Mutex // held while the workspace is opened or closed
	ws *workspace.Workspace

	// The rest is guarded by openCache.mu.
	users int
	taken bool // by the computer that writes to it
	timer *time.Timer
	left  chan struct{} // set by drop, closed when the last user has released the workspace
}

func newEntry(id holt.WorkspaceID) *entry {
	e := &entry{id: id}
	e.ctx, e.end = context.WithCancelCause(context.Background())
	return e
}

// during returns a context for one use of the workspace. It also ends when the
// workspace is deleted. The caller must call done.
func (e *entry) during(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// reason returns err, or the error of a deleted workspace if it is being deleted.
func (e *entry) reason(err error) error {
	if err != nil && e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	return err
}

// close closes all workspaces. Nothing uses them any more.
func (c *openCache) close() error {
	c.mu.Lock()
	c.closed = true
	var all []*entry
	for _, e := range c.entries {
		if e.timer != nil {
			e.timer.Stop()
		}
		all = append(all, e)
	}
	c.mu.Unlock()
	c.wg.Wait()
	var first error
	for _, e := range all {
		if err := c.shut(e); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (c *openCache) path(id holt.WorkspaceID) string { return filepath.Join(c.dir, string(id)) }

// options are what a workspace is opened with.
func (c *openCache) options(id holt.WorkspaceID, quota holt.Quota) workspace.Options {
	opt := c.base
	opt.Space, opt.Quota, opt.HostMount = string(id), quota, c.hostMounts[id]
	if c.onCheckpoint != nil {
		opt.OnCheckpoint = func(point workspace.Checkpoint, deleted bool) { c.onCheckpoint(id, point, deleted) }
	}
	return opt
}

// acquire returns an open workspace, which stays open until release. NotFound if
// the workspace was deleted after the caller found it.
func (c *openCache) acquire(id holt.WorkspaceID) (*entry, *workspace.Workspace, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("try again when it is back")
	}
	if c.deleting[id] {
		c.mu.Unlock()
		return nil, nil, errDeleted(id)
	}
	e := c.entries[id]
	if e == nil {
		e = newEntry(id)
		c.entries[id] = e
	}
	e.users++
	c.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil { // it was deleted during the wait for the lock
		c.release(e)
		return nil, nil, errDeleted(id)
	}
	if e.ws != nil {
		return e, e.ws, nil
	}
	quota, err := c.table.quota(context.Background(), id)
	var ws *workspace.Workspace
	if err == nil {
		ws, err = workspace.Open(c.path(id), c.options(id, quota))
	}
	if err != nil {
		c.release(e)
		return nil, nil, hosterror.Describe(fmt.Errorf("open workspace: %w", err))
	}
	e.ws = ws
	c.kernels.watch(ws)
	if err := c.table.opened(id); err != nil {
		c.log.Warn("record that an open workspace may have something to pack", "workspace", id, "err", err)
	}
	return e, ws, nil
}

// release ends one use of a workspace.
func (c *openCache) release(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.users--
	if e.users == 0 && e.left != nil {
		close(e.left)
		return
	}
	if e.users > 0 || c.closed {
		return
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(c.idle, func() { c.expire(e) })
}

// expire closes a workspace that is still unused and has nothing to pack.
func (c *openCache) expire(e *entry) {
	c.mu.Lock()
	if c.closed || e.users > 0 {
		c.mu.Unlock()
		return
	}
	c.wg.Add(1)
	c.mu.Unlock()
	defer c.wg.Done()
	if err := c.shutIdle(e, false); err != nil {
		c.log.Error("close idle workspace", "workspace", e.id, "err", err)
	}
}

// shutIdle closes a workspace that is unused. If unpacked is false, one that has
// something to pack stays open.
func (c *openCache) shutIdle(e *entry, unpacked bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.mu.Lock()
	used := e.users > 0
	c.mu.Unlock()
	if used || e.ws == nil {
		return nil
	}
	if e.ws.Stat().Waiting > 0 && !unpacked {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed && e.left == nil {
			e.timer = time.AfterFunc(c.idle, func() { c.expire(e) })
		}
		return nil
	}
	return c.closeEntry(e)
}

// shut closes a workspace even if it is used.
func (c *openCache) shut(e *entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ws == nil {
		return nil
	}
	return c.closeEntry(e)
}

// closeEntry closes the open workspace of an entry and records its figures for
// lists. The caller holds the lock of the entry.
func (c *openCache) closeEntry(e *entry) error {
	stats := e.ws.Stat()
	err := e.ws.Close()
	c.kernels.drop(e.ws)
	e.ws = nil
	if lost := c.table.keepFigures(e.id, stats); lost != nil {
		c.log.Warn("record figures of workspace", "workspace", e.id, "err", lost)
	}
	if err != nil {
		return fmt.Errorf("close workspace %s: %w", e.id, err)
	}
	return nil
}

// put adds a new open workspace.
func (c *openCache) put(id holt.WorkspaceID, ws *workspace.Workspace) {
	e := newEntry(id)
	e.ws, e.users = ws, 1
	c.kernels.watch(ws)
	c.mu.Lock()
	c.entries[id] = e
	c.mu.Unlock()
	c.release(e)
}

func errDeleted(id holt.WorkspaceID) error {
	return holt.Errorf(holt.NotFound, "the workspace %s has been deleted", id).WithHint("holt workspace list shows the workspaces there are")
}

// drop closes a workspace that is being deleted. It ends the contexts of its
// users, and no one can open the workspace until gone is called.
func (c *openCache) drop(id holt.WorkspaceID) (gone func()) {
	gone = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.deleting, id)
	}
	c.mu.Lock()
	c.deleting[id] = true
	e := c.entries[id]
	delete(c.entries, id)
	if e == nil {
		c.mu.Unlock()
		return gone
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.end(errDeleted(id))
	left := make(chan struct{})
	if e.left = left; e.users == 0 {
		close(left)
	}
	c.mu.Unlock()
	t := time.NewTimer(deleteWait)
	defer t.Stop()
	select {
	case <-left:
	case <-t.C:
		c.log.Warn("workspace is deleted although it is still used", "workspace", id)
	}
	if err := c.shut(e); err != nil {
		c.log.Warn("close workspace to delete it", "workspace", id, "err", err)
	}
	return gone
}

// take reserves an open workspace for one computer that writes to it. It returns
// false if another computer has it.
func (c *openCache) take(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := !e.taken
	e.taken = true
	return mine
}

func (c *openCache) untake(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.taken = false
}

// figures returns the figures of a workspace if it is open.
func (c *openCache) figures(id holt.WorkspaceID) (stats workspace.Stats, open bool) {
	c.mu.Lock()
	e := c.entries[id]
	c.mu.Unlock()
	if e == nil {
		return stats, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ws == nil {
		return stats, false
	}
	return e.ws.Stat(), true
}

// waiting returns how many bytes open workspaces have to pack.
func (c *openCache) waiting() (n int64) {
	c.mu.Lock()
	ids := slices.Collect(maps.Keys(c.entries))
	c.mu.Unlock()
	for _, id := range ids {
		if stats, open := c.figures(id); open {
			n += stats.Waiting
		}
	}
	return n
}
