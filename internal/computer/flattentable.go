package computer

import (
	"context"
	"fmt"
	"slices"

	"holt"
	"holt/internal/store/db"
)

// FlattenSchema says of disks which are being merged, and tells them in the archive from what they
// were before.
const FlattenSchema = `
ALTER TABLE disk ADD COLUMN space TEXT NOT NULL DEFAULT '';          -- its name in the archive: another one whenever its file changes
ALTER TABLE disk ADD COLUMN merging INTEGER NOT NULL DEFAULT 0;      -- its file says better than the table what it is laid over
ALTER TABLE snapshot ADD COLUMN outdated INTEGER NOT NULL DEFAULT 0;   -- the archive has it over disks that were merged since
CREATE TABLE disk_left (space TEXT PRIMARY KEY) WITHOUT ROWID;       -- names in the archive that only outdated snapshots need
UPDATE disk SET space = id;
`

// lone are disks that nothing needs but one that is laid over it: id, parent, and that one.
const lone = `SELECT under.id, under.parent, over.id FROM disk over JOIN disk under ON under.id = over.parent
	WHERE under.id NOT IN (` + stoodOn + `)
	AND (SELECT count(*) FROM disk other WHERE other.parent = under.id) = 1
	ORDER BY over.created, over.id`

// above are a disk and all that are laid over it.
const above = `WITH RECURSIVE above(id) AS (SELECT ?1 UNION SELECT disk.id FROM disk JOIN above ON disk.parent = above.id)
`

// usersOf are the computers whose machines would have a disk open.
const usersOf = above + `SELECT id, state FROM computer WHERE disk IN above
	OR id IN (SELECT computer FROM snapshot WHERE disk IN above OR next IN above)
	OR id IN (SELECT computer FROM restore WHERE disk IN above OR before IN above) ORDER BY 1`

// archivedOver are the snapshots over a disk that the archive has, or gets if there is one.
const archivedOver = above + `SELECT id FROM snapshot WHERE (disk IN above OR next IN above) AND (stored OR kind = 'manual' AND ?2) LIMIT 1`

// stack are disks of which each needs the next, and nothing else does: the first is needed by over only.
type stack struct {
	over   holt.DiskID
	disks  []holt.DiskID
	parent holt.DiskID // of the last
}

// merge is what makes one disk of several: into takes in those beneath it, and comes to lie over
// what the last of them lies over.
type merge struct {
	into   holt.DiskID
	under  []holt.DiskID // each laid over the next
	parent holt.DiskID
}

// entire makes one disk of a stack.
func (s stack) entire() merge { return merge{s.disks[0], s.disks[1:], s.parent} }

// lowest merges the last of a stack with the one over it.
func (s stack) lowest() merge {
	all := append([]holt.DiskID{s.over}, s.disks...)
	n := len(all)
	return merge{all[n-2], all[n-1:], s.parent}
}

// stacks returns all of them, each as high as it is.
func (k *disks) stacks(ctx context.Context) (all []stack, err error) {
	type link struct{ parent, over holt.DiskID }
	links := map[holt.DiskID]link{}
	var order []holt.DiskID
	err = read(ctx, k.d, func(tx *db.Tx) error {
		return tx.Query(lone, nil, func(row *db.Row) error {
			id := holt.DiskID(row.Text(0))
			links[id], order = link{holt.DiskID(row.Text(1)), holt.DiskID(row.Text(2))}, append(order, id)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look for root disks to merge: %w", err)
	}
	for _, id := range order {
		one := stack{over: links[id].over}
		if _, in := links[one.over]; in {
			continue // it is not the first
		}
		for at, ok := links[id]; ok; at, ok = links[id] {
			one.disks, one.parent = append(one.disks, id), at.parent
			id = at.parent
		}
		all = append(all, one)
	}
	return all, nil
}

// mergeable says whether disks are still a part of a stack.
func (k *disks) mergeable(ctx context.Context, m merge) (bool, error) {
	stacks, err := k.stacks(ctx)
	if err != nil {
		return false, err
	}
	want := append([]holt.DiskID{m.into}, m.under...)
	for _, st := range stacks {
		for i, id := range st.disks {
			if id == m.into {
				rest := st.disks[i:]
				return len(rest) >= len(want) && slices.Equal(rest[:len(want)], want), nil
			}
		}
	}
	return false, nil
}

// outdated is true of snapshots that the archive has over disks that were merged since.
const outdated = `outdated AND stored AND state = 'ready'`

// mark says that the file of a disk is about to change, and that the archive has another until
// then; it stays marked until unmark.
func (k *disks) mark(ctx context.Context, id holt.DiskID) error {
	return writeSync(ctx, k.d, func(tx *db.Tx) error {
		if _, marked, err := textOf(tx, `SELECT 1 FROM disk WHERE id = ? AND merging`, id); err != nil || marked {
			return err
		}
		if err := k.renew(tx, id); err != nil {
			return err
		}
		if err := tx.Exec(`UPDATE disk SET merging = 1 WHERE id = ?`, id); err != nil {
			return err
		}
		return tx.Exec(above+`UPDATE snapshot SET outdated = 1 WHERE stored AND disk IN above`, id)
	})
}

// unmark says that a disk's row is right, and that machines have its file open.
func (k *disks) unmark(ctx context.Context, id holt.DiskID) error {
	return writeSync(ctx, k.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE disk SET merging = 0 WHERE id = ?`, id) })
}

// marked are the disks whose files say better than their rows what they lie over.
func (k *disks) marked(ctx context.Context) ([]holt.DiskID, error) {
	return k.list(ctx, `SELECT id FROM disk WHERE merging ORDER BY created, id`)
}

// merged writes down that a merge was done. It stays marked.
func (k *disks) merged(ctx context.Context, m merge) error {
	return writeSync(ctx, k.d, func(tx *db.Tx) error {
		if err := tx.Exec(`UPDATE disk SET parent = ? WHERE id = ?`, m.parent, m.into); err != nil {
			return err
		}
		for _, id := range m.under {
			if err := k.renew(tx, id); err != nil { // for the name that it leaves
				return err
			}
			if err := tx.Exec(`DELETE FROM disk WHERE id = ?`, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// renew gives a disk that has changed, or is about to, another name in the archive. What is there
// stays for the snapshots that need it.
func (k *disks) renew(tx *db.Tx, id holt.DiskID) error {
	if err := tx.Exec(`INSERT OR IGNORE INTO disk_left SELECT space FROM disk WHERE id = ?`, id); err != nil {
		return err
	}
	return tx.Exec(`UPDATE disk SET space = ? WHERE id = ?`, holt.NewDiskID(), id)
}

// users returns the computers that would have a disk open; ok is false if one may have a machine,
// whether this daemon knows it or not, and none may run.
func (k *disks) users(ctx context.Context, id holt.DiskID, running bool) (ids []holt.ComputerID, ok bool, err error) {
	ok = true
	err = read(ctx, k.d, func(tx *db.Tx) error {
		return tx.Query(usersOf, []any{id}, func(row *db.Row) error {
			ids = append(ids, holt.ComputerID(row.Text(0)))
			state := holt.ComputerState(row.Text(1))
			ok = ok && (running || state == holt.ComputerPaused || state == holt.ComputerStopped)
			return nil
		})
	})
	return ids, ok, err
}
