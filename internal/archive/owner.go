package archive

import (
	"context"
	"crypto/rand"
	"strings"

	"holt"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

// Schema makes the table of this package.
const Schema = `
CREATE TABLE archive (
	id      TEXT PRIMARY KEY, -- the store has an object owner/ID, and no other owner
	claimed INTEGER NOT NULL  -- the object was put there
) WITHOUT ROWID;
`

const ownerPrefix = "owner/"

// claimStore checks that the store at place belongs to this data directory, or
// claims it. Two data directories that collect garbage in one store would delete
// each other's packs. A disk that is not mounted looks like a store without packs.
func claimStore(ctx context.Context, d *db.DB, store chunk.Store, place string) error {
	var owners []string
	err := store.List(ctx, ownerPrefix, func(o chunk.Object) error {
		owners = append(owners, strings.TrimPrefix(o.Name, ownerPrefix))
		return nil
	})
	if err != nil {
		return err
	}
	id, claimed := "", false
	err = d.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT id, claimed FROM archive`, nil, func(r *db.Row) error { id, claimed = r.Text(0), r.Int64(1) != 0; return nil })
	})
	switch {
	case err != nil:
		return err
	case len(owners) > 1 || len(owners) == 1 && owners[0] != id:
		return holt.Errorf(holt.Conflict, "%s is the archive of another data directory", place).WithHint("use another directory with --archive")
	case len(owners) == 1 && claimed:
		return nil
	case claimed:
		return holt.Errorf(holt.Unavailable, "%s does not hold the packs of this data directory", place).
			WithHint("mount the disk that has them, or give their directory with --archive; to move them, stop the daemon and move the whole directory")
	case id == "":
		id = rand.Text()
		if err := d.WriteSync(ctx, func(tx *db.Tx) error { return tx.Exec(`INSERT INTO archive VALUES (?, 0)`, id) }); err != nil {
			return err
		}
	}
	if err := store.Put(ctx, ownerPrefix+id, []byte(id)); err != nil && holt.CodeOf(err) != holt.AlreadyExists {
		return err
	}
	return d.WriteSync(ctx, func(tx *db.Tx) error { return tx.Exec(`UPDATE archive SET claimed = 1`) })
}
