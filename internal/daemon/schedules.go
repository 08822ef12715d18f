package daemon

import (
	"context"

	"holt/internal/schedule"
)

// openSchedules comes last: what is due is run.
func (d *Daemon) openSchedules(ctx context.Context) (err error) {
	d.schedules, err = schedule.Open(ctx, schedule.Config{DB: d.db, Keys: d.keys, Computers: d.computers.Scheduled(), Log: d.log, Fail: d.cfg.Fail})
	return err
}
