package daemon

import (
	"context"

	"holt/internal/store/db"
)

// CutOff takes away the answers to calls with keys that begin so: it leaves what a daemon does that is killed when they have
// acted, before their answers are written down.
func (d *Daemon) CutOff(ctx context.Context, keys string) error {
	return d.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE idempotency SET answer = NULL WHERE substr(key, 1, length(?1)) = ?1`, keys)
	})
}
