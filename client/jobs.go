package client

import (
	"context"
	"io"

	"holt"
	"holt/internal/api"
)

// Jobs are commands with computers of their own that are thrown away.
type Jobs struct{ c *Client }

// Send sends files for jobs to begin with, as a parcel. It is never sent twice.
func (n Jobs) Send(ctx context.Context, r io.Reader) (holt.JobInputs, error) {
	k := callOf(api.SendJobInputs, struct{}{})
	k.raw = struct{ io.Reader }{r} // a failed attempt closes what it can
	return sent(ctx, n.c, func() (out holt.JobInputs, err error) {
		err = n.c.once(ctx, k, &out)
		return out, err
	})
}

// Drop says that no more jobs will be made with the inputs.
func (n Jobs) Drop(ctx context.Context, id holt.JobInputsID, key string) error {
	return doNone(ctx, n.c, api.DropJobInputs, api.JobInputsKeyed{api.Keyed{key}, string(id)})
}

// Create takes a job on and returns without waiting for it.
func (n Jobs) Create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error) {
	return do(ctx, n.c, api.CreateJob, api.Body[holt.JobSpec]{api.Keyed{key}, spec})
}

// Get returns a job.
func (n Jobs) Get(ctx context.Context, id holt.JobID) (holt.Job, error) {
	return do(ctx, n.c, api.GetJob, api.OneJob{string(id)})
}

// List returns up to limit (at most 1000) jobs, newest first, beginning after the
// one with the given id ("": with the newest).
func (n Jobs) List(ctx context.Context, after holt.JobID, limit int) ([]holt.Job, error) {
	page, err := do(ctx, n.c, api.ListJobs, api.Paging{Limit: limit, Cursor: string(after)})
	return page.Items, err
}

// Follow calls emit with the output of a job from offset on and at last, once it
// has ended, with its exit. When the daemon goes away it continues once that is back.
func (n Jobs) Follow(ctx context.Context, id holt.JobID, offset int64, emit func(holt.RunEvent) error) error {
	f := follower{c: n.c, next: offset, emit: emit, call: func(from api.EventsFrom) call {
		return callOf(api.FollowJob, api.JobEvents{api.OneJob{string(id)}, from})
	}}
	return f.follow(ctx)
}

// Cancel ends a job and returns when there is nothing left of it.
func (n Jobs) Cancel(ctx context.Context, id holt.JobID, key string) (holt.Job, error) {
	return do(ctx, n.c, api.CancelJob, api.JobKeyed{api.OneJob{string(id)}, api.Keyed{key}})
}

// Delete cancels a job that has not ended and removes it with its outputs.
func (n Jobs) Delete(ctx context.Context, id holt.JobID, key string) error {
	return doNone(ctx, n.c, api.DeleteJob, api.JobKeyed{api.OneJob{string(id)}, api.Keyed{key}})
}

// Outputs writes the outputs of a job that has ended to w, as a parcel. One that
// was cut off has no end.
func (n Jobs) Outputs(ctx context.Context, id holt.JobID, w io.Writer) error {
	return n.c.copyTo(ctx, callOf(api.GetJobOutputs, api.OneJob{string(id)}), w)
}

// Release removes the outputs of a job that has ended.
func (n Jobs) Release(ctx context.Context, id holt.JobID, key string) (holt.Job, error) {
	return do(ctx, n.c, api.ReleaseJobOutputs, api.JobKeyed{api.OneJob{string(id)}, api.Keyed{key}})
}
