package httpapi

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

func (s *Server) jobs() {
	n := s.opt.Nouns.Jobs
	bind(s, api.SendJobInputs, func(ctx context.Context, _ *struct{}) (holt.JobInputs, error) {
		return n.Send(ctx, requestOf(ctx).r.Body)
	})
	bind(s, api.DropJobInputs, func(ctx context.Context, in *api.JobInputsKeyed) (api.None, error) {
		return api.None{}, n.Drop(ctx, holt.JobInputsID(in.Inputs), in.Key)
	})
	bind(s, api.CreateJob, func(ctx context.Context, in *api.Body[holt.JobSpec]) (holt.Job, error) {
		if in.Body.Inputs != "" {
			if _, err := holt.ParseJobInputsID(string(in.Body.Inputs)); err != nil {
				return holt.Job{}, err
			}
		}
		return n.Create(ctx, in.Body, in.Key)
	})
	bind(s, api.ListJobs, func(ctx context.Context, in *api.Paging) (holt.Page[holt.Job], error) {
		return pageAfter(*in, holt.ParseJobID, func(j holt.Job) holt.JobID { return j.ID }, func(after holt.JobID, limit int) ([]holt.Job, error) {
			return n.List(ctx, after, limit)
		})
	})
	bind(s, api.GetJob, func(ctx context.Context, in *api.OneJob) (holt.Job, error) { return n.Get(ctx, holt.JobID(in.Job)) })
	bind(s, api.CancelJob, func(ctx context.Context, in *api.JobKeyed) (holt.Job, error) {
		return n.Cancel(ctx, holt.JobID(in.Job), in.Key)
	})
	bind(s, api.DeleteJob, func(ctx context.Context, in *api.JobKeyed) (api.None, error) {
		return api.None{}, n.Delete(ctx, holt.JobID(in.Job), in.Key)
	})
	bind(s, api.ReleaseJobOutputs, func(ctx context.Context, in *api.JobKeyed) (holt.Job, error) {
		return n.Release(ctx, holt.JobID(in.Job), in.Key)
	})
	bindStream(s, api.FollowJob, func(ctx context.Context, in *api.JobEvents) (*huma.StreamResponse, error) {
		job, err := n.Get(ctx, holt.JobID(in.Job)) // while there can still be a status
		if err != nil {
			return nil, err
		}
		return s.follow(ctx, in.EventsFrom, !job.State.Ended(), func(ctx context.Context, offset int64, emit func(holt.RunEvent) error) error {
			return n.Follow(ctx, job.ID, offset, emit)
		})
	})
	bindStream(s, api.GetJobOutputs, func(ctx context.Context, in *api.OneJob) (*huma.StreamResponse, error) {
		return s.raw(ctx, api.ParcelType, func(ctx context.Context, w *rawWriter) error { return n.Outputs(ctx, holt.JobID(in.Job), w) }), nil
	})
}
