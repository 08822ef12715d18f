package api

import "holt"

// OneSchedule names a schedule in a path.
type OneSchedule struct {
	Schedule string `path:"schedule" doc:"id, a name that only one schedule has, or COMPUTER@NAME"`
}

// Inputs of schedules.
type (
	SchedulesOf struct {
		Paging
		Computer string `query:"computer" maxLength:"64" doc:"only those of this computer, by name or id"`
	}
	ScheduleUpdate struct {
		OneSchedule
		Keyed
		Body holt.ScheduleChange
	}
	ScheduleKeyed struct {
		OneSchedule
		Keyed
	}
	ScheduleHistory struct {
		OneSchedule
		Limit int `query:"limit" minimum:"1" maximum:"200" default:"100" doc:"how many"`
	}
)

// Schedules are commands that run in computers at times of the calendar.
var (
	CreateSchedule = Post[Body[holt.ScheduleSpec], holt.Schedule]("/v1/schedules", "createSchedule", "Create a schedule",
		Need{On: Computer, Ref: "Body.Computer", User: "Body.Spec.User", Change: true}, Created,
		Doc("At each due time the computer is woken, the command runs, and the computer goes back to sleep unless something else uses it. What the run changes in the workspace is recorded "+
			"under the schedule's name. A time that daylight saving time skips is due at the clock change; a time that occurs twice in a day is due once. "+
			"A schedule with * for the minute or the hour is due at intervals of real time. Forks of the computer do not get its schedules. Deleting the computer deletes them. "+
			"A computer has at most 100 schedules, a tenant 1,000, and all tenants together 10,000."))
	ListSchedules = GetList[SchedulesOf]("/v1/schedules", "listSchedules", "List schedules by name",
		Need{On: Computers, Ref: "Computer"}, func(s holt.Schedule) string { return s.Name + "@" + string(s.ID) }, Owner(func(s holt.Schedule) holt.ComputerID { return s.ComputerID }))
	GetSchedule    = Get[OneSchedule, holt.Schedule]("/v1/schedules/{schedule}", "getSchedule", "Get a schedule", Need{On: Schedule})
	UpdateSchedule = Patch[ScheduleUpdate, holt.Schedule]("/v1/schedules/{schedule}", "updateSchedule", "Change a schedule",
		Need{On: Content, Change: true}, Doc("A run in progress is not interrupted. Times while the schedule was disabled, and times of the old schedule, do not count as missed."))
	DeleteSchedule = Delete[ScheduleKeyed, None]("/v1/schedules/{schedule}", "deleteSchedule", "Delete a schedule with its history",
		Need{On: Schedule, Change: true}, Doc("A run in progress is not interrupted."))
	RunSchedule = Post[ScheduleKeyed, holt.Firing]("/v1/schedules/{schedule}/run", "runSchedule", "Run a schedule's command now",
		Need{On: Schedule, Change: true}, Doc("Also while the schedule is disabled. The answer comes when the run has started, cannot start (state failed), or waits for the run before it (state queued). "+
			"Conflict if the last run is in progress and overlap is skip, or if a run is already queued."))
	GetScheduleHistory = Get[ScheduleHistory, holt.Page[holt.Firing]]("/v1/schedules/{schedule}/history", "getScheduleHistory", "List the firings of a schedule, newest first",
		Need{On: Schedule}, Doc("Each due time was run; was skipped, because the run before it was still running; was missed, because the daemon was not running; or failed to start. "+
			"Runs that wait or are running are listed too. The last 200 are kept."))
)
