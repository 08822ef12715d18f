package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/store/db"
)

const (
	// readyFor is for how long an answer is given again: whoever asks needs no token.
	readyFor = time.Second
	// readyRoom is how much of the disk of the data directory must be free, bytes: less is all but full.
	readyRoom = 64 << 20
)

// readiness keeps the last answer.
type readiness struct {
	mu     sync.Mutex
	at     time.Time
	err    error
	ending bool
}

// end makes every later answer no.
func (r *readiness) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = true
}

// Ready says why the daemon cannot take work: it ends, its control database cannot be written, its
// disk is full. Machines were taken over before Open returned. Errors: Unavailable, OutOfSpace.
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
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit) // the answer is others' too
		r.err = d.lookReady(bounded)
		cancel()
		r.at = time.Now()
	}
	return r.err
}

func (d *Daemon) lookReady(ctx context.Context) error {
	// A transaction that changes a row, and is not only begun.
	err := d.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(`INSERT INTO reserve VALUES (zeroblob(1))`); err != nil {
			return err
		}
		return tx.Exec(`DELETE FROM reserve WHERE length(filler) = 1`)
	})
	if err != nil {
		return described(fmt.Errorf("write the control database: %w", err))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.cfg.DataDir, &st); err != nil {
		return holt.Errorf(holt.Unavailable, "look at the disk of %s: %w", d.cfg.DataDir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < readyRoom {
		return holt.Errorf(holt.OutOfSpace, "%d MiB are free at %s", free>>20, d.cfg.DataDir).WithHint("free space there")
	}
	return nil
}
