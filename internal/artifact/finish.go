package artifact

import (
	"context"
	"io"
	"time"

	"holt"
	"holt/internal/store/db"
)

// notify has the artifacts stored that are not.
func (s *Store) notify() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// watch stores what was published and removes what was deleted, of each tenant one artifact after the other, until Close.
func (s *Store) watch() {
	retry := time.NewTicker(again)
	defer retry.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.work:
		case <-retry.C:
			s.expire()
			s.expireUploads()
		}
		list, err := s.rows(s.ctx, `WHERE a.state IN ('storing', 'deleting') OR a.held <> '' AND a.state = 'ready' ORDER BY a.seq`)
		if err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Error("artifacts are not stored; they are tried again later", "again_in", again, "err", err)
		}
		of := map[string][]row{}
		for _, a := range list {
			of[a.Tenant] = append(of[a.Tenant], a)
		}
		for tenant, list := range of {
			if _, busy := s.busy.LoadOrStore(tenant, true); busy {
				continue
			}
			s.wg.Go(func() {
				ok := s.finishAll(list)
				s.busy.Delete(tenant)
				if ok { // more may have been published meanwhile
					s.notify()
				}
			})
		}
	}
}

// finishAll stores artifacts; false: one could not be.
func (s *Store) finishAll(list []row) (ok bool) {
	ok = true
	for _, a := range list {
		err := error(nil)
		if a.State == deleting {
			err = s.purge(s.ctx, a)
		} else {
			err = s.finish(s.ctx, a.ID)
		}
		if err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Error("an artifact is not stored or removed; it is tried again later", "artifact", a.ID, "again_in", again, "err", err)
			ok = false
		}
	}
	return ok
}

// Finish stores the artifacts that are read from a workspace, which is to be deleted.
func (s *Store) Finish(ctx context.Context, id holt.WorkspaceID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	list, err := s.rows(ctx, `WHERE a.held = ? AND a.state = 'storing'`, id)
	for _, a := range list {
		if err := s.finish(ctx, a.ID); err != nil {
			return holt.Errorf(holt.CodeOf(err), "the artifact %s/%s of the workspace is not stored yet: %w", a.Bucket, a.Name, err).WithHint("try again, or delete the artifact first: holt artifact delete %s", a.ID)
		}
	}
	return err
}

// Holds reports whether an artifact is read from a checkpoint.
func (s *Store) Holds(ctx context.Context, checkpoint string) (bool, error) {
	list, err := s.rows(ctx, `WHERE a.id = ? AND a.held <> '' AND a.state <> 'ready'`, checkpoint)
	return len(list) > 0, err
}

// storing is an artifact that is being stored.
type storing struct {
	done   chan struct{}      // closed at its end
	cancel context.CancelFunc // the artifact is deleted
}

// finish stores the bytes of an artifact in state storing, and deletes the checkpoint. If another call does that it waits.
func (s *Store) finish(ctx context.Context, id holt.ArtifactID) error {
	for {
		s.mu.Lock()
		other := s.storing[id]
		if other == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	mine := &storing{make(chan struct{}), cancel}
	s.storing[id] = mine
	s.mu.Unlock()
	defer func() {
		cancel()
		s.mu.Lock()
		delete(s.storing, id)
		s.mu.Unlock()
		close(mine.done)
	}()
	list, err := s.rows(ctx, `WHERE a.id = ? AND (a.held <> '' OR a.parts > 0) AND `+visible, id)
	if err != nil || len(list) == 0 {
		return err
	}
	a := list[0]
	if a.parts > 0 {
		return s.finishUpload(ctx, a)
	}
	if a.State == holt.ArtifactStoring {
		at := holt.AtCheckpoint(string(a.held), string(a.ID))
		err = s.store(ctx, &a, bucket{}, func(w io.Writer) error { return s.cfg.Workspaces.Read(ctx, at, a.source, 0, -1, w) })
		if err != nil {
			if _, lost := s.Get(context.WithoutCancel(ctx), string(id)); holt.CodeOf(lost) == holt.NotFound {
				return nil // it was deleted
			}
		}
	}
	if err == nil {
		err = s.release(ctx, a)
	}
	return err
}

// release deletes the checkpoint of an artifact that is not read from it any more.
func (s *Store) release(ctx context.Context, a row) error {
	if a.held == "" {
		return nil
	}
	if err := s.cfg.Workspaces.Release(ctx, a.held, string(a.ID)); err != nil {
		return err
	}
	return s.cfg.DB.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE artifact SET held = '', source = '' WHERE seq = ?`, a.seq)
	})
}
