package workspace

import (
	"path"

	"holt/internal/store/db"
)

// changesTable is a diff for queries: changes('FROM', 'TO'), each a checkpoint
// or live, and what is left out as a diff fills it in.
var changesTable = db.Table{
	Name: "changes",
	Columns: []string{"path", "dir", "name", "kind", "type", "old_path", "content", "metadata", "size_before", "size_after",
		"writer", "writer_kind", "run", "terminal", "ino"},
	Args: []string{"from_checkpoint", "to_checkpoint"},
	Find: func(tx *db.Tx, args []string) (db.Rows, error) {
		from, to, err := resolveIn(tx, args[0], args[1])
		if err != nil {
			return nil, err
		}
		a, err := snapshotIn(tx, from)
		if err != nil {
			return nil, err
		}
		b, err := snapshotIn(tx, to)
		if err != nil {
			return nil, err
		}
		d, err := difference(tx, a, b, mostDifferent)
		if err != nil {
			return nil, err
		}
		all, err := d.changes(nil)
		return changeRows{from, to, all}, err
	},
}

// resolveIn is History.Resolve in one transaction.
func resolveIn(tx *db.Tx, from, to string) (string, string, error) {
	if to == "" {
		to = Live
	}
	if from != "" {
		return from, to, nil
	}
	err := tx.Query(`WITH RECURSIVE up(id, parent, auto, name) AS (
		SELECT id, parent, auto, name FROM checkpoint WHERE id = (SELECT value FROM meta WHERE key = 'head')
		UNION ALL SELECT c.id, c.parent, c.auto, c.name FROM up JOIN checkpoint c ON c.id = up.parent WHERE up.auto)
		SELECT name FROM up ORDER BY id LIMIT 1`, nil, func(r *db.Row) error { from = r.Text(0); return nil })
	if err == nil && from == "" {
		err = nothingBefore()
	}
	return from, to, err
}

// snapshotIn is Tree.snapshot in one transaction.
func snapshotIn(tx *db.Tx, ref string) (m snapshot, err error) {
	if ref == Live {
		return snapshot{nowVersion, 1 << 62}, nil
	}
	where, arg := "name = ?1", any(ref)
	if id, is := checkpointNumber(ref); is {
		where, arg = "id = ?1", int64(id)
	}
	found := false
	err = tx.Query("SELECT version, next_ino FROM checkpoint WHERE "+where, []any{arg}, func(r *db.Row) error {
		m, found = snapshot{r.Int64(0), Ino(r.Int64(1))}, true
		return nil
	})
	if err == nil && !found {
		err = noCheckpoint(ref)
	}
	return m, err
}

// changeRows are changes as rows of changesTable.
type changeRows struct {
	from, to string
	all      []Change
}

func (c changeRows) Len() int { return len(c.all) }

func (c changeRows) Value(row, column int) any {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	r := &c.all[row]
	switch column {
	case 0:
		return r.Path
	case 1:
		return path.Dir(r.Path)
	case 2:
		return path.Base(r.Path)
	case 3:
		return string(r.Kind)
	case 4:
		return r.Type
	case 5:
		return orNull(r.From)
	case 6:
		return r.Content
	case 7:
		return r.Metadata
	case 8:
		return r.SizeBefore
	case 9:
		return r.SizeAfter
	case 10:
		return orNull(r.By.Name)
	case 11:
		return orNull(r.By.Kind)
	case 12:
		return orNull(r.By.Run)
	case 13:
		return orNull(r.By.Terminal)
	case 14:
		return int64(r.Ino)
	case 15:
		return c.from
	}
	return c.to
}
