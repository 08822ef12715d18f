package daemon

import (
	"context"
	"crypto/rand"
	"strings"

	"holt"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

const archiveSchema = `
CREATE TABLE archive (
	id      TEXT PRIMARY KEY, -- the name of an object owner/ID in the store: this one and no other
	claimed INTEGER NOT NULL  -- the object was put there
) WITHOUT ROWID;
`

const ownerPrefix = "owner/"

// claimStore sees to it that the store at place is this data directory's and
// no other's: two that collect garbage in one store would destroy each other's,
// and a disk that is not mounted must not pass for an archive without packs.
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
		return holt.Errorf(holt.Conflict, "%s is the archive of another data directory", place).WithHint("each needs a directory of its own")
	case len(owners) == 1 && claimed:
		return nil
	case claimed:
		return holt.Errorf(holt.Unavailable, "%s does not hold the packs of this data directory", place).
			WithHint("mount the disk that they are on, or say with --archive where they are; to have them elsewhere, move all of the directory there while no daemon runs")
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
