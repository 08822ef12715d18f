package chunk

import (
	"context"

	"holt"
	"holt/db"
)

// Rebuild makes the chunk index again from the objects in the store. What a
// damaged pack held is missed with an error by whoever reads it.
func (a *Archive) Rebuild(ctx context.Context) error {
	a.change.Lock()
	defer a.change.Unlock()
	err := a.index.Write(ctx, func(tx *db.Tx) error {
		for _, table := range []string{"meta", "pack", "chunk", "manifest", "piece", "space", "part", "doomed"} {
			if err := tx.Exec("DELETE FROM " + table); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = a.reconcile(ctx)
	}
	if err == nil {
		err = a.index.WriteSync(ctx, func(tx *db.Tx) error { return tx.Exec("INSERT INTO meta(key, value) VALUES ('whole', 1)") })
	}
	if err != nil {
		return holt.Errorf(holt.CodeOf(err), "rebuild chunk index: %w", err)
	}
	return nil
}

// reconcile takes into the index what the store has and it has not: what a
// crash between two steps of a change left, or everything. What is not of use
// is doomed. It runs under the lock of changes.
func (a *Archive) reconcile(ctx context.Context) error {
	if err := a.findPacks(ctx); err != nil {
		return err
	}
	if err := a.findSpaces(ctx); err != nil {
		return err
	}
	return a.findManifests(ctx)
}

// names returns the first column of a query as a set.
func (a *Archive) names(ctx context.Context, sql string) (map[string]struct{}, error) {
	set := map[string]struct{}{}
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(sql, nil, func(r *db.Row) error { set[string(r.Bytes(0))] = struct{}{}; return nil })
	})
	return set, err
}

// findPacks adds packs that the index does not know, as garbage at first.
func (a *Archive) findPacks(ctx context.Context) error {
	known, err := a.names(ctx, "SELECT id FROM pack")
	if err != nil {
		return err
	}
	var lost []Object
	err = a.store.List(ctx, packPrefix, func(o Object) error {
		id, ok := parsePack(o.Name)
		if _, have := known[string(id[:])]; ok && !have {
			lost = append(lost, o)
		}
		return nil
	})
	for _, o := range lost {
		if err != nil {
			return err
		}
		id, _ := parsePack(o.Name)
		a.mu.Lock()
		_, flying := a.flying[id]
		a.mu.Unlock()
		if flying {
			continue
		}
		err = a.adopt(ctx, id, o.Size)
	}
	return err
}

// adopt adds one pack by what it says of itself. One that is damaged stays
// where it is.
func (a *Archive) adopt(ctx context.Context, id PackID, size int64) error {
	entries, err := readTable(ctx, a.store, id, size)
	switch holt.CodeOf(err) {
	case "":
	case holt.Corrupt:
		a.log.Error("pack cannot be read and is left alone", "pack", id.String(), "error", err)
		return nil
	case holt.NotFound: // it was doomed, and removed meanwhile
		return nil
	default:
		return err
	}
	p := packed{id, size, entries}
	return a.index.Write(ctx, func(tx *db.Tx) error {
		doomed := false // its removal is only not done yet
		err := tx.Query("SELECT 1 FROM doomed WHERE object = ?", []any{id.object()}, func(*db.Row) error { doomed = true; return nil })
		if err != nil || doomed {
			return err
		}
		// A chunk of a pack that is damaged now may be here too.
		return p.insert(tx)
	})
}

// findSpaces takes over versions of spaces that are newer than the index, and
// dooms older ones.
func (a *Archive) findSpaces(ctx context.Context) error {
	found := map[string][]uint64{} // ascending
	err := a.store.List(ctx, spacePrefix, func(o Object) error {
		if name, seq, ok := parseSpace(o.Name); ok {
			found[name] = append(found[name], seq)
		}
		return nil
	})
	if err != nil {
		return err
	}
	seqs, gone := map[string]uint64{}, map[string]bool{}
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT name, seq, gone FROM space", nil, func(r *db.Row) error {
			seqs[r.Text(0)], gone[r.Text(0)] = uint64(r.Int64(1)), r.Int64(2) != 0
			return nil
		})
	})
	if err != nil {
		return err
	}
	for name, versions := range found {
		current := seqs[name]
		if last := versions[len(versions)-1]; last > current && !gone[name] {
			if err := a.takeSpace(ctx, name, last); err != nil {
				return err
			}
			current = last
		}
		for _, seq := range versions {
			if seq == current && !gone[name] {
				continue
			}
			old := space{name: name, seq: seq}
			if err := a.index.Write(ctx, func(tx *db.Tx) error { return doom(tx, old.object(), rankSpace) }); err != nil {
				return err
			}
		}
	}
	// With every version doomed, a space that is gone need not be remembered.
	return a.index.Write(ctx, func(tx *db.Tx) error { return tx.Exec("DELETE FROM space WHERE gone") })
}

// object reads an object that is small enough to be read whole.
func (a *Archive) object(ctx context.Context, name string) ([]byte, error) {
	size, err := a.store.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if size > maxManifest+4 {
		return nil, holt.Errorf(holt.Corrupt, "object %s is %d bytes long", name, size)
	}
	b := make([]byte, size)
	return b, a.store.Get(ctx, name, b, 0)
}

// takeSpace makes a stored version of a space the current one.
func (a *Archive) takeSpace(ctx context.Context, name string, seq uint64) error {
	want := space{name: name, seq: seq}
	b, err := a.object(ctx, want.object())
	if err != nil {
		return err
	}
	s, err := decodeSpace(b)
	if err != nil || s.name != name || s.seq != seq {
		return holt.Errorf(holt.Corrupt, "object %s is damaged", want.object())
	}
	for _, id := range s.parts {
		if err := a.takeManifest(ctx, id); err != nil {
			return err
		}
	}
	return a.index.WriteSync(ctx, func(tx *db.Tx) error { return s.replace(tx, false) })
}

// takeManifest adds a manifest that the index does not know. Pieces of chunks
// that are in no pack are left out: reading them is an error.
func (a *Archive) takeManifest(ctx context.Context, id ManifestID) error {
	known := false
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT 1 FROM manifest WHERE id = ?", []any{id[:]}, func(*db.Row) error { known = true; return nil })
	})
	if err != nil || known {
		return err
	}
	b, err := a.object(ctx, id.object())
	if err != nil {
		return err
	}
	m, err := decodeManifest(b)
	if err != nil || m.id != id {
		return holt.Errorf(holt.Corrupt, "object %s is damaged", id.object())
	}
	return a.index.Write(ctx, func(tx *db.Tx) error {
		lost, err := m.leaveOut(tx)
		if err != nil {
			return err
		}
		if lost > 0 {
			a.log.Error("chunks of a manifest are in no pack", "manifest", id.String(), "chunks", lost)
		}
		return m.insert(tx)
	})
}

// leaveOut removes the pieces whose chunks are not there, and returns how many
// chunks are missing.
func (m *manifest) leaveOut(tx *db.Tx) (lost int, err error) {
	number := make([]int, len(m.ids))
	var ids []ID
	for i, id := range m.ids {
		number[i] = -1
		err := tx.Query("SELECT 1 FROM chunk WHERE id = ?", []any{id[:]}, func(*db.Row) error {
			number[i] = len(ids)
			ids = append(ids, id)
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	pieces := m.pieces[:0]
	for _, p := range m.pieces {
		if p.chunk = number[p.chunk]; p.chunk >= 0 {
			pieces = append(pieces, p)
		}
	}
	lost = len(m.ids) - len(ids)
	m.ids, m.pieces = ids, pieces
	return lost, nil
}

// findManifests dooms manifests that no space needs, stored or indexed.
func (a *Archive) findManifests(ctx context.Context) error {
	known, err := a.names(ctx, "SELECT id FROM manifest WHERE n IN (SELECT manifest FROM part)")
	if err != nil {
		return err
	}
	var lost []string
	err = a.store.List(ctx, manifestPrefix, func(o Object) error {
		id, ok := parseManifest(o.Name)
		if _, have := known[string(id[:])]; ok && !have {
			lost = append(lost, o.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.index.Write(ctx, func(tx *db.Tx) error {
		for _, object := range lost {
			if err := doom(tx, object, rankManifest); err != nil {
				return err
			}
		}
		// What a crash in the midst of taking a space left.
		if err := tx.Exec("DELETE FROM piece WHERE manifest IN (SELECT n FROM manifest WHERE n NOT IN (SELECT manifest FROM part))"); err != nil {
			return err
		}
		return tx.Exec("DELETE FROM manifest WHERE n NOT IN (SELECT manifest FROM part)")
	})
}
