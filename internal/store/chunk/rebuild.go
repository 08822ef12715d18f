package chunk

import (
	"context"
	"slices"

	"holt"
	"holt/internal/store/db"
)

// rebuild builds the chunk index from the objects in the store before the
// archive is used. Reads of chunks in a damaged pack then fail.
func (a *Archive) rebuild(ctx context.Context) error {
	err := a.index.Write(ctx, func(tx *db.Tx) error {
		for _, table := range []string{"meta", "pack", "chunk", "manifest", "piece", "space", "part", "doomed"} {
			if err := tx.Exec("DELETE FROM " + table); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = a.reconcile(ctx, a.tornSoFar())
	}
	if holt.CodeOf(err) == holt.Corrupt {
		a.log.Error("part of the archive is lost; garbage collection is off until it is repaired", "error", err)
		err = nil
	}
	if err == nil {
		err = a.index.WriteSync(ctx, func(tx *db.Tx) error { return tx.Exec("INSERT INTO meta(key, value) VALUES ('whole', 1)") })
	}
	if err != nil {
		return holt.Errorf(holt.CodeOf(err), "rebuild chunk index: %w", err)
	}
	return nil
}

// reconcile adds to the index what the store has and the index lacks: leftovers
// of a crash between two steps of a change, or everything. Unneeded objects are
// doomed. It returns Corrupt if the newest version of a space is damaged, and
// dooms nothing that may belong to that space; and if a manifest is unreadable,
// because garbage is then unknown. It lists the store while changes run, and
// checks each apparent leftover again under their lock: no running change can
// own it then.
func (a *Archive) reconcile(ctx context.Context, torn int) error {
	if err := a.findPacks(ctx); err != nil {
		return err
	}
	if err := a.findSpaces(ctx); err != nil {
		return err
	}
	return a.findManifests(ctx, torn)
}

// names returns the first column of a query as a set.
func (a *Archive) names(ctx context.Context, sql string) (map[string]struct{}, error) {
	set := map[string]struct{}{}
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(sql, nil, func(r *db.Row) error { set[string(r.Bytes(0))] = struct{}{}; return nil })
	})
	return set, err
}

// findPacks adds packs that the index lacks. Their chunks are garbage at first.
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
		err = a.adopt(ctx, id, o.Size)
	}
	return err
}

// adopt adds one pack from its own table. A damaged pack is left in the store.
func (a *Archive) adopt(ctx context.Context, id PackID, size int64) error {
	a.mu.Lock() // before inFlight is read: a pack that has left it is in the index or given up
	_, inFlight := a.inFlight[id]
	a.mu.Unlock()
	if inFlight {
		return nil
	}
	entries, err := readTable(ctx, a.store, id, size)
	switch holt.CodeOf(err) {
	case "":
	case holt.Corrupt:
		a.log.Error("cannot read pack; leaving it in the store", "pack", id.String(), "error", err)
		return nil
	case holt.NotFound: // it was doomed and has been removed
		return nil
	default:
		return err
	}
	p := packed{id, size, entries}
	return a.index.Write(ctx, func(tx *db.Tx) error {
		known := false // or doomed and not removed yet
		err := tx.Query("SELECT 1 FROM pack WHERE id = ? UNION ALL SELECT 1 FROM doomed WHERE object = ?", []any{id[:], id.object()},
			func(*db.Row) error { known = true; return nil })
		if err != nil || known {
			return err
		}
		// Its chunks may also be in a pack that is damaged now.
		return p.insert(tx)
	})
}

// version is the index's entry of a space.
type version struct {
	seq  uint64
	gone bool
}

func (a *Archive) versions(ctx context.Context) (map[string]version, error) {
	all := map[string]version{}
	return all, a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT name, seq, gone FROM space", nil, func(r *db.Row) error {
			all[r.Text(0)] = version{uint64(r.Int64(1)), r.Int64(2) != 0}
			return nil
		})
	})
}

// findSpaces adopts versions of spaces newer than those in the index, and dooms older ones.
func (a *Archive) findSpaces(ctx context.Context) error {
	before, err := a.versions(ctx)
	if err != nil {
		return err
	}
	found := map[string][]uint64{} // ascending
	err = a.store.List(ctx, spacePrefix, func(o Object) error {
		if name, seq, ok := parseSpace(o.Name); ok {
			found[name] = append(found[name], seq)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var damaged error
	for name, versions := range found {
		err := a.settleSpace(ctx, name, versions)
		if holt.CodeOf(err) == holt.Corrupt { // the other spaces are not affected
			a.log.Error("cannot read space", "space", name, "error", err)
			damaged = err
		} else if err != nil {
			return err
		}
	}
	if damaged != nil {
		return damaged
	}
	if err := a.findLost(ctx); err != nil {
		return err
	}
	for name, v := range before {
		if v.gone && len(found[name]) == 0 {
			if err := a.forgetSpace(ctx, name, v.seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleSpace updates the index to the newest of the versions in the store, and dooms the others.
func (a *Archive) settleSpace(ctx context.Context, name string, versions []uint64) error {
	a.change.Lock()
	defer a.change.Unlock()
	all, err := a.versions(ctx)
	if err != nil {
		return err
	}
	now := all[name]
	if last := versions[len(versions)-1]; last > now.seq && !now.gone {
		if err := a.takeSpace(ctx, name, last); err != nil {
			return err
		}
		now.seq = last
	}
	var old []string
	for _, seq := range versions {
		if seq < now.seq || now.gone {
			old = append(old, (&space{name: name, seq: seq}).object())
		}
	}
	if len(old) == 0 {
		return nil
	}
	return a.index.Write(ctx, func(tx *db.Tx) error {
		for _, object := range old {
			if err := doom(tx, object, rankSpace); err != nil {
				return err
			}
		}
		return nil
	})
}

// forgetSpace removes a deleted space from the index once the store has no
// version of it and none waits for removal. Its version numbers may then be
// reused.
func (a *Archive) forgetSpace(ctx context.Context, name string, seq uint64) error {
	return a.index.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec("DELETE FROM space WHERE name = ?1 AND seq = ?2 AND gone AND NOT EXISTS (SELECT 1 FROM doomed WHERE rank = ?3 AND substr(object, 1, length(?4)) = ?4)",
			name, int64(seq), rankSpace, spacePrefix+name+"/")
	})
}

// object reads a small object as a whole.
func (a *Archive) object(ctx context.Context, name string) ([]byte, error) {
	size, err := a.store.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if size > maxManifest+4 {
		return nil, holt.Errorf(holt.Corrupt, "object %s is too large: %d bytes", name, size)
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
	if err := a.index.WriteSync(ctx, func(tx *db.Tx) error { return s.replace(tx, false) }); err != nil {
		return err
	}
	return a.fail("space.taken")
}

// takeManifest adds a manifest that the index lacks. It leaves out pieces whose
// chunks are in no pack, or all pieces if the manifest is unreadable: reading
// them fails until [Archive.findLost] has found them.
func (a *Archive) takeManifest(ctx context.Context, id ManifestID) error {
	known := false
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT 1 FROM manifest WHERE id = ?", []any{id[:]}, func(*db.Row) error { known = true; return nil })
	})
	if err != nil || known {
		return err
	}
	m, err := a.manifest(ctx, id)
	switch holt.CodeOf(err) {
	case "":
	case holt.Corrupt, holt.NotFound: // do not give up the other parts
		a.log.Error("cannot read manifest; reads of its part fail", "manifest", id.String(), "error", err)
		m = &manifest{id: id, lost: unread}
	default:
		return err
	}
	return a.index.Write(ctx, func(tx *db.Tx) error {
		if err := m.leaveOut(tx); err != nil {
			return err
		}
		if m.lost > 0 {
			a.log.Error("chunks of a manifest are in no pack", "manifest", id.String(), "chunks", m.lost)
		}
		return m.insert(tx)
	})
}

// manifest reads a manifest from the store.
func (a *Archive) manifest(ctx context.Context, id ManifestID) (*manifest, error) {
	b, err := a.object(ctx, id.object())
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(b)
	if err != nil || m.id != id {
		return nil, holt.Errorf(holt.Corrupt, "object %s is damaged", id.object())
	}
	return m, nil
}

// findManifests dooms manifests that no space needs, in the store and in the index.
func (a *Archive) findManifests(ctx context.Context, torn int) error {
	known, err := a.names(ctx, "SELECT id FROM manifest WHERE n IN (SELECT manifest FROM part)")
	if err != nil {
		return err
	}
	var lost []ManifestID
	err = a.store.List(ctx, manifestPrefix, func(o Object) error {
		id, ok := parseManifest(o.Name)
		if _, have := known[string(id[:])]; ok && !have {
			lost = append(lost, id)
		}
		return nil
	})
	for batch := range slices.Chunk(lost, 100) {
		if err == nil {
			err = a.doomManifests(ctx, batch, torn)
		}
	}
	return err
}

// doomManifests dooms manifests that no space needs, under the lock of changes,
// because a change stores its manifest before the index has it. It does nothing
// if a change was torn since the spaces were listed: that change may have left
// a space that needs one of them.
func (a *Archive) doomManifests(ctx context.Context, ids []ManifestID, torn int) error {
	a.change.Lock()
	defer a.change.Unlock()
	if a.tornSoFar() != torn {
		return nil
	}
	return a.index.Write(ctx, func(tx *db.Tx) error {
		for _, id := range ids {
			if err := drop(tx, id); err != nil {
				return err
			}
		}
		return nil
	})
}
