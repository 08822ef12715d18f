package workspace

import (
	"context"
	"fmt"
	"time"

	"holt/internal/store/db"
)

// A fork of a checkpoint is the whole history up to a record, of which what
// came after the checkpoint is taken away again: rows that were born later go,
// and rows that died later are alive. Unlike a restore it makes no new
// generation: versions, inode numbers and checkpoints of later were never
// given out in this workspace.

// applyFork makes the tree what it was at a checkpoint, in a workspace of its
// own: nothing came after, and no mount is open but those that continue here.
func (t *memory) applyFork(o *op) error {
	c, ok := t.checkpoints.byID(CheckpointID(o.n))
	if !ok || len(o.blob) != len(ID{}) || len(t.lineage) == 0 {
		return fmt.Errorf("%w: fork of checkpoint %d", errApply, o.n)
	}
	if err := t.write(); err != nil {
		return err
	}
	err := t.index.db.Write(context.Background(), func(tx *db.Tx) error { return revert(tx, c) })
	if err == nil {
		err = t.reset()
	}
	if err != nil {
		return fmt.Errorf("go back to checkpoint %s: %w", c.Name, err)
	}
	for n := range t.epochs {
		t.batch.epochs[n] = struct{}{}
		delete(t.epochs, n)
	}
	l := append([]Ancestor{}, t.lineage...)
	from := &l[len(l)-1]
	from.Name, from.Checkpoint, from.CheckpointName, from.ForkedAt, from.nextIno = o.name, c.ID, c.Name, time.Unix(0, o.time).UTC(), c.nextIno
	t.setLineage(append(l, Ancestor{ID: ID(o.blob)}))
	if err := t.reopenMounts(o.blob2); err != nil {
		return fmt.Errorf("%w: fork of checkpoint %s: %w", errApply, c.Name, err)
	}
	if len(t.epochs) == 0 || t.count.Stale > c.version+1 { // it was told of everything then
		t.count.Stale = 0
	}
	return t.freeOrphans()
}

// revertTables are those with a past: their columns but born, and the column
// that says of what inode a row is.
var revertTables = []struct{ table, columns, ino string }{
	{"entry", "parent, name, ino, cookie, born", "parent"},
	{"inode", inodeRowColumns, "ino"},
	{"extent", "ino, off, len, segment, place, whole, delta, born", "ino"},
	{"xattr", "ino, name, value, born", "ino"},
	{"dir", "ino, path, born", "ino"},
}

// revert takes away what came after a checkpoint. It costs what that is, and
// doing it again changes nothing.
func revert(tx *db.Tx, c Checkpoint) error {
	d, err := difference(tx, snapshot{nowVersion, 1 << 62}, snapshot{int64(c.version), c.nextIno}, 0)
	if err != nil {
		return err
	}
	if err := tx.Exec("CREATE TEMP TABLE touched(ino INTEGER PRIMARY KEY)"); err != nil {
		return err
	}
	for ino := range d.inodes {
		if err := tx.Exec("INSERT OR IGNORE INTO touched VALUES (?)", int64(ino)); err != nil {
			return err
		}
	}
	for _, table := range pastTables {
		ino := "ino"
		if table == "past_entry" {
			ino = "parent"
		}
		if err := tx.Exec("INSERT OR IGNORE INTO touched SELECT "+ino+" FROM "+table+" WHERE died > ?", int64(c.version)); err != nil {
			return err
		}
	}
	// One that a restore brought back and another took away again has no name,
	// an old number, and no row in the past.
	if err := tx.Exec("INSERT OR IGNORE INTO touched SELECT ino FROM inode WHERE ino IN (SELECT ino FROM orphan) AND born > ?", int64(c.version)); err != nil {
		return err
	}
	before, err := tally(tx)
	if err != nil {
		return err
	}
	for _, r := range revertTables {
		for _, sql := range []string{
			"DELETE FROM " + r.table + " WHERE " + r.ino + " IN touched AND born > ?1",
			"INSERT OR REPLACE INTO " + r.table + "(" + r.columns + ") SELECT " + r.columns + " FROM past_" + r.table + " WHERE died > ?1 AND born <= ?1",
			"DELETE FROM past_" + r.table + " WHERE died > ?1",
		} {
			if err := tx.Exec(sql, int64(c.version)); err != nil {
				return err
			}
		}
	}
	after, err := tally(tx)
	if err != nil {
		return err
	}
	return revertRest(tx, c, before, after)
}

// counted are the counters of what lies in the touched inodes.
var counted = []string{"inodes", "files", "dirs", "bytes", "allocated"}

// tally returns them.
func tally(tx *db.Tx) (sums [5]int64, err error) {
	const file = "mode & 61440 = 32768"
	err = tx.Query("SELECT count(*), coalesce(sum("+file+"), 0), coalesce(sum(mode & 61440 = 16384), 0),"+
		" coalesce(sum(iif("+file+", size, 0)), 0), coalesce(sum(alloc), 0) FROM inode WHERE ino IN touched", nil, func(r *db.Row) error {
		for i := range sums {
			sums[i] = r.Int64(i)
		}
		return nil
	})
	return sums, err
}

// revertRest makes the other tables fit.
func revertRest(tx *db.Tx, c Checkpoint, before, after [5]int64) error {
	for i, key := range counted {
		if err := tx.Exec("UPDATE meta SET value = value + ?2 WHERE key = ?1", key, after[i]-before[i]); err != nil {
			return err
		}
	}
	version, id, next := int64(c.version), int64(c.ID), int64(c.nextIno)
	for key, v := range map[string]int64{"version": version, "changed": version, "sealed": version, "generation": int64(c.Generation) + 1,
		"head": id, "turns": 0, "next_checkpoint": id + 1, "next_ino": next} {
		if err := tx.Exec("INSERT OR REPLACE INTO meta(key, value) VALUES (?, ?)", key, v); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		sql string
		arg int64
	}{
		{"DELETE FROM version WHERE id > ?", version},
		{"DELETE FROM checkpoint WHERE id > ?", id},
		{"DELETE FROM merged WHERE mine > ?", id},
		{"DELETE FROM twin WHERE ours >= ?", next},
	} {
		if err := tx.Exec(step.sql, step.arg); err != nil {
			return err
		}
	}
	for _, sql := range []string{"DELETE FROM orphan WHERE ino IN touched",
		"INSERT INTO orphan SELECT ino FROM inode WHERE ino IN touched AND nlink = 0", "DROP TABLE touched"} {
		if err := tx.Exec(sql); err != nil {
			return err
		}
	}
	return nil
}
