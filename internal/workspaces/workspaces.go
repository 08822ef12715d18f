package workspaces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/guest/mount"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Config is what a [Store] needs.
type Config struct {
	DB        *db.DB // with [Schema]
	Keys      *idempotency.Keys
	Dir       string            // one directory for each workspace; it may be a mount of its own
	Workspace workspace.Options // for every workspace; Log and Archive must be set
	Keeper    *mount.Keeper     // keeps host mounts when this process ends; nil: they end with it

	// Checkpoint is called after a checkpoint was taken or deleted; may be nil.
	Checkpoint func(id holt.WorkspaceID, c workspace.Checkpoint, deleted bool)
	// Observe is called after each file system request of a guest; may be nil.
	Observe func(op string, took time.Duration)
}

// Store is the workspaces of a daemon.
type Store struct {
	keys    *idempotency.Keys
	log     *slog.Logger
	observe func(op string, took time.Duration)
	table   table
	open    *openCache
	mounts  *hostMounts
	queries db.Turns

	// Set by SetComputers.
	guests   *computer.Guests
	inGuests *computer.Files // of running computers

	artifacts Artifacts // set by SetArtifacts
}

// Open opens the store, removes half-made workspaces, and takes host mounts over from their
// keepers; [Store.Remount] serves them.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	base := cfg.Workspace
	if base.Reserve == nil {
		base.Reserve = workspace.NewReserve(filepath.Join(cfg.Dir, ".reserve"))
	}
	table := table{cfg.DB}
	open := newOpenCache(cfg.Dir, base, table)
	open.onCheckpoint = cfg.Checkpoint
	s := &Store{
		keys: cfg.Keys, log: base.Log, observe: cfg.Observe, table: table, open: open,
		mounts: &hostMounts{data: filepath.Dir(cfg.Dir), log: base.Log, table: table, open: open, keeper: cfg.Keeper,
			mounts: map[string]*hostMount{}, kept: map[string]*mount.Kept{}},
		queries: db.Turns{Most: maxQueries, OfTenant: maxQueriesPerTenant, OfOne: maxQueriesPerWorkspace},
	}
	s.mounts.having = s.having
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make workspace directory: %w", err)
	}
	err := s.removeHalfMade(ctx)
	if err == nil {
		err = s.mounts.find(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) removeHalfMade(ctx context.Context) error {
	rows, err := s.table.rows(ctx, `WHERE state <> 'ready' AND NOT EXISTS (SELECT 1 FROM artifact WHERE held = workspace.id AND state = 'storing')`) // see SetArtifacts
	if err != nil {
		return err
	}
	for _, r := range rows {
		s.log.InfoContext(ctx, "remove half-made workspace", "workspace", r.id, "name", r.name)
		if err := s.remove(ctx, r.id); err != nil {
			return err
		}
	}
	return nil
}

// SetComputers says which computers use the workspaces. Until it is called there are none.
func (s *Store) SetComputers(c *computer.Store) {
	s.guests, s.inGuests = c.Guests(), c.Files()
}

// having returns the computer that has a workspace; ok is false if none does.
func (s *Store) having(ctx context.Context, id holt.WorkspaceID) (c holt.Computer, ok bool, err error) {
	if s.guests == nil {
		return c, false, nil
	}
	return s.guests.Having(ctx, id)
}

// Close closes all workspaces. Nothing uses them any more, and [Store.LeaveMounts] was called.
func (s *Store) Close() error {
	s.mounts.wg.Wait()
	return s.open.close()
}

// use calls fn with an open workspace. The context of fn ends when the
// workspace is deleted; fn should then return.
func (s *Store) use(ctx context.Context, ref string, fn func(context.Context, *workspace.Workspace) error) error {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return err
	}
	return s.useID(ctx, r.id, fn)
}

// useID is use of a workspace that was found, also while it is being deleted.
func (s *Store) useID(ctx context.Context, id holt.WorkspaceID, fn func(context.Context, *workspace.Workspace) error) error {
	e, ws, err := s.open.acquire(id)
	if err != nil {
		return err
	}
	defer s.open.release(e)
	ctx, done := e.during(ctx)
	defer done()
	return hosterror.Describe(e.reason(fn(ctx, ws)))
}

// Check compares everything that a workspace records about itself with its content.
func (s *Store) Check(ctx context.Context, ref string) (report holt.CheckReport, err error) {
	err = s.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		report, err = ws.Check(ctx)
		return err
	})
	return report, err
}

// ServeGuest answers a guest's file requests.
func (s *Store) ServeGuest(ctx context.Context, ws *workspace.Workspace, conn net.Conn, writer func(string) workspace.Writer) error {
	return mount.Guest(ctx, ws, conn, mount.GuestOptions{Writer: writer, Notifier: s.open.kernels.of(ws), Observe: s.observe, Log: s.log})
}
