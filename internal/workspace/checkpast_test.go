package workspace

import (
	"context"
	"testing"

	"holt/internal/store/db"
)

// pastDamage is what a check must see in what checkpoints see.
var pastDamage = []struct{ name, sql, want string }{
	{"inode", "UPDATE past_inode SET died = died + 1000", "the past of inode"},
	{"entry twice", "INSERT INTO past_entry SELECT parent, name, ino, cookie, born, born + 1 FROM entry WHERE name = CAST('kept' AS BLOB)", "is one of the present too"},
	{"entry without a life", "UPDATE past_entry SET died = born", "is seen with the next"},
	{"extent", "UPDATE past_extent SET died = born", "the past extent at 0"},
	{"outside", "UPDATE past_extent SET delta = whole", "lies outside its record"},
	{"segment", "UPDATE past_extent SET segment = 99", "which is not known"},
	{"attribute", "UPDATE past_xattr SET died = born", "the past attribute"},
	{"path", "UPDATE past_dir SET died = born", "the past path of directory"},
	{"name of nothing", "DELETE FROM past_inode WHERE mode & 61440 = 32768", "which it does not see"},
	{"bytes of a shorter file", "UPDATE past_inode SET size = 1 WHERE mode & 61440 = 32768", "which is not that long then"},
	{"parent of a checkpoint", "UPDATE checkpoint SET parent = 77 WHERE id = (SELECT max(id) FROM checkpoint)", "descends from 77"},
	{"order of checkpoints", "UPDATE checkpoint SET version = 0 WHERE id = (SELECT max(id) FROM checkpoint)", "comes before that of an earlier one"},
}

// TestCheckSeesDamageOfThePast breaks each invariant of the past and wants it named.
func TestCheckSeesDamageOfThePast(t *testing.T) {
	for _, d := range pastDamage {
		t.Run(d.name, func(t *testing.T) {
			f := newFixture(t, quiet(Options{}))
			f.mkdir("dir")
			f.put("kept", "as it is")
			f.put("gone", "as it was")
			f.ok(f.t.SetXattr(f.c, f.must("gone").Ino, "user.x", []byte("then"), 0))
			f.checkpoint("one")
			f.ok(f.unlink("gone"))
			f.ok(f.t.Rename(f.c, Root, "dir", Root, "moved", 0))
			f.checkpoint("two")
			f.ok(f.w.Flush())
			f.check()
			f.ok(f.w.tree.index.db.Write(context.Background(), func(tx *db.Tx) error { return tx.Exec(d.sql) }))
			wantProblem(t, f.w, d.want)
			f.loseIndex() // made anew of the journal, it has no damage
		})
	}
}
