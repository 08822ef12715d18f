package chunk

import (
	"context"

	"holt"
	"holt/internal/store/db"
)

// unread is manifest.lost of one that is damaged or not in the store.
const unread = -1

// findLost looks again for what was missing when a manifest was taken into the
// index: an operator may have put objects back. Corrupt while one cannot be
// read at all: nobody knows then which chunks its part needs.
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
			missing = holt.Errorf(holt.Corrupt, "nothing is collected while a manifest cannot be read: %w", err).
				WithHint("holt archive check says what needs it, and what to do")
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

// again replaces what the index has of a manifest, unless a change has removed
// it meanwhile.
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

// leaveOut removes the pieces whose chunks are not there, and counts those chunks.
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

// isLost tells whether something of a part is missing.
func (a *Archive) isLost(ctx context.Context, space, part string) (lost bool, err error) {
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT 1 FROM space JOIN part ON part.space = space.n JOIN manifest ON manifest.n = part.manifest"+
			" WHERE space.name = ?1 AND part.name = ?2 AND lost <> 0", []any{space, part}, func(*db.Row) error { lost = true; return nil })
	})
	return lost, err
}

// lookLost reports the parts of which something is missing, and what to do.
func (c *checking) lookLost(tx *db.Tx) error {
	return tx.Query("SELECT manifest.id, lost, part.name, space.name FROM manifest JOIN part ON part.manifest = manifest.n JOIN space ON space.n = part.space"+
		" WHERE lost <> 0 AND ?1 IN ('', space.name) ORDER BY space.name, part.name", []any{c.space}, func(r *db.Row) error {
		object, part, space := ManifestID(r.Bytes(0)).object(), r.Text(2), r.Text(3)
		if n := r.Int64(1); n != unread {
			c.problem("%d chunks of part %s of %s are in no pack; put the packs back, and holt archive collect finds them, or delete what that is of", n, part, space)
			return nil
		}
		c.problem("%s cannot be read, which part %s of %s needs; nothing is collected until it is put back from a copy of the store, or what that is of deleted",
			object, part, space)
		return nil
	})
}
