package holt

import (
	"time"
)

// Schedule is a command that is run in a computer at times of the calendar.
type Schedule struct {
	ID         ScheduleID    `json:"id"`
	Name       string        `json:"name" doc:"unique among the computer's schedules; a DNS label; what its runs change has it as writer"`
	ComputerID ComputerID    `json:"computer_id"`
	Computer   string        `json:"computer" doc:"the computer's name"`
	Cron       string        `json:"cron" doc:"minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly"`
	TimeZone   string        `json:"time_zone" doc:"IANA name of the zone whose clock it goes by"`
	Missed     MissedPolicy  `json:"missed"`
	Overlap    OverlapPolicy `json:"overlap"`
	KeepAwake  bool          `json:"keep_awake" doc:"a computer that it woke is left running"`
	Enabled    bool          `json:"enabled"`
	Spec       RunSpec       `json:"spec" doc:"what it runs"`
	Variables  OSStrings     `json:"variables,omitempty" doc:"names of the variables in the environment of its runs; their values are kept and never shown"`
	CreatedAt  time.Time     `json:"created_at"`
	Next       []time.Time   `json:"next,omitempty" doc:"when it is due next, up to three times; none while it is disabled"`
	Last       *Firing       `json:"last,omitempty" doc:"what became of it last"`
	Firing     *Firing       `json:"firing,omitempty" doc:"what goes on now"`
}

// MissedPolicy says what becomes of due times at which nobody was there to act:
// the daemon was down, or its host slept.
type MissedPolicy string

// The policies for missed due times.
const (
	MissedSkip MissedPolicy = "skip" // none of them is made up for
	MissedOnce MissedPolicy = "once" // one run makes up for all of them
	MissedAll  MissedPolicy = "all"  // each is made up for, one after the other; the last MostMadeUp of them
)

// MostMadeUp is how many missed due times are made up for at most.
const MostMadeUp = 24

// OverlapPolicy says what becomes of a due time at which the schedule's last run goes on.
type OverlapPolicy string

// The policies for due times that meet a run.
const (
	OverlapSkip    OverlapPolicy = "skip"    // it is skipped
	OverlapQueue   OverlapPolicy = "queue"   // one waits for the run's end; those after it are skipped
	OverlapReplace OverlapPolicy = "replace" // the run is ended, and the next begins
)

// ScheduleSpec says what to run when. Zero fields take the defaults.
type ScheduleSpec struct {
	Computer  string        `json:"computer" doc:"name or id"`
	Name      string        `json:"name" doc:"a DNS label, unique among the computer's schedules"`
	Cron      string        `json:"cron" maxLength:"200" doc:"five fields: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly"`
	TimeZone  string        `json:"time_zone,omitempty" maxLength:"64" doc:"IANA name, as Europe/Berlin; default: UTC"`
	Missed    MissedPolicy  `json:"missed,omitempty" enum:"skip,once,all" doc:"what to do about due times while the daemon was down or its host slept: nothing, one run for all of them, or each (the last 24); default: once"`
	Overlap   OverlapPolicy `json:"overlap,omitempty" enum:"skip,queue,replace" doc:"when the last run goes on: skip this one, let one wait, or end the run; default: skip"`
	KeepAwake bool          `json:"keep_awake,omitempty" doc:"leave a computer running that was paused or stopped before; default: it is paused or stopped again, unless something else uses it"`
	Disabled  bool          `json:"disabled,omitempty" doc:"create it disabled"`
	Spec      RunSpec       `json:"spec" doc:"what to run; it has no standard input and no secrets"`
}

// ScheduleChange says what to change of a schedule. Absent fields stay as they are.
type ScheduleChange struct {
	Name      *string        `json:"name,omitempty"`
	Cron      *string        `json:"cron,omitempty" maxLength:"200"`
	TimeZone  *string        `json:"time_zone,omitempty" maxLength:"64"`
	Missed    *MissedPolicy  `json:"missed,omitempty" enum:"skip,once,all"`
	Overlap   *OverlapPolicy `json:"overlap,omitempty" enum:"skip,queue,replace"`
	KeepAwake *bool          `json:"keep_awake,omitempty"`
	Enabled   *bool          `json:"enabled,omitempty" doc:"what is due while it is disabled is not missed"`
	Spec      *RunSpec       `json:"spec,omitempty" doc:"all of what to run, its environment too"`
}

// FiringState is how far a firing is.
type FiringState string

// The states of a firing. The first three go on.
const (
	FiringQueued   FiringState = "queued"   // waits for the end of the one before it
	FiringStarting FiringState = "starting" // its computer is being woken
	FiringRunning  FiringState = "running"
	FiringExited   FiringState = "exited"
	FiringLost     FiringState = "lost"    // the machine ended under its run
	FiringFailed   FiringState = "failed"  // its run could not be started
	FiringSkipped  FiringState = "skipped" // the run before it went on
	FiringMissed   FiringState = "missed"  // nobody was there, and it is not made up for
)

// Firing is what became of one due time of a schedule, or of several that were missed.
type Firing struct {
	Schedule  ScheduleID  `json:"schedule"`
	Due       time.Time   `json:"due"`
	Until     *time.Time  `json:"until,omitempty" doc:"the last of several that were missed"`
	Count     int         `json:"count" doc:"how many due times it stands for"`
	State     FiringState `json:"state" enum:"queued,starting,running,exited,lost,failed,skipped,missed"`
	Reason    string      `json:"reason,omitempty" doc:"why it is in this state, when that is not obvious"`
	Manual    bool        `json:"manual,omitempty" doc:"somebody asked for it"`
	Run       RunID       `json:"run,omitempty"`
	ExitCode  int         `json:"exit_code" nullable:"true" doc:"of its run; null until that has exited"`
	TimedOut  bool        `json:"timed_out,omitempty"`
	StartedAt *time.Time  `json:"started_at,omitempty" doc:"when its run did"`
	EndedAt   *time.Time  `json:"ended_at,omitempty"`
}

// MarshalJSON shows no exit status before there is one.
func (f Firing) MarshalJSON() ([]byte, error) {
	type plain Firing
	return asJSON(struct {
		plain
		ExitCode *int `json:"exit_code"`
	}{plain(f), shownExit(f.ExitCode, f.State == FiringExited)})
}

// GoesOn says whether a firing has not come to its end.
func (s FiringState) GoesOn() bool {
	return s == FiringQueued || s == FiringStarting || s == FiringRunning
}
