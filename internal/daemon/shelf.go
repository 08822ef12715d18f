package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"holt"
	"holt/internal/workspace"
)

// idleFor is how long a workspace that nothing uses stays open.
const idleFor = 30 * time.Second

// shelf holds the open workspaces. One is opened when something wants it and
// closed when nothing has for a while.
type shelf struct {
	dir   string
	log   *slog.Logger
	base  workspace.Options                                  // for all workspaces
	noted func(holt.WorkspaceID, workspace.Checkpoint, bool) // may be nil, see workspace.Options
	table workspaceTable
	idle  time.Duration

	kernels kernels

	// hostMounts are the ids of mounts on the host that go on, from a daemon before. It is complete before any
	// workspace is opened.
	hostMounts map[holt.WorkspaceID][16]byte

	mu      sync.Mutex
	closed  bool
	entries map[holt.WorkspaceID]*entry
	going   map[holt.WorkspaceID]bool // that are being deleted: nobody opens them any more
	wg      sync.WaitGroup            // closers of idle workspaces
}

// entry is a workspace that is or was open.
type entry struct {
	id  holt.WorkspaceID
	ctx context.Context // ends when it is deleted, with an error for its users as the cause
	end context.CancelCauseFunc

	mu sync.Mutex // held while it is opened or closed
	ws *workspace.Workspace

	// The rest is guarded by shelf.mu.
	users int
	taken bool // by the computer that writes to it
	timer *time.Timer
	left  chan struct{} // closed when the last user has left; set by drop
}

func newEntry(id holt.WorkspaceID) *entry {
	e := &entry{id: id}
	e.ctx, e.end = context.WithCancelCause(context.Background())
	return e
}

// during returns a context for one use of the workspace, which ends as well when
// that is deleted; done must be called.
func (e *entry) during(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// reason is why a use failed with err: once the workspace is being deleted, that.
func (e *entry) reason(err error) error {
	if err != nil && e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	return err
}

// close closes all workspaces; nobody uses them any more.
func (s *shelf) close() error {
	s.mu.Lock()
	s.closed = true
	var all []*entry
	for _, e := range s.entries {
		if e.timer != nil {
			e.timer.Stop()
		}
		all = append(all, e)
	}
	s.mu.Unlock()
	s.wg.Wait()
	var first error
	for _, e := range all {
		if err := s.shut(e); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *shelf) path(id holt.WorkspaceID) string { return filepath.Join(s.dir, string(id)) }

// options are what a workspace is opened with.
func (s *shelf) options(id holt.WorkspaceID, quota holt.Quota) workspace.Options {
	opt := s.base
	opt.Space, opt.Quota, opt.HostMount = string(id), quota, s.hostMounts[id]
	if s.noted != nil {
		opt.OnCheckpoint = func(c workspace.Checkpoint, deleted bool) { s.noted(id, c, deleted) }
	}
	return opt
}

// acquire opens a workspace, or finds it open. It stays open until its user
// calls release. NotFound if it is gone or going: it may have been found before.
func (s *shelf) acquire(id holt.WorkspaceID) (*entry, *workspace.Workspace, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("try again when it is back")
	}
	if s.going[id] {
		s.mu.Unlock()
		return nil, nil, errGoing(id)
	}
	e := s.entries[id]
	if e == nil {
		e = newEntry(id)
		s.entries[id] = e
	}
	e.users++
	s.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil { // meanwhile
		s.release(e)
		return nil, nil, errGoing(id)
	}
	if e.ws != nil {
		return e, e.ws, nil
	}
	quota, err := s.table.quota(context.Background(), id)
	var ws *workspace.Workspace
	if err == nil {
		ws, err = workspace.Open(s.path(id), s.options(id, quota))
	}
	if err != nil {
		s.release(e)
		return nil, nil, described(fmt.Errorf("open workspace: %w", err))
	}
	e.ws = ws
	s.kernels.watch(ws)
	if err := s.table.opened(id); err != nil {
		s.log.Warn("an open workspace is not noted as one to pack", "workspace", id, "err", err)
	}
	return e, ws, nil
}

// release says that one user of a workspace needs it no more.
func (s *shelf) release(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.users--
	if e.users == 0 && e.left != nil {
		close(e.left)
		return
	}
	if e.users > 0 || s.closed {
		return
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(s.idle, func() { s.expire(e) })
}

// expire closes a workspace that is still unused and has packed what it can.
func (s *shelf) expire(e *entry) {
	s.mu.Lock()
	if s.closed || e.users > 0 {
		s.mu.Unlock()
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	if err := s.shutIdle(e, false); err != nil {
		s.log.Error("close idle workspace", "workspace", e.id, "err", err)
	}
}

// shutIdle closes a workspace that is unused; with left also one that has
// something to pack.
func (s *shelf) shutIdle(e *entry, left bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.mu.Lock()
	used := e.users > 0
	s.mu.Unlock()
	if used || e.ws == nil {
		return nil
	}
	if e.ws.Stat().Waiting > 0 && !left {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed && e.left == nil {
			e.timer = time.AfterFunc(s.idle, func() { s.expire(e) })
		}
		return nil
	}
	return s.closeEntry(e)
}

// shut closes a workspace whoever uses it.
func (s *shelf) shut(e *entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ws == nil {
		return nil
	}
	return s.closeEntry(e)
}

// closeEntry closes the open workspace of an entry, whose lock is held, and
// keeps its figures for lists.
func (s *shelf) closeEntry(e *entry) error {
	stats := e.ws.Stat()
	err := e.ws.Close()
	s.kernels.drop(e.ws)
	e.ws = nil
	if lost := s.table.keepFigures(e.id, stats); lost != nil {
		s.log.Warn("keep figures of workspace", "workspace", e.id, "err", lost)
	}
	if err != nil {
		return fmt.Errorf("close workspace %s: %w", e.id, err)
	}
	return nil
}

// put adds a new open workspace that nobody uses yet.
func (s *shelf) put(id holt.WorkspaceID, ws *workspace.Workspace) {
	e := newEntry(id)
	e.ws, e.users = ws, 1
	s.kernels.watch(ws)
	s.mu.Lock()
	s.entries[id] = e
	s.mu.Unlock()
	s.release(e)
}

func errGoing(id holt.WorkspaceID) error {
	return holt.Errorf(holt.NotFound, "the workspace %s has been deleted", id).WithHint("holt workspace list shows the workspaces there are")
}

// dropWait is how long users of a workspace that is deleted may take to give
// up, once they were told.
const dropWait = 30 * time.Second

// drop closes a workspace that is being deleted: what goes on with it is given
// up, and nobody opens it any more, until gone is called.
func (s *shelf) drop(id holt.WorkspaceID) (gone func()) {
	gone = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.going, id)
	}
	s.mu.Lock()
	s.going[id] = true
	e := s.entries[id]
	delete(s.entries, id)
	if e == nil {
		s.mu.Unlock()
		return gone
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.end(errGoing(id))
	left := make(chan struct{})
	if e.left = left; e.users == 0 {
		close(left)
	}
	s.mu.Unlock()
	t := time.NewTimer(dropWait)
	defer t.Stop()
	select {
	case <-left:
	case <-t.C:
		s.log.Warn("workspace is deleted while it is used", "workspace", id)
	}
	if err := s.shut(e); err != nil {
		s.log.Warn("close workspace to delete it", "workspace", id, "err", err)
	}
	return gone
}

// take marks an open workspace as the one that a computer writes to; false if
// one does.
func (s *shelf) take(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := !e.taken
	e.taken = true
	return mine
}

func (s *shelf) untake(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.taken = false
}

// figures returns those of a workspace that is open.
func (s *shelf) figures(id holt.WorkspaceID) (stats workspace.Stats, open bool) {
	s.mu.Lock()
	e := s.entries[id]
	s.mu.Unlock()
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
