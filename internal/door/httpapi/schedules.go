package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
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

// OneSchedule names a schedule in a path.
type OneSchedule struct {
	Schedule string `path:"schedule" doc:"id, a name that only one schedule has, or COMPUTER@NAME"`
}

const scheduleTag = "schedules"

func (s *Server) schedules(api huma.API) {
	nouns := s.opt.Nouns.Schedules
	op := describe(http.MethodPost, "/v1/schedules", "createSchedule", scheduleTag, "Run a command in a computer at times of the calendar")
	op.DefaultStatus = http.StatusCreated
	op.Description = "When it is due its computer is woken, the command is run, and the computer rests again as it did, unless something else uses it. What the run changes in the workspace " +
		"has the schedule's name as writer. Times of the day that do not exist on a day, since clocks are put forward, are due when they are; times that exist twice are due once. " +
		"What has * as minute or hour is due at intervals of real time. Forks of the computer do not have its schedules; with the computer they are deleted. " +
		"A computer has at most 100, a tenant 1000, and all tenants together 10000."
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Body holt.ScheduleSpec
	}) (*reply[holt.Schedule], error) {
		if _, err := parseRef(in.Body.Computer); err != nil {
			return nil, err
		}
		made, err := nouns.Create(ctx, in.Body, in.Key)
		return &reply[holt.Schedule]{made}, err
	})

	register(api, describe(http.MethodGet, "/v1/schedules", "listSchedules", scheduleTag, "List schedules by name"),
		func(ctx context.Context, in *struct {
			Paging
			Computer string `query:"computer" maxLength:"64" doc:"only those of this computer, by name or id"`
		}) (*reply[holt.Page[holt.Schedule]], error) {
			if in.Computer != "" {
				if _, err := parseRef(in.Computer); err != nil {
					return nil, err
				}
			}
			all, err := nouns.List(ctx, in.Computer)
			if err != nil {
				return nil, err
			}
			return pageOf(all, func(one holt.Schedule) string { return one.Name + "@" + string(one.ID) }, in.Paging), nil
		})

	register(api, describe(http.MethodGet, "/v1/schedules/{schedule}", "getSchedule", scheduleTag, "Get a schedule"),
		func(ctx context.Context, in *OneSchedule) (*reply[holt.Schedule], error) {
			ref, err := parseSchedule(in.Schedule)
			if err != nil {
				return nil, err
			}
			one, err := nouns.Get(ctx, ref)
			return &reply[holt.Schedule]{one}, err
		})
	s.changeSchedules(api)
	s.fireSchedules(api)
}

// changeSchedules registers the verbs that change schedules.
func (s *Server) changeSchedules(api huma.API) {
	nouns := s.opt.Nouns.Schedules
	op := describe(http.MethodPatch, "/v1/schedules/{schedule}", "updateSchedule", scheduleTag, "Change a schedule")
	op.Description = "A run that goes on is left alone. What was due while it was disabled, or by its former times, is not missed."
	register(api, op, func(ctx context.Context, in *struct {
		OneSchedule
		Keyed
		Body holt.ScheduleChange
	}) (*reply[holt.Schedule], error) {
		ref, err := parseSchedule(in.Schedule)
		if err != nil {
			return nil, err
		}
		one, err := nouns.Update(ctx, ref, in.Body, in.Key)
		return &reply[holt.Schedule]{one}, err
	})

	op = describe(http.MethodDelete, "/v1/schedules/{schedule}", "deleteSchedule", scheduleTag, "Delete a schedule with its history")
	op.Description = "A run of it that goes on goes on."
	register(api, op, func(ctx context.Context, in *struct {
		OneSchedule
		Keyed
	}) (*noContent, error) {
		ref, err := parseSchedule(in.Schedule)
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Delete(ctx, ref, in.Key)
	})
}

// fireSchedules registers what has schedules fire, and what became of that.
func (s *Server) fireSchedules(api huma.API) {
	nouns := s.opt.Nouns.Schedules
	op := describe(http.MethodPost, "/v1/schedules/{schedule}/run", "runSchedule", scheduleTag, "Run what a schedule runs, now")
	op.Description = "Also while it is disabled. Answers when the run has started, cannot be (state failed), or waits for the one before it (queued). " +
		"Conflict while its last run goes on, if its policy for that is skip, or one waits already."
	register(api, op, func(ctx context.Context, in *struct {
		OneSchedule
		Keyed
	}) (*reply[holt.Firing], error) {
		ref, err := parseSchedule(in.Schedule)
		if err != nil {
			return nil, err
		}
		fired, err := nouns.Run(ctx, ref, in.Key)
		return &reply[holt.Firing]{fired}, err
	})

	op = describe(http.MethodGet, "/v1/schedules/{schedule}/history", "getScheduleHistory", scheduleTag, "Say what became of a schedule, the latest first")
	op.Description = "Each due time was run, was skipped since the run before it went on, or was missed since the daemon did not run, or could not be run; what is waiting or running is there, too. The last 200 are kept."
	register(api, op, func(ctx context.Context, in *struct {
		OneSchedule
		Limit int `query:"limit" minimum:"1" maximum:"200" default:"100" doc:"how many"`
	}) (*reply[holt.Page[holt.Firing]], error) {
		ref, err := parseSchedule(in.Schedule)
		if err != nil {
			return nil, err
		}
		all, err := nouns.History(ctx, ref, in.Limit)
		return &reply[holt.Page[holt.Firing]]{Body: holt.Page[holt.Firing]{Items: append([]holt.Firing{}, all...)}}, err
	})
}

// parseSchedule checks a schedule's name or id, or COMPUTER@NAME, at the door.
func parseSchedule(s string) (string, error) {
	one := s
	if computer, at := holt.CutCheckpoint(s); at != "" {
		if _, err := parseRef(computer); err != nil {
			return "", err
		}
		one = at
	}
	if _, err := holt.ParseScheduleID(one); err == nil {
		return s, nil
	}
	_, err := holt.ParseName(one)
	return s, err
}
