package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/db"
)

// readiness keeps the last answer.
type readiness struct {
	mu     sync.Mutex
	at     time.Time
	err    error
	ending bool
}

// end makes the daemon not ready from now on.
func (r *readiness) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = true
}

// Ready returns nil if the daemon can take work. Otherwise it is shutting down, cannot write its control
// database, or its disk is full. Errors: Unavailable, OutOfSpace.
func (d *Daemon) Ready(ctx context.Context) error {
	r := &d.readiness
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending || len(d.downs) > 0 {
		return holt.Errorf(holt.Unavailable, "the daemon is ending")
	}
	select {
	case <-d.done:
		return holt.Errorf(holt.Unavailable, "the daemon is ending")
	default:
	}
	if time.Since(r.at) > readyFor {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), scrapeTimeout) // the answer is also for other callers
		r.err = d.lookReady(bounded)
		cancel()
		r.at = time.Now()
	}
	return r.err
}

func (d *Daemon) lookReady(ctx context.Context) error {
	// SQLite takes the write lock at the first change, so the transaction changes a row.
	err := d.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(`INSERT INTO reserve VALUES (zeroblob(1))`); err != nil {
			return err
		}
		return tx.Exec(`DELETE FROM reserve WHERE length(filler) = 1`)
	})
	if err != nil {
		return hosterror.Describe(fmt.Errorf("write the control database: %w", err))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.cfg.DataDir, &st); err != nil {
		return holt.Errorf(holt.Unavailable, "measure the disk of %s: %w", d.cfg.DataDir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < readyRoom {
		return holt.Errorf(holt.OutOfSpace, "the disk of %s has only %d MiB free", d.cfg.DataDir, free>>20).WithHint("free space there: at least %d MiB", readyRoom>>20)
	}
	return nil
}
