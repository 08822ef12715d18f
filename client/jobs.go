package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"holt"
)

// Jobs are commands with computers of their own that are thrown away.
type Jobs struct{ c *Client }

// Send sends files for jobs to begin with, as a parcel. It is never sent twice.
func (n Jobs) Send(ctx context.Context, r io.Reader) (holt.JobInputs, error) {
	body := struct{ io.Reader }{r} // a failed attempt closes what it can
	return sent(ctx, n.c, func() (out holt.JobInputs, err error) {
		err = n.c.once(ctx, call{method: http.MethodPut, path: join("job-inputs"), raw: body}, &out)
		return out, err
	})
}

// Drop says that nobody makes jobs of inputs any more.
func (n Jobs) Drop(ctx context.Context, id holt.JobInputsID, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("job-inputs", string(id)), keyed: true, key: key}, nil)
}

// Create takes a job on and returns without waiting for it.
func (n Jobs) Create(ctx context.Context, spec holt.JobSpec, key string) (out holt.Job, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("jobs"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Get returns a job.
func (n Jobs) Get(ctx context.Context, id holt.JobID) (out holt.Job, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("jobs", string(id))}, &out)
	return out, err
}

// List returns up to limit (at most 1000) jobs, newest first, beginning after the
// one with the given id ("": with the newest).
func (n Jobs) List(ctx context.Context, after holt.JobID, limit int) ([]holt.Job, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		query.Set("cursor", string(after))
	}
	var page holt.Page[holt.Job]
	err := n.c.json(ctx, call{method: http.MethodGet, path: join("jobs"), query: query}, &page)
	return page.Items, err
}

// Follow calls emit with the output of a job from offset on and at last, once it
// has ended, with its exit. When the daemon goes away it goes on where it was once that is back.
func (n Jobs) Follow(ctx context.Context, id holt.JobID, offset int64, emit func(holt.RunEvent) error) error {
	f := follower{c: n.c, path: join("jobs", string(id), "events"), next: offset, emit: emit}
	return f.follow(ctx)
}

// Cancel ends a job and returns when there is nothing left of it.
func (n Jobs) Cancel(ctx context.Context, id holt.JobID, key string) (out holt.Job, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("jobs", string(id), "cancel"), keyed: true, key: key}, &out)
	return out, err
}

// Delete cancels a job that has not ended and removes it with its outputs.
func (n Jobs) Delete(ctx context.Context, id holt.JobID, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("jobs", string(id)), keyed: true, key: key}, nil)
}

// Outputs writes the outputs of a job that has ended to w, as a parcel. One that
// was cut off has no end.
func (n Jobs) Outputs(ctx context.Context, id holt.JobID, w io.Writer) error {
	return n.c.copyTo(ctx, call{method: http.MethodGet, path: join("jobs", string(id), "outputs")}, w)
}

// Release removes the outputs of a job that has ended.
func (n Jobs) Release(ctx context.Context, id holt.JobID, key string) (out holt.Job, err error) {
	err = n.c.json(ctx, call{method: http.MethodDelete, path: join("jobs", string(id), "outputs"), keyed: true, key: key}, &out)
	return out, err
}
