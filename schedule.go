package holt

import (
	"time"
)

// Schedule is a command that runs in a computer at set times.
type Schedule struct {
	ID         ScheduleID    `json:"id"`
	Name       string        `json:"name" doc:"unique among the computer's schedules; a DNS label; the writer of files that its runs change"`
	ComputerID ComputerID    `json:"computer_id"`
	Computer   string        `json:"computer" doc:"the computer's name"`
	Cron       string        `json:"cron" doc:"minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly"`
	TimeZone   string        `json:"time_zone" doc:"IANA name of its time zone"`
	Missed     MissedPolicy  `json:"missed"`
	Overlap    OverlapPolicy `json:"overlap"`
	KeepAwake  bool          `json:"keep_awake" doc:"leave the computer running if it was paused or stopped before"`
	Enabled    bool          `json:"enabled"`
	Spec       RunSpec       `json:"spec" doc:"the command"`
	Variables  OSStrings     `json:"variables,omitempty" doc:"names of its environment variables; the values are stored and never shown"`
	CreatedAt  time.Time     `json:"created_at"`
	Next       []time.Time   `json:"next,omitempty" doc:"the next due times, at most three; none while it is disabled"`
	Last       *Firing       `json:"last,omitempty" doc:"the last firing"`
	Firing     *Firing       `json:"firing,omitempty" doc:"the firing in progress"`
}

// MissedPolicy says what to do about due times while the daemon was down or its
// host was asleep.
type MissedPolicy string

// The policies for missed due times.
const (
	MissedSkip MissedPolicy = "skip" // run none of them
	MissedOnce MissedPolicy = "once" // one run for all of them
	MissedAll  MissedPolicy = "all"  // one run for each, in order; at most MostMadeUp
)

// MostMadeUp is the maximum number of runs for missed due times.
const MostMadeUp = 24

// OverlapPolicy says what to do if the previous run is still in progress when a schedule is due.
type OverlapPolicy string

// The policies for overlapping runs.
const (
	OverlapSkip    OverlapPolicy = "skip"    // skip this due time
	OverlapQueue   OverlapPolicy = "queue"   // one waits for the end of the run; later ones are skipped
	OverlapReplace OverlapPolicy = "replace" // end the run in progress and start the next
)

// ScheduleSpec describes a schedule to create. Zero fields take the defaults.
type ScheduleSpec struct {
	Computer  string        `json:"computer" doc:"name or id"`
	Name      string        `json:"name" doc:"a DNS label, unique among the computer's schedules"`
	Cron      string        `json:"cron" maxLength:"200" doc:"five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly"`
	TimeZone  string        `json:"time_zone,omitempty" maxLength:"64" doc:"IANA name, such as Europe/Berlin; default: UTC"`
	Missed    MissedPolicy  `json:"missed,omitempty" enum:"skip,once,all" doc:"what to do about due times while the daemon was down: skip them, once (one run for all) or all (one run for each, at most 24); default: once"`
	Overlap   OverlapPolicy `json:"overlap,omitempty" enum:"skip,queue,replace" doc:"what to do if the previous run is still in progress: skip, queue (one waits) or replace (end the previous run); default: skip"`
	KeepAwake bool          `json:"keep_awake,omitempty" doc:"leave the computer running if it was paused or stopped before; default: pause or stop it again, unless something else uses it"`
	Disabled  bool          `json:"disabled,omitempty" doc:"create it disabled"`
	Spec      RunSpec       `json:"spec" doc:"the command; it has no standard input and no secrets"`
}

// ScheduleChange changes a schedule. Absent fields keep their value.
type ScheduleChange struct {
	Name      *string        `json:"name,omitempty"`
	Cron      *string        `json:"cron,omitempty" maxLength:"200"`
	TimeZone  *string        `json:"time_zone,omitempty" maxLength:"64"`
	Missed    *MissedPolicy  `json:"missed,omitempty" enum:"skip,once,all"`
	Overlap   *OverlapPolicy `json:"overlap,omitempty" enum:"skip,queue,replace"`
	KeepAwake *bool          `json:"keep_awake,omitempty"`
	Enabled   *bool          `json:"enabled,omitempty" doc:"due times while it is disabled do not count as missed"`
	Spec      *RunSpec       `json:"spec,omitempty" doc:"replaces the command with its environment"`
}

// FiringState is the state of a firing.
type FiringState string

// The states of a firing. The first three are in progress.
const (
	FiringQueued   FiringState = "queued"   // waits for the end of the previous run
	FiringStarting FiringState = "starting" // its computer is being woken
	FiringRunning  FiringState = "running"
	FiringExited   FiringState = "exited"
	FiringLost     FiringState = "lost"    // the machine ended during its run
	FiringFailed   FiringState = "failed"  // its run did not start
	FiringSkipped  FiringState = "skipped" // the previous run was in progress
	FiringMissed   FiringState = "missed"  // the daemon was down or the host asleep
)

// Firing is the result of one due time of a schedule, or of several that were missed.
type Firing struct {
	Schedule  ScheduleID  `json:"schedule"`
	Due       time.Time   `json:"due"`
	Until     *time.Time  `json:"until,omitempty" doc:"the last due time, if several were missed"`
	Count     int         `json:"count" doc:"number of due times"`
	State     FiringState `json:"state" enum:"queued,starting,running,exited,lost,failed,skipped,missed"`
	Reason    string      `json:"reason,omitempty" doc:"reason for the state, if it is not obvious"`
	Manual    bool        `json:"manual,omitempty" doc:"started by runSchedule, not by time"`
	Run       RunID       `json:"run,omitempty"`
	ExitCode  int         `json:"exit_code" nullable:"true" doc:"exit status of its run; null until it has exited"`
	TimedOut  bool        `json:"timed_out,omitempty"`
	StartedAt *time.Time  `json:"started_at,omitempty" doc:"start of its run"`
	EndedAt   *time.Time  `json:"ended_at,omitempty"`
}

// MarshalJSON writes a null exit status before there is one.
func (f Firing) MarshalJSON() ([]byte, error) {
	type plain Firing
	return asJSON(struct {
		plain
		ExitCode *int `json:"exit_code"`
	}{plain(f), shownExit(f.ExitCode, f.State == FiringExited)})
}

// Running reports whether a firing is in progress.
func (s FiringState) Running() bool {
	return s == FiringQueued || s == FiringStarting || s == FiringRunning
}
