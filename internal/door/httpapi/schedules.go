package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

func (s *Server) schedules() {
	n := s.opt.Nouns.Schedules
	bind(s, api.CreateSchedule, func(ctx context.Context, in *api.Body[holt.ScheduleSpec]) (holt.Schedule, error) {
		return n.Create(ctx, in.Body, in.Key)
	})
	bindList(s, api.ListSchedules, func(ctx context.Context, in *api.SchedulesOf) ([]holt.Schedule, error) {
		return n.List(ctx, in.Computer)
	})
	bind(s, api.GetSchedule, func(ctx context.Context, in *api.OneSchedule) (holt.Schedule, error) { return n.Get(ctx, in.Schedule) })
	bind(s, api.UpdateSchedule, func(ctx context.Context, in *api.ScheduleUpdate) (holt.Schedule, error) {
		return n.Update(ctx, in.Schedule, in.Body, in.Key)
	})
	bind(s, api.DeleteSchedule, func(ctx context.Context, in *api.ScheduleKeyed) (api.None, error) {
		return api.None{}, n.Delete(ctx, in.Schedule, in.Key)
	})
	bind(s, api.RunSchedule, func(ctx context.Context, in *api.ScheduleKeyed) (holt.Firing, error) {
		return n.Run(ctx, in.Schedule, in.Key)
	})
	bind(s, api.GetScheduleHistory, func(ctx context.Context, in *api.ScheduleHistory) (holt.Page[holt.Firing], error) {
		all, err := n.History(ctx, in.Schedule, in.Limit)
		return holt.Page[holt.Firing]{Items: append([]holt.Firing{}, all...)}, err
	})
}
