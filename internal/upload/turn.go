package upload

import (
	"context"
	"hash"
	"io"

	"holt"
)

// Abandoner is a body whose reading can be ended from outside: a Read that waits, and all that come, then fail.
type Abandoner interface{ Abandon() }

// turn is whose upload it is to work on: one has it, others wait. It stays, with the running hash, while the
// upload is under way.
type turn struct {
	s    *Store
	id   holt.UploadID
	held chan struct{} // holds one while somebody has it

	// Guarded by Store.mu.
	users      int       // who has it, and who waits for it
	kept       bool      // sum is of use to the next
	reading    io.Reader // of who adds now
	committing bool

	// Whoever has the turn has these.
	sum    hash.Hash // of the first summed bytes; nil: of nothing
	summed int64
}

// turnOf returns the turn of an upload for one more who wants it; leave gives that up.
func (s *Store) turnOf(id holt.UploadID) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turns[id]
	if t == nil {
		t = &turn{s: s, id: id, held: make(chan struct{}, 1)}
		s.turns[id] = t
	}
	t.users++
	return t
}

func (t *turn) leave() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.users--; t.users == 0 && !t.kept {
		delete(t.s.turns, t.id)
	}
}

// takeTurn waits for the turn, and has whoever adds now stop. A commit is waited for.
func (s *Store) takeTurn(ctx context.Context, id holt.UploadID) (*turn, error) {
	t := s.turnOf(id)
	s.mu.Lock()
	if body, ok := t.reading.(Abandoner); ok {
		body.Abandon()
	}
	s.mu.Unlock()
	select {
	case t.held <- struct{}{}:
		return t, nil
	case <-ctx.Done():
		t.leave()
		return nil, holt.Errorf(holt.Unavailable, "the call was given up while another worked on the upload: %w", ctx.Err())
	case <-s.ctx.Done():
		t.leave()
		return nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("go on when it is back")
	}
}

// tryTurn takes it if nobody has it.
func (s *Store) tryTurn(id holt.UploadID) (*turn, bool) {
	t := s.turnOf(id)
	select {
	case t.held <- struct{}{}:
		return t, true
	default:
		t.leave()
		return nil, false
	}
}

// end gives the turn to the next.
func (t *turn) end() {
	t.s.mu.Lock()
	t.kept = t.sum != nil
	t.s.mu.Unlock()
	<-t.held
	t.leave()
}

// forget lets the running hash go, with the upload.
func (t *turn) forget() { t.sum, t.summed = nil, 0 }

func (t *turn) reads(r io.Reader) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.reading = r
	if body, ok := r.(Abandoner); ok && t.users > 1 { // somebody has come meanwhile
		body.Abandon()
	}
}

func (t *turn) commits(on bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.committing = on
}
