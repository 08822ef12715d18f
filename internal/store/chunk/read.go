package chunk

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"holt"
	"holt/internal/store/db"
)

// place is where a chunk's bytes are stored.
type place struct {
	pack PackID
	entry
}

// found is one piece of a part and its chunk.
type found struct {
	off   int64
	n     int
	delta int
	place
}

// ReadAt fills p with the bytes of a part from off. It returns NotFound if the
// part does not have all of them, Corrupt if stored bytes are damaged,
// Unavailable or Timeout if the store does not answer. It waits up to 30 s for
// an index that is being rebuilt.
func (a *Archive) ReadAt(ctx context.Context, space, part string, p []byte, off int64) error {
	for len(p) > 0 {
		pieces, err := a.find(ctx, space, part, off, len(p))
		if a.index.await(ctx, err) {
			pieces, err = a.find(ctx, space, part, off, len(p))
		}
		if errors.Is(err, errOut) {
			return err
		}
		if err != nil {
			return holt.Errorf(holt.Unavailable, "look up %s/%s at %d: %w", space, part, off, err)
		}
		if len(pieces) == 0 {
			return holt.Errorf(holt.NotFound, "the archive does not have byte %d of %s/%s", off, space, part)
		}
		for _, f := range pieces {
			b, err := a.content(ctx, f.place)
			if err != nil {
				return err
			}
			from := f.delta + int(off-f.off)
			n := copy(p, b[from:f.delta+f.n])
			p, off = p[n:], off+int64(n)
		}
	}
	return nil
}

// find returns consecutive pieces from off, without gaps, up to n bytes and a
// bounded number of pieces.
func (a *Archive) find(ctx context.Context, space, part string, off int64, n int) (pieces []found, err error) {
	next := off
	return pieces, a.index.query(ctx, "SELECT piece.off, piece.len, piece.delta, chunk.id, chunk.off, chunk.stored, chunk.length, chunk.sum, pack.id"+
		" FROM piece JOIN chunk ON chunk.n = piece.chunk JOIN pack ON pack.n = chunk.pack"+
		" WHERE manifest = (SELECT part.manifest FROM space JOIN part ON part.space = space.n WHERE space.name = ?1 AND part.name = ?2)"+
		" AND piece.off >= (SELECT max(off) FROM piece WHERE manifest = (SELECT part.manifest FROM space JOIN part ON part.space = space.n WHERE space.name = ?1 AND part.name = ?2) AND off <= ?3)"+
		" AND piece.off < ?4 ORDER BY piece.off LIMIT 64",
		func(s *db.Stmt) {
			s.BindText(1, space)
			s.BindText(2, part)
			s.BindInt64(3, off)
			s.BindInt64(4, off+int64(n))
		},
		func(s *db.Stmt) {
			f := found{s.ColumnInt64(0), int(s.ColumnInt64(1)), int(s.ColumnInt64(2)), place{entry: entry{off: s.ColumnInt64(4),
				stored: int(s.ColumnInt64(5)), length: int(s.ColumnInt64(6)), sum: uint32(s.ColumnInt64(7))}}}
			s.ColumnBytes(3, f.id[:])
			s.ColumnBytes(8, f.pack[:])
			if f.off > next || f.off+int64(f.n) <= next {
				next = -1 // a gap: ignore the rest
				return
			}
			next = f.off + int64(f.n)
			pieces = append(pieces, f)
		})
}

// placeOf reads a place from the columns id, off, stored, length, sum and pack
// id, starting with column i.
func placeOf(r *db.Row, i int) place {
	return place{PackID(r.Bytes(i + 5)), entry{ID(r.Bytes(i)), r.Int64(i + 1), int(r.Int64(i + 2)), int(r.Int64(i + 3)), uint32(r.Int64(i + 4))}}
}

// content returns the verified bytes of a chunk; they must not be changed.
// Concurrent reads of one chunk share a fetch.
func (a *Archive) content(ctx context.Context, p place) ([]byte, error) {
	if b := a.hot.get(p.id); b != nil {
		return b, nil
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil, holt.Errorf(holt.Unavailable, "the archive is closed")
	}
	a.running.Add(1)
	a.mu.Unlock()
	done := a.fetches.DoChan(string(p.id[:]), func() (any, error) {
		// The fetch is shared, so it must not end with the context of one caller.
		b, err := a.fetch(a.ctx, p)
		if err == nil {
			a.hot.put(p.id, b)
		}
		return b, err
	})
	select {
	case r := <-done:
		a.running.Done()
		b, _ := r.Val.([]byte)
		return b, r.Err
	case <-ctx.Done():
		go func() { <-done; a.running.Done() }()
		return nil, holt.Errorf(holt.Timeout, "read chunk %s: %w", p.id, ctx.Err())
	}
}

// fetch reads and verifies a chunk. It retries once if the pack has been
// collected since, or if a cached block was wrong.
func (a *Archive) fetch(ctx context.Context, p place) ([]byte, error) {
	b, err := a.load(ctx, p)
	switch holt.CodeOf(err) {
	case "":
		return b, nil
	case holt.NotFound:
		again, ok, lookup := a.locate(ctx, p.id)
		if lookup == nil && ok && again.pack != p.pack {
			p = again
			b, err = a.load(ctx, p)
		}
		if holt.CodeOf(err) == holt.NotFound {
			err = holt.Errorf(holt.Corrupt, "pack %s, which holds chunk %s, is gone", p.pack, p.id)
		}
	case holt.Corrupt:
		if c, ok := a.store.(interface {
			Discard(name string, off int64, n int)
		}); ok {
			a.log.Warn("chunk is damaged: reading it again", "chunk", p.id.String(), "pack", p.pack.String(), "offset", p.off, "error", err)
			c.Discard(p.pack.object(), p.off, p.stored)
			b, err = a.load(ctx, p)
		}
	}
	if err != nil {
		a.log.Error("chunk cannot be read", "chunk", p.id.String(), "pack", p.pack.String(), "offset", p.off, "error", err)
	}
	return b, err
}

func (a *Archive) load(ctx context.Context, p place) ([]byte, error) {
	stored, err := readStored(ctx, a.store, p.pack, p.entry)
	if err != nil {
		return nil, err
	}
	return a.codec.unpack(stored, p.length, p.id)
}

// locate finds the place of a chunk.
func (a *Archive) locate(ctx context.Context, id ID) (p place, ok bool, err error) {
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT chunk.id, chunk.off, stored, length, sum, pack.id FROM chunk JOIN pack ON pack.n = chunk.pack WHERE chunk.id = ?", []any{id[:]},
			func(r *db.Row) error { p, ok = placeOf(r, 0), true; return nil })
	})
	return p, ok, err
}

// hot is an LRU cache of the content of chunks.
type hot struct {
	most int

	mu    sync.Mutex
	used  int
	m     map[ID]*list.Element
	order list.List // of hotChunk, last used first
}

type hotChunk struct {
	id ID
	b  []byte
}

func (h *hot) get(id ID) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.m[id]
	if !ok {
		return nil
	}
	h.order.MoveToFront(e)
	return e.Value.(hotChunk).b
}

func (h *hot) put(id ID, b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[ID]*list.Element{}
	}
	if _, ok := h.m[id]; ok {
		return
	}
	h.m[id] = h.order.PushFront(hotChunk{id, b})
	for h.used += len(b); h.used > h.most; {
		e := h.order.Back()
		c := h.order.Remove(e).(hotChunk)
		delete(h.m, c.id)
		h.used -= len(c.b)
	}
}
