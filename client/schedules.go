package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Schedules are commands that run in computers at times of the calendar. ref is an id, a name that only one schedule has, or
// COMPUTER@NAME.
type Schedules struct{ c *Client }

// Create makes a schedule, which is due from now on.
func (n Schedules) Create(ctx context.Context, spec holt.ScheduleSpec, key string) (holt.Schedule, error) {
	return do(ctx, n.c, api.CreateSchedule, api.Body[holt.ScheduleSpec]{api.Keyed{key}, spec})
}

// Get returns a schedule.
func (n Schedules) Get(ctx context.Context, ref string) (holt.Schedule, error) {
	return do(ctx, n.c, api.GetSchedule, api.OneSchedule{ref})
}

// List returns the schedules of a computer, or of all with "", by name.
func (n Schedules) List(ctx context.Context, computer string) ([]holt.Schedule, error) {
	return doList(ctx, n.c, api.ListSchedules, api.SchedulesOf{Computer: computer})
}

// Update changes the fields that change has.
func (n Schedules) Update(ctx context.Context, ref string, change holt.ScheduleChange, key string) (holt.Schedule, error) {
	return do(ctx, n.c, api.UpdateSchedule, api.ScheduleUpdate{api.OneSchedule{ref}, api.Keyed{key}, change})
}

// Delete removes a schedule with its history. A run of it is left alone.
func (n Schedules) Delete(ctx context.Context, ref, key string) error {
	return doNone(ctx, n.c, api.DeleteSchedule, api.ScheduleKeyed{api.OneSchedule{ref}, api.Keyed{key}})
}

// Run runs a schedule's command now.
func (n Schedules) Run(ctx context.Context, ref, key string) (holt.Firing, error) {
	return do(ctx, n.c, api.RunSchedule, api.ScheduleKeyed{api.OneSchedule{ref}, api.Keyed{key}})
}

// History returns what became of the last due times, the newest first, up to limit; 0: all that are kept.
func (n Schedules) History(ctx context.Context, ref string, limit int) ([]holt.Firing, error) {
	const kept = 200
	if limit <= 0 || limit > kept {
		limit = kept
	}
	page, err := do(ctx, n.c, api.GetScheduleHistory, api.ScheduleHistory{api.OneSchedule{ref}, limit})
	return page.Items, err
}
