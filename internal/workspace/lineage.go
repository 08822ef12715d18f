package workspace

import (
	"crypto/rand"
	"slices"
	"time"

	"holt/internal/store/db"
)

// ID tells workspaces of a family apart, wherever they are and whatever people
// call them.
type ID [16]byte

func newID() (id ID) {
	rand.Read(id[:])
	return id
}

// Ancestor is a workspace that another came from, and where the other left it.
type Ancestor struct {
	ID             ID
	Name           string // as it was called then
	Checkpoint     CheckpointID
	CheckpointName string
	ForkedAt       time.Time

	nextIno Ino // inodes made later were made by others, under numbers that may be the same
}

// Lineage lists the workspaces that this one came from, the oldest first; the
// last is this one, with nothing but its ID.
func (w *Workspace) Lineage() []Ancestor {
	w.tree.mu.RLock()
	defer w.tree.mu.RUnlock()
	return slices.Clone(w.tree.lineage)
}

// setLineage sets the lineage.
func (t *memory) setLineage(l []Ancestor) { t.lineage, t.batch.lineage = l, l }

// twin says that an inode is the one that another workspace made under another
// number.
type twin struct {
	origin ID
	theirs Ino
	ours   Ino
}

// merged says what of another workspace was merged into this one: up to its
// checkpoint theirs, which then was as this one's checkpoint mine. Of one inode
// (its number there), or of all that have no row of their own (0).
type merged struct {
	other        ID
	ino          Ino
	mine, theirs CheckpointID
}

func (r *rows) writeLineage(tx *db.Tx) error {
	if r.batch.lineage != nil {
		if err := tx.Exec("DELETE FROM lineage"); err != nil {
			return err
		}
	}
	for i, a := range r.batch.lineage {
		err := tx.Exec("INSERT INTO lineage(n, id, name, checkpoint, checkpoint_name, next_ino, time) VALUES (?, ?, ?, ?, ?, ?, ?)",
			i, a.ID[:], a.Name, int64(a.Checkpoint), a.CheckpointName, int64(a.nextIno), a.ForkedAt.UnixNano())
		if err != nil {
			return err
		}
	}
	for _, w := range r.batch.twins {
		if err := tx.Exec("INSERT OR REPLACE INTO twin(origin, theirs, ours) VALUES (?, ?, ?)", w.origin[:], int64(w.theirs), int64(w.ours)); err != nil {
			return err
		}
	}
	for _, m := range r.batch.merged {
		if m.ino == 0 {
			if err := tx.Exec("DELETE FROM merged WHERE other = ?", m.other[:]); err != nil {
				return err
			}
		}
		err := tx.Exec("INSERT OR REPLACE INTO merged(other, ino, mine, theirs) VALUES (?, ?, ?, ?)", m.other[:], int64(m.ino), int64(m.mine), int64(m.theirs))
		if err != nil {
			return err
		}
	}
	return nil
}

// lineage returns the rows, oldest first.
func (x *index) lineage() (all []Ancestor, err error) {
	err = x.rows("SELECT id, name, checkpoint, checkpoint_name, next_ino, time FROM lineage ORDER BY n", nil, func(s *db.Stmt) bool {
		a := Ancestor{Name: columnString(s, 1), Checkpoint: CheckpointID(s.ColumnInt64(2)), CheckpointName: columnString(s, 3),
			nextIno: Ino(s.ColumnInt64(4)), ForkedAt: time.Unix(0, s.ColumnInt64(5)).UTC()}
		s.ColumnBytes(0, a.ID[:])
		all = append(all, a)
		return true
	})
	return all, err
}
