package computer

import (
	"context"
	"fmt"
	"slices"

	"holt"
	"holt/internal/store/db"
)

// lone selects disks that only one other disk needs: id, parent, that other disk, and their engine.
const lone = `SELECT under.id, under.parent, over.id, under.engine FROM disk over JOIN disk under ON under.id = over.parent
	WHERE under.id NOT IN (` + stoodOn + `)
	AND (SELECT count(*) FROM disk other WHERE other.parent = under.id) = 1
	ORDER BY over.created, over.id`

// above selects a disk and all disks over it.
const above = `WITH RECURSIVE above(id) AS (SELECT ?1 UNION SELECT disk.id FROM disk JOIN above ON disk.parent = above.id)
`

// usersOf selects the computers whose machines would have a disk open.
const usersOf = above + `SELECT id, state FROM computer WHERE disk IN above
	OR id IN (SELECT computer FROM snapshot WHERE disk IN above OR next IN above)
	OR id IN (SELECT computer FROM restore WHERE disk IN above OR before IN above) ORDER BY 1`

// archivedOver selects snapshots over a disk that are archived, or will be if there is an archive.
const archivedOver = above + `SELECT id FROM snapshot WHERE (disk IN above OR next IN above) AND (stored OR kind = 'manual' AND ?2) LIMIT 1`

// stack is a chain of disks that nothing else needs: over needs the first, each needs the next.
type stack struct {
	over   holt.DiskID
	disks  []holt.DiskID
	parent holt.DiskID // of the last
	engine string
}

// merge makes one disk of several: into absorbs those in under, and then lies over parent.
type merge struct {
	into   holt.DiskID
	under  []holt.DiskID // each laid over the next
	parent holt.DiskID
	engine string
}

// entire merges the whole stack.
func (s stack) entire() merge { return merge{s.disks[0], s.disks[1:], s.parent, s.engine} }

// lowest merges the lowest disk with the one over it.
func (s stack) lowest() merge {
	all := append([]holt.DiskID{s.over}, s.disks...)
	n := len(all)
	return merge{all[n-2], all[n-1:], s.parent, s.engine}
}

// stacks returns all stacks, each at its full height.
func (k *disks) stacks(ctx context.Context) (all []stack, err error) {
	type link struct {
		parent, over holt.DiskID
		engine       string
	}
	links := map[holt.DiskID]link{}
	var order []holt.DiskID
	err = read(ctx, k.d, func(tx *db.Tx) error {
		return tx.Query(lone, nil, func(row *db.Row) error {
			id := holt.DiskID(row.Text(0))
			links[id], order = link{holt.DiskID(row.Text(1)), holt.DiskID(row.Text(2)), row.Text(3)}, append(order, id)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list root disks to merge: %w", err)
	}
	for _, id := range order {
		one := stack{over: links[id].over, engine: links[id].engine}
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

// mergeable reports whether disks are still part of a stack.
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

// outdated selects archived snapshots whose disks were merged since.
const outdated = `outdated AND stored AND state = 'ready'`

// mark records that a disk's file is about to change, and that the archive has another content of
// it until it is archived again.
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

// unmark records that a disk's row matches its file, and that machines have it open.
func (k *disks) unmark(ctx context.Context, id holt.DiskID) error {
	return writeSync(ctx, k.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE disk SET merging = 0 WHERE id = ?`, id) })
}

// marked are the disks with an unfinished merge.
func (k *disks) marked(ctx context.Context) ([]holt.DiskID, error) {
	return k.list(ctx, `SELECT id FROM disk WHERE merging ORDER BY created, id`)
}

// merged records a merge. The disk stays marked.
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

// renew gives a changed disk a new name in the archive. Archived snapshots keep the former content.
func (k *disks) renew(tx *db.Tx, id holt.DiskID) error {
	if err := tx.Exec(`INSERT OR IGNORE INTO disk_left SELECT space FROM disk WHERE id = ?`, id); err != nil {
		return err
	}
	return tx.Exec(`UPDATE disk SET space = ? WHERE id = ?`, holt.NewDiskID(), id)
}

// users returns the computers that would have a disk open. ok is false if one may have a machine
// and running is false.
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
