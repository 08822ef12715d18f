package chunk

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"holt"
	"holt/internal/store/db"
)

// Ranks in table doomed order removal: a referring object goes before its
// target, so that the store never holds a space without its manifests or a
// manifest without its packs.
const (
	rankSpace = iota
	rankManifest
	rankPack
)

func doom(tx *db.Tx, object string, rank int) error {
	return tx.Exec("INSERT OR IGNORE INTO doomed(object, rank) VALUES (?, ?)", object, rank)
}

// clear removes all doomed objects.
func (a *Archive) clear(ctx context.Context) error {
	a.clearing.Lock()
	defer a.clearing.Unlock()
	return a.clearSome(ctx, -1)
}

// clearSome removes up to most doomed objects; below 0: all. It holds the lock
// clearing, so that an object it has listed is still doomed when it is removed.
func (a *Archive) clearSome(ctx context.Context, most int) error {
	var objects []string
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT object FROM doomed ORDER BY rank, object LIMIT ?", []any{most}, func(r *db.Row) error {
			objects = append(objects, r.Text(0))
			return nil
		})
	})
	for i, object := range objects {
		if err == nil {
			err = a.fail("object.delete")
		}
		if err == nil {
			err = a.store.Delete(ctx, object)
		}
		if err != nil {
			objects = objects[:i]
			break
		}
	}
	if len(objects) == 0 {
		return err
	}
	done := a.index.Write(ctx, func(tx *db.Tx) error {
		for _, object := range objects {
			if err := tx.Exec("DELETE FROM doomed WHERE object = ?", object); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = done
	}
	return err
}

// space returns a space from the index; an unknown one is empty.
func (a *Archive) space(ctx context.Context, name string) (s *space, err error) {
	if err := CheckName(name + "/0"); err != nil || len(name) > 127 {
		return nil, holt.Errorf(holt.InvalidArgument, "%q cannot name a space", name)
	}
	err = a.index.Read(ctx, func(tx *db.Tx) error { s, err = readSpace(tx, name); return err })
	return s, err
}

func readSpace(tx *db.Tx, name string) (*space, error) {
	s := &space{name: name, parts: map[string]ManifestID{}}
	err := tx.Query("SELECT seq FROM space WHERE name = ?", []any{name}, func(r *db.Row) error { s.seq = uint64(r.Int64(0)); return nil })
	if err != nil {
		return nil, err
	}
	return s, tx.Query("SELECT part.name, manifest.id FROM space JOIN part ON part.space = space.n JOIN manifest ON manifest.n = part.manifest"+
		" WHERE space.name = ?", []any{name}, func(r *db.Row) error {
		s.parts[r.Text(0)] = ManifestID(r.Bytes(1))
		return nil
	})
}

// replace makes s the index's entry of the space. The manifests it names must
// exist. Manifests that no space names any more are removed, with older
// versions.
func (s *space) replace(tx *db.Tx, gone bool) error {
	old, err := readSpace(tx, s.name)
	if err != nil {
		return err
	}
	if old.seq > 0 {
		if err := doom(tx, old.object(), rankSpace); err != nil {
			return err
		}
	}
	err = tx.Exec("INSERT INTO space(name, seq, gone) VALUES (?1, ?2, ?3) ON CONFLICT(name) DO UPDATE SET seq = ?2, gone = ?3", s.name, int64(s.seq), gone)
	if err != nil {
		return err
	}
	for _, part := range slices.Sorted(maps.Keys(s.parts)) {
		id := s.parts[part]
		if old.parts[part] == id {
			continue
		}
		err := tx.Exec("INSERT OR REPLACE INTO part(space, name, manifest) SELECT space.n, ?2, manifest.n FROM space, manifest WHERE space.name = ?1 AND manifest.id = ?3",
			s.name, part, id[:])
		if err == nil && tx.Changes() == 0 {
			err = fmt.Errorf("manifest %s of part %s of %s is not there", id, part, s.name)
		}
		if err != nil {
			return err
		}
	}
	for part, id := range old.parts {
		if s.parts[part] == id {
			continue
		}
		if _, kept := s.parts[part]; !kept {
			if err := tx.Exec("DELETE FROM part WHERE name = ?2 AND space = (SELECT n FROM space WHERE name = ?1)", s.name, part); err != nil {
				return err
			}
		}
		if err := drop(tx, id); err != nil {
			return err
		}
	}
	return nil
}

// drop removes a manifest that no part needs.
func drop(tx *db.Tx, id ManifestID) error {
	used := false
	err := tx.Query("SELECT 1 FROM part JOIN manifest ON manifest.n = part.manifest WHERE manifest.id = ? LIMIT 1", []any{id[:]},
		func(*db.Row) error { used = true; return nil })
	if err != nil || used {
		return err
	}
	if err := tx.Exec("DELETE FROM piece WHERE manifest = (SELECT n FROM manifest WHERE id = ?)", id[:]); err != nil {
		return err
	}
	if err := tx.Exec("DELETE FROM manifest WHERE id = ?", id[:]); err != nil {
		return err
	}
	return doom(tx, id.object(), rankManifest)
}

// insert adds a manifest, if missing, and its pieces. Every chunk must exist.
func (m *manifest) insert(tx *db.Tx) error {
	if err := tx.Exec("INSERT INTO manifest(id, lost) VALUES (?1, ?2) ON CONFLICT(id) DO UPDATE SET lost = ?2", m.id[:], m.lost); err != nil {
		return err
	}
	var number int64
	err := tx.Query("SELECT n FROM manifest WHERE id = ?", []any{m.id[:]}, func(r *db.Row) error { number = r.Int64(0); return nil })
	if err != nil {
		return err
	}
	numbers := make([]int64, len(m.ids))
	find, err := tx.Prepare("UPDATE chunk SET freed = NULL WHERE id = ? RETURNING n")
	if err != nil {
		return err
	}
	for i := range m.ids {
		find.BindBytes(1, m.ids[i][:])
		there, err := find.Step()
		if err != nil {
			return err
		}
		if !there {
			return holt.Errorf(holt.Corrupt, "chunk %s of manifest %s is in no pack", m.ids[i], m.id)
		}
		numbers[i] = find.ColumnInt64(0)
		if err := find.Reset(); err != nil {
			return err
		}
	}
	add, err := tx.Prepare("INSERT INTO piece(manifest, off, len, chunk, delta) VALUES (?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	for _, p := range m.pieces {
		for k, v := range []int64{number, p.off, int64(p.n), numbers[p.chunk], int64(p.delta)} {
			add.BindInt64(1+k, v)
		}
		if _, err := add.Step(); err != nil {
			return err
		}
		if err := add.Reset(); err != nil {
			return err
		}
	}
	return nil
}

// Names lists the names of a space's parts, sorted.
func (a *Archive) Names(ctx context.Context, space string) (names []string, err error) {
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT part.name FROM space JOIN part ON part.space = space.n WHERE space.name = ? ORDER BY part.name", []any{space},
			func(r *db.Row) error { names = append(names, r.Text(0)); return nil })
	})
	return names, err
}

// Part is one part of a space.
type Part struct {
	Name   string
	Bytes  int64 // of content
	Pieces int64
}

// Parts lists a space's parts by name; none if the space does not exist.
func (a *Archive) Parts(ctx context.Context, space string) (parts []Part, err error) {
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT part.name, COALESCE(SUM(piece.len), 0), COUNT(piece.off) FROM space JOIN part ON part.space = space.n"+
			" LEFT JOIN piece ON piece.manifest = part.manifest WHERE space.name = ? GROUP BY part.name ORDER BY part.name", []any{space},
			func(r *db.Row) error {
				parts = append(parts, Part{r.Text(0), r.Int64(1), r.Int64(2)})
				return nil
			})
	})
	return parts, err
}

// Fork creates a space with the parts of another, in time independent of their
// size. It replaces a space of that name.
func (a *Archive) Fork(ctx context.Context, from, to string) error {
	return a.update(ctx, to, update{change: func(s *space) error {
		of, err := a.space(ctx, from) // read under the lock of changes
		if err == nil {
			s.parts = of.parts
		}
		return err
	}})
}

// Share gives a space parts of another: each name in parts gets the bytes of the part of from that it maps to. It copies nothing.
//
// Errors: NotFound (from does not have one of them); then nothing changes.
func (a *Archive) Share(ctx context.Context, from, to string, parts map[string]string) error {
	return a.update(ctx, to, update{change: func(s *space) error {
		of, err := a.space(ctx, from) // read under the lock of changes
		if err != nil {
			return err
		}
		for name, part := range parts {
			id, ok := of.parts[part]
			if !ok {
				return holt.Errorf(holt.NotFound, "the archive has no part %s of %s", part, from)
			}
			s.parts[name] = id
		}
		return nil
	}})
}

// Remove removes parts of a space. Missing parts are no error.
func (a *Archive) Remove(ctx context.Context, name string, parts ...string) error {
	return a.update(ctx, name, update{change: func(s *space) error {
		for _, p := range parts {
			delete(s.parts, p)
		}
		return nil
	}})
}

// Drop removes a space with all its parts. If the store does not answer now,
// Collect removes the objects later; if the index is lost before that, the
// space comes back. The space also comes back if a delayed put takes effect
// after the next collection; it must then be dropped again.
func (a *Archive) Drop(ctx context.Context, name string) error {
	// A change that failed in the store, such as an interrupted put, may have left
	// a space that the index does not know: record it as gone.
	if a.tornSoFar() == 0 {
		if s, err := a.space(ctx, name); err != nil || s.seq == 0 {
			return err
		}
	}
	return a.update(ctx, name, update{gone: true, change: func(s *space) error {
		clear(s.parts)
		return nil
	}})
}

// Range is bytes Off..Off+Len of a part.
type Range struct{ Off, Len int64 }

// Ranges returns the ranges of a part that hold bytes: sorted, disjoint,
// adjacent ones joined. It returns NotFound if the part does not exist, and
// Corrupt if chunks of it are missing: their ranges cannot be told from holes.
func (a *Archive) Ranges(ctx context.Context, space, part string) (ranges []Range, err error) {
	there, lost := false, false
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		err := tx.Query("SELECT lost FROM space JOIN part ON part.space = space.n JOIN manifest ON manifest.n = part.manifest"+
			" WHERE space.name = ?1 AND part.name = ?2", []any{space, part}, func(r *db.Row) error { there, lost = true, r.Int64(0) != 0; return nil })
		if err != nil || lost {
			return err
		}
		return tx.Query("SELECT piece.off, piece.len FROM space JOIN part ON part.space = space.n JOIN piece ON piece.manifest = part.manifest"+
			" WHERE space.name = ?1 AND part.name = ?2 ORDER BY piece.off", []any{space, part}, func(r *db.Row) error {
			next := Range{r.Int64(0), r.Int64(1)}
			if n := len(ranges); n > 0 && ranges[n-1].Off+ranges[n-1].Len == next.Off {
				ranges[n-1].Len += next.Len
				return nil
			}
			ranges = append(ranges, next)
			return nil
		})
	})
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, holt.Errorf(holt.NotFound, "the archive has no part %s of %s", part, space)
	case lost:
		return nil, holt.Errorf(holt.Corrupt, "chunks of part %s of %s are in no pack", part, space).WithHint("run holt archive check for details")
	}
	return ranges, nil
}

// Narrow keeps only the bytes of a part in ranges, which are sorted and
// disjoint. Chunks that no part needs any more become garbage. A part with
// missing chunks is left unchanged, because only its manifest names them.
func (a *Archive) Narrow(ctx context.Context, space, part string, ranges []Range) error {
	if lost, err := a.isLost(ctx, space, part); err != nil || lost {
		return err
	}
	w := a.Create(space, part)
	defer w.Abort()
	n := map[int64]int{}
	i := 0
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT piece.off, piece.len, piece.delta, piece.chunk, chunk.id"+fromPieces+"ORDER BY piece.off", []any{space, part}, func(r *db.Row) error {
			off, end := r.Int64(0), r.Int64(0)+r.Int64(1)
			for i < len(ranges) && ranges[i].Off+ranges[i].Len <= off {
				i++
			}
			for k := i; k < len(ranges) && ranges[k].Off < end; k++ {
				lo, hi := max(off, ranges[k].Off), min(end, ranges[k].Off+ranges[k].Len)
				if _, ok := n[r.Int64(3)]; !ok {
					n[r.Int64(3)] = len(w.m.ids)
					w.m.ids = append(w.m.ids, ID(r.Bytes(4)))
				}
				w.m.pieces = append(w.m.pieces, piece{lo, int(hi - lo), n[r.Int64(3)], int(r.Int64(2) + lo - off)})
			}
			return nil
		})
	})
	if err != nil {
		w.m.ids = nil // nothing is pinned
		return err
	}
	a.mu.Lock()
	for _, id := range w.m.ids {
		a.pinned[id]++
	}
	a.mu.Unlock()
	_, err = w.Commit(ctx)
	return err
}

const fromPieces = " FROM space JOIN part ON part.space = space.n JOIN piece ON piece.manifest = part.manifest" +
	" JOIN chunk ON chunk.n = piece.chunk WHERE space.name = ?1 AND part.name = ?2 "
