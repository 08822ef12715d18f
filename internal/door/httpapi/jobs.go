package httpapi

import (
	"context"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Jobs are commands with computers of their own that are thrown away. A job
// goes on when its caller leaves.
type Jobs interface {
	// Send takes files for jobs to begin with, as a parcel. They stay for an hour
	// after the last job that began with them.
	Send(ctx context.Context, in io.Reader) (holt.JobInputs, error)
	// Drop lets them go with the last job that is there. It is no error if they are gone.
	Drop(ctx context.Context, id holt.JobInputsID, key string) error
	// Create takes a job on and returns without waiting for it. NotFound: inputs or
	// workspace; what its template or command lacks it says when it has failed.
	Create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error)
	Get(ctx context.Context, id holt.JobID) (holt.Job, error)
	// List returns up to limit jobs, newest first, beginning after the one with the
	// given id ("": with the newest).
	List(ctx context.Context, after holt.JobID, limit int) ([]holt.Job, error)
	// Follow calls emit with the output of its command from offset on, in order, and,
	// once the job has ended, with its exit, and returns nil. The exit is of a lost run
	// if the command did not come to its end; the job says why.
	Follow(ctx context.Context, id holt.JobID, offset int64, emit func(holt.RunEvent) error) error
	// Cancel ends a job and returns when there is nothing left of it. One that has
	// ended is left as it is.
	Cancel(ctx context.Context, id holt.JobID, key string) (holt.Job, error)
	// Delete cancels a job that has not ended, and removes it with its outputs.
	Delete(ctx context.Context, id holt.JobID, key string) error
	// Outputs writes a parcel. Conflict: it has not ended, or has none that are kept.
	Outputs(ctx context.Context, id holt.JobID, out io.Writer) error
	// Release removes the outputs. Conflict: it has not ended.
	Release(ctx context.Context, id holt.JobID, key string) (holt.Job, error)
}

// OneJob names a job in a path.
type OneJob struct {
	Job string `path:"job" doc:"job id"`
}

func (s *Server) jobs(api huma.API) {
	const tag = "jobs"
	nouns := s.opt.Nouns.Jobs
	s.jobInputs(api)

	op := describe(http.MethodPost, "/v1/jobs", "createJob", tag, "Run a command in a computer of its own that is thrown away")
	op.DefaultStatus = http.StatusCreated
	op.Description = "Answers at once; it begins when the host has room. When its machine ends under it it is begun again, with its inputs, three times at most."
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Body holt.JobSpec
	}) (*reply[holt.Job], error) {
		if in.Body.Inputs != "" {
			if _, err := holt.ParseJobInputsID(string(in.Body.Inputs)); err != nil {
				return nil, err
			}
		}
		j, err := nouns.Create(ctx, in.Body, in.Key)
		return &reply[holt.Job]{j}, err
	})

	op = describe(http.MethodGet, "/v1/jobs", "listJobs", tag, "List jobs, newest first")
	op.Description = "The last 1000 of a tenant that ended are remembered, and those whose outputs are kept."
	register(api, op, func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.Job]], error) {
		var after holt.JobID
		if in.Cursor != "" {
			var err error
			if after, err = holt.ParseJobID(in.Cursor); err != nil {
				return nil, err
			}
		}
		list, err := nouns.List(ctx, after, in.Limit+1)
		if err != nil {
			return nil, err
		}
		out := &reply[holt.Page[holt.Job]]{Body: holt.Page[holt.Job]{Items: append([]holt.Job{}, list...)}}
		if len(list) > in.Limit {
			out.Body.Items = out.Body.Items[:in.Limit]
			out.Body.Next = string(list[in.Limit-1].ID)
		}
		return out, nil
	})

	register(api, describe(http.MethodGet, "/v1/jobs/{job}", "getJob", tag, "Get a job"), ofJob(nouns.Get))

	op = describe(http.MethodPost, "/v1/jobs/{job}/cancel", "cancelJob", tag, "End a job and throw away what there is of it")
	op.Description = "Answers when that is done. One that has ended is left as it is."
	register(api, op, ofJobKeyed(nouns.Cancel))

	op = describe(http.MethodDelete, "/v1/jobs/{job}", "deleteJob", tag, "Remove a job with its outputs; one that has not ended is cancelled")
	register(api, op, func(ctx context.Context, in *struct {
		OneJob
		Keyed
	}) (*noContent, error) {
		id, err := holt.ParseJobID(in.Job)
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Delete(ctx, id, in.Key)
	})
	s.jobEvents(api)
	s.jobOutputs(api)
}

// ofJob is a call that names a job.
func ofJob(f func(context.Context, holt.JobID) (holt.Job, error)) func(context.Context, *OneJob) (*reply[holt.Job], error) {
	return func(ctx context.Context, in *OneJob) (*reply[holt.Job], error) {
		id, err := holt.ParseJobID(in.Job)
		if err != nil {
			return nil, err
		}
		j, err := f(ctx, id)
		return &reply[holt.Job]{j}, err
	}
}

// OneJobKeyed names a job that is changed.
type OneJobKeyed struct {
	OneJob
	Keyed
}

func ofJobKeyed(f func(context.Context, holt.JobID, string) (holt.Job, error)) func(context.Context, *OneJobKeyed) (*reply[holt.Job], error) {
	return func(ctx context.Context, in *OneJobKeyed) (*reply[holt.Job], error) {
		return ofJob(func(ctx context.Context, id holt.JobID) (holt.Job, error) { return f(ctx, id, in.Key) })(ctx, &in.OneJob)
	}
}

func (s *Server) jobInputs(api huma.API) {
	op := describe(http.MethodPut, "/v1/job-inputs", "sendJobInputs", "jobs", "Send files for jobs to begin with")
	op.DefaultStatus = http.StatusCreated
	op.Description = "The body is a parcel, as importWorkspace takes it. Any number of jobs can begin with them: each has a fork. They are kept for an hour after the last of these has ended."
	op.RequestBody = rawBody("a parcel")
	register(api, op, func(ctx context.Context, in *RawRequest) (*reply[holt.JobInputs], error) {
		out, err := s.opt.Nouns.Jobs.Send(ctx, in.r.Body)
		return &reply[holt.JobInputs]{out}, err
	})

	op = describe(http.MethodDelete, "/v1/job-inputs/{inputs}", "dropJobInputs", "jobs", "Let inputs go with the last job that began with them")
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Inputs string `path:"inputs" doc:"what sendJobInputs answered"`
	}) (*noContent, error) {
		id, err := holt.ParseJobInputsID(in.Inputs)
		if err != nil {
			return nil, err
		}
		return &noContent{}, s.opt.Nouns.Jobs.Drop(ctx, id, in.Key)
	})
}

func (s *Server) jobEvents(api huma.API) {
	op := describe(http.MethodGet, "/v1/jobs/{job}/events", "followJob", "jobs", "Follow the output and the end of a job")
	op.Description = "As followRun. The exit comes when the job has ended, with its outputs collected. It is that of a lost run if the command did not come to its end; the job says why. " +
		"Of a job that is over the last 64 KiB of its output are kept."
	op.Responses = eventResponses(api)
	register(api, op, func(ctx context.Context, in *struct {
		OneJob
		EventsFrom
	}) (*huma.StreamResponse, error) {
		id, err := holt.ParseJobID(in.Job)
		if err != nil {
			return nil, err
		}
		offset, err := in.offset()
		if err != nil {
			return nil, err
		}
		job, err := s.opt.Nouns.Jobs.Get(ctx, id)
		if err != nil {
			return nil, err // while there can still be a status
		}
		if !job.State.Ended() {
			s.begun(requestOf(ctx))
		}
		return s.events(ctx, func(ctx context.Context, emit func(holt.RunEvent) error) error {
			return s.opt.Nouns.Jobs.Follow(ctx, id, offset, emit)
		}), nil
	})
}

const parcelType = "application/vnd.holt.parcel"

func (s *Server) jobOutputs(api huma.API) {
	op := describe(http.MethodGet, "/v1/jobs/{job}/outputs", "getJobOutputs", "jobs", "Get the outputs of a job that has ended")
	op.Description = "The answer is a parcel, as exportWorkspace sends it. They are kept for 24 hours, or until they are released."
	op.Responses = rawResponse(parcelType, "a parcel")
	register(api, op, func(ctx context.Context, in *OneJob) (*huma.StreamResponse, error) {
		id, err := holt.ParseJobID(in.Job)
		if err != nil {
			return nil, err
		}
		return s.raw(ctx, parcelType, func(ctx context.Context, w *rawWriter) error {
			return s.opt.Nouns.Jobs.Outputs(ctx, id, w)
		}), nil
	})
	op = describe(http.MethodDelete, "/v1/jobs/{job}/outputs", "releaseJobOutputs", "jobs", "Remove the outputs of a job that has ended")
	register(api, op, ofJobKeyed(s.opt.Nouns.Jobs.Release))
}
