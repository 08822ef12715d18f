package upload

import (
	"context"
	"hash"
	"io"

	"holt"
)

// Abandoner is a request body whose reads can be ended: after Abandon a waiting Read and all later ones fail.
type Abandoner interface{ Abandon() }

// lock is the lock of one upload. It is kept, with the running hash, while the upload is open.
type lock struct {
	s    *Store
	id   holt.UploadID
	held chan struct{} // has an element while the lock is held

	// Guarded by Store.mu.
	users      int       // the holder and the callers that wait
	kept       bool      // keep the lock for its hash
	reading    io.Reader // body of the holder that appends
	committing bool

	// Guarded by the lock itself.
	sum    hash.Hash // of the first summed bytes; nil: none
	summed int64
}

// lockOf returns the lock of an upload for another user, which calls unref.
func (s *Store) lockOf(id holt.UploadID) *lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.locks[id]
	if t == nil {
		t = &lock{s: s, id: id, held: make(chan struct{}, 1)}
		s.locks[id] = t
	}
	t.users++
	return t
}

func (t *lock) unref() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.users--; t.users == 0 && !t.kept {
		delete(t.s.locks, t.id)
	}
}

// lock ends a call that appends and waits for the lock. It does not end a commit.
func (s *Store) lock(ctx context.Context, id holt.UploadID) (*lock, error) {
	t := s.lockOf(id)
	s.mu.Lock()
	if body, ok := t.reading.(Abandoner); ok {
		body.Abandon()
	}
	s.mu.Unlock()
	select {
	case t.held <- struct{}{}:
		return t, nil
	case <-ctx.Done():
		t.unref()
		return nil, holt.Errorf(holt.Unavailable, "the call ended while it waited for another on the same upload: %w", ctx.Err())
	case <-s.ctx.Done():
		t.unref()
		return nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("continue when it is back")
	}
}

// tryLock takes the lock if it is free.
func (s *Store) tryLock(id holt.UploadID) (*lock, bool) {
	t := s.lockOf(id)
	select {
	case t.held <- struct{}{}:
		return t, true
	default:
		t.unref()
		return nil, false
	}
}

func (t *lock) unlock() {
	t.s.mu.Lock()
	t.kept = t.sum != nil
	t.s.mu.Unlock()
	<-t.held
	t.unref()
}

func (t *lock) dropHash() { t.sum, t.summed = nil, 0 }

func (t *lock) setReader(r io.Reader) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.reading = r
	if body, ok := r.(Abandoner); ok && t.users > 1 { // another call waits
		body.Abandon()
	}
}

func (t *lock) setCommitting(on bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.committing = on
}
