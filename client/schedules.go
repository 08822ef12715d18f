package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"holt"
)

// Schedules are commands that are run in computers at times of the calendar, by id, by a
// name that only one has, or as COMPUTER@NAME.
type Schedules struct{ c *Client }

// Create makes a schedule, which fires from now on.
func (n Schedules) Create(ctx context.Context, spec holt.ScheduleSpec, key string) (out holt.Schedule, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("schedules"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Get returns a schedule.
func (n Schedules) Get(ctx context.Context, ref string) (out holt.Schedule, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("schedules", ref)}, &out)
	return out, err
}

// List returns the schedules of a computer, or of all with "", by name.
func (n Schedules) List(ctx context.Context, computer string) ([]holt.Schedule, error) {
	query := url.Values{}
	if computer != "" {
		query.Set("computer", computer)
	}
	return list[holt.Schedule](ctx, n.c, join("schedules"), query)
}

// Update changes what change has of a schedule.
func (n Schedules) Update(ctx context.Context, ref string, change holt.ScheduleChange, key string) (out holt.Schedule, err error) {
	err = n.c.json(ctx, call{method: http.MethodPatch, path: join("schedules", ref), body: change, keyed: true, key: key}, &out)
	return out, err
}

// Delete removes a schedule with its history; its run goes on.
func (n Schedules) Delete(ctx context.Context, ref, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("schedules", ref), keyed: true, key: key}, nil)
}

// Run fires a schedule now.
func (n Schedules) Run(ctx context.Context, ref, key string) (out holt.Firing, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("schedules", ref, "run"), keyed: true, key: key}, &out)
	return out, err
}

// History returns what became of a schedule, the latest first, up to limit; 0: all that is kept.
func (n Schedules) History(ctx context.Context, ref string, limit int) ([]holt.Firing, error) {
	const kept = 200
	if limit <= 0 || limit > kept {
		limit = kept
	}
	var page holt.Page[holt.Firing]
	err := n.c.json(ctx, call{method: http.MethodGet, path: join("schedules", ref, "history"), query: url.Values{"limit": {strconv.Itoa(limit)}}}, &page)
	return page.Items, err
}
