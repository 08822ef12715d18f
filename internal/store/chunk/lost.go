package chunk

import (
	"context"

	"holt"
	"holt/internal/store/db"
)

// unread is the value of manifest.lost for a manifest that is damaged or missing.
const unread = -1

// findLost looks again for objects that were missing when a manifest was added
// to the index: an operator may have restored them. It returns Corrupt while a
// manifest is unreadable, because the chunks of its part are then unknown.
func (a *Archive) findLost(ctx context.Context) error {
	var ids []ManifestID
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT id FROM manifest WHERE lost <> 0", nil, func(r *db.Row) error {
			ids = append(ids, ManifestID(r.Bytes(0)))
			return nil
		})
	})
	if err != nil {
		return err
	}
	var missing error
	for _, id := range ids {
		m, err := a.manifest(ctx, id)
		switch holt.CodeOf(err) {
		case "":
		case holt.Corrupt, holt.NotFound:
			missing = holt.Errorf(holt.Corrupt, "garbage is not collected while a manifest is unreadable: %w", err).
				WithHint("holt archive check shows which part is affected and how to repair it")
			continue
		default:
			return err
		}
		if err := a.index.Write(ctx, func(tx *db.Tx) error { return m.again(tx) }); err != nil {
			return err
		}
	}
	return missing
}

// again replaces the index's entry of a manifest, unless a change has removed it since.
func (m *manifest) again(tx *db.Tx) error {
	there := false
	err := tx.Query("SELECT 1 FROM manifest WHERE id = ?", []any{m.id[:]}, func(*db.Row) error { there = true; return nil })
	if err != nil || !there {
		return err
	}
	if err := m.leaveOut(tx); err != nil {
		return err
	}
	if err := tx.Exec("DELETE FROM piece WHERE manifest = (SELECT n FROM manifest WHERE id = ?)", m.id[:]); err != nil {
		return err
	}
	return m.insert(tx)
}

// leaveOut removes pieces whose chunks are missing, and counts those chunks.
func (m *manifest) leaveOut(tx *db.Tx) error {
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
			return err
		}
	}
	pieces := m.pieces[:0]
	for _, p := range m.pieces {
		if p.chunk = number[p.chunk]; p.chunk >= 0 {
			pieces = append(pieces, p)
		}
	}
	m.lost += len(m.ids) - len(ids)
	m.ids, m.pieces = ids, pieces
	return nil
}

// isLost reports whether chunks of a part are missing.
func (a *Archive) isLost(ctx context.Context, space, part string) (lost bool, err error) {
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT 1 FROM space JOIN part ON part.space = space.n JOIN manifest ON manifest.n = part.manifest"+
			" WHERE space.name = ?1 AND part.name = ?2 AND lost <> 0", []any{space, part}, func(*db.Row) error { lost = true; return nil })
	})
	return lost, err
}

// lookLost reports parts with missing chunks, and how to repair them.
func (c *checking) lookLost(tx *db.Tx) error {
	return tx.Query("SELECT manifest.id, lost, part.name, space.name FROM manifest JOIN part ON part.manifest = manifest.n JOIN space ON space.n = part.space"+
		" WHERE lost <> 0 AND ?1 IN ('', space.name) ORDER BY space.name, part.name", []any{c.space}, func(r *db.Row) error {
		object, part, space := ManifestID(r.Bytes(0)).object(), r.Text(2), r.Text(3)
		if n := r.Int64(1); n != unread {
			c.problem("%d chunks of part %s of %s are in no pack: restore the packs from a copy of the store and run holt archive collect, or delete the owner of %[3]s", n, part, space)
			return nil
		}
		c.problem("%s is unreadable, and part %s of %s needs it: restore it from a copy of the store or delete the owner of %[3]s; garbage is not collected until then",
			object, part, space)
		return nil
	})
}
