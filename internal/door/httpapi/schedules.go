package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Schedules are commands that are run in computers at times of the calendar. ref is an
// id, a name that only one schedule has (Conflict if several do), or COMPUTER@NAME.
type Schedules interface {
	// Create makes one, which fires from now on. InvalidArgument; NotFound: the
	// computer; AlreadyExists: the computer has one of the name; TooMany.
	Create(ctx context.Context, spec holt.ScheduleSpec, key string) (holt.Schedule, error)
	Get(ctx context.Context, ref string) (holt.Schedule, error)
	// List returns those of a computer, or of all with "", in any order.
	List(ctx context.Context, computer string) ([]holt.Schedule, error)
	// Update changes what change has. What is due while one is disabled is not missed.
	Update(ctx context.Context, ref string, change holt.ScheduleChange, key string) (holt.Schedule, error)
	// Delete removes one with its history. Its run goes on.
	Delete(ctx context.Context, ref, key string) error
	// Run fires one now, and returns when its run has started or cannot be. Conflict
	// while its last run goes on, unless its policy for that is another.
	Run(ctx context.Context, ref, key string) (holt.Firing, error)
	// History returns what became of one, the latest first, up to limit; 0: all that is kept.
	History(ctx context.Context, ref string, limit int) ([]holt.Firing, error)
}

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
