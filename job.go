package holt

import (
	"time"
)

// JobID names one job: "job_…". JobInputsID names files that were sent for jobs
// to begin with: "inp_…".
type (
	JobID       string
	JobInputsID string
)

const (
	jobPrefix       = "job_"
	jobInputsPrefix = "inp_"
)

// NewJobID returns a fresh random identifier.
func NewJobID() JobID { return JobID(newID(jobPrefix)) }

// NewJobInputsID returns a fresh random identifier.
func NewJobInputsID() JobInputsID { return JobInputsID(newID(jobInputsPrefix)) }

// ParseJobID returns s as a JobID, or an InvalidArgument [Error].
func ParseJobID(s string) (JobID, error) {
	id, err := parseID(jobPrefix, "job", s)
	return JobID(id), err
}

// ParseJobInputsID returns s as a JobInputsID, or an InvalidArgument [Error].
func ParseJobInputsID(s string) (JobInputsID, error) {
	id, err := parseID(jobInputsPrefix, "job inputs", s)
	return JobInputsID(id), err
}

// JobState is where a job is in its life.
type JobState string

// The states of a job. The last three are ends.
const (
	JobQueued     JobState = "queued"     // until the host has room
	JobRunning    JobState = "running"    // its computer is made, and its command runs
	JobCollecting JobState = "collecting" // its command has ended: outputs are kept, all else is thrown away
	JobDone       JobState = "done"       // its command ended with exit status 0
	JobFailed     JobState = "failed"     // with another, or not at all
	JobCancelled  JobState = "cancelled"
)

// Ended says whether nothing becomes of the job any more.
func (s JobState) Ended() bool { return s == JobDone || s == JobFailed || s == JobCancelled }

// What a job gets when nothing is asked for, and how long what it leaves is kept.
const (
	// JobOut is the directory of its workspace whose files are a job's outputs.
	JobOut = "out"
	// JobTimeout ends its command.
	JobTimeout = 6 * time.Hour
	// JobKept is how long outputs are kept that nobody has released.
	JobKept = 24 * time.Hour
	// JobInputsKept is how long inputs are kept that no job needs.
	JobInputsKept = time.Hour
	// JobsKept is how many ended jobs of a tenant are remembered, besides those with outputs.
	JobsKept = 1000
	// JobTail is how much of the end of a job's output is remembered with it, bytes.
	JobTail = 64 << 10
)

// JobSpec says what to run in a computer of its own that is thrown away at the
// end. Zero fields take the defaults.
type JobSpec struct {
	Template   string         `json:"template,omitempty" doc:"of its computer; default: base"`
	CPUs       int            `json:"cpus,omitempty" doc:"default: 1"`
	MemoryMB   int            `json:"memory_mb,omitempty" doc:"MiB; default: 1024"`
	DiskSizeMB int            `json:"disk_size_mb,omitempty" doc:"MiB; default: 10240"`
	Inputs     JobInputsID    `json:"inputs,omitempty" doc:"files that its workspace begins with: the id that sendJobInputs answered"`
	Workspace  string         `json:"workspace,omitempty" doc:"or those of this workspace, of which its own is a fork; NAME@CHECKPOINT: as it was then"`
	Collect    OSString       `json:"collect,omitempty" doc:"directory whose files are its outputs, absolute in the computer or from its workspace, in which it must be; default: out. It is there when the command begins"`
	Network    *NetworkPolicy `json:"network,omitempty" doc:"what its computer may reach; default: the internet"`
	SecretsOf  string         `json:"secrets_of,omitempty" doc:"a computer whose host secrets its own gets, as they are when it begins; default: it has none"`
	Run        RunSpec        `json:"run" doc:"its command; timeout_ms is 6 hours by default. Environment and secrets are kept until it has ended"`
}

// Job is a command with a computer of its own, known inputs, and outputs.
type Job struct {
	ID          JobID        `json:"id"`
	Spec        JobSpec      `json:"spec"`
	State       JobState     `json:"state" enum:"queued,running,collecting,done,failed,cancelled"`
	Tenant      string       `json:"tenant,omitempty" doc:"whose limits its computer counts for"`
	Reason      string       `json:"reason,omitempty" doc:"why it is queued or collecting still, or stands still, when that is not obvious"`
	ExitCode    int          `json:"exit_code" nullable:"true" doc:"of its command, as of a run; null until that has ended"`
	Signal      string       `json:"signal,omitempty" doc:"the signal that ended its command, as SIGTERM"`
	TimedOut    bool         `json:"timed_out,omitempty"`
	OutOfMemory *OutOfMemory `json:"out_of_memory,omitempty" doc:"the kernel killed processes of its command because memory ran out"`
	Error       *Error       `json:"error,omitempty" doc:"why its command did not come to its end, or its outputs are not whole"`
	Attempts    int          `json:"attempts,omitempty" doc:"how often it was begun: it is again when its machine ends under it"`
	ComputerID  ComputerID   `json:"computer_id,omitempty" doc:"of the last attempt"`
	RunID       RunID        `json:"run_id,omitempty" doc:"of the last attempt"`
	Outputs     *JobOutputs  `json:"outputs,omitempty" doc:"once they are collected"`
	CreatedAt   time.Time    `json:"created_at"`
	StartedAt   *time.Time   `json:"started_at,omitempty" doc:"the last attempt"`
	EndedAt     *time.Time   `json:"ended_at,omitempty"`
	Steps       JobSteps     `json:"steps" doc:"how long the last attempt took"`
}

// MarshalJSON shows no exit status before there is one.
func (j Job) MarshalJSON() ([]byte, error) {
	type plain Job
	return asJSON(struct {
		plain
		ExitCode *int `json:"exit_code"`
	}{plain(j), shownExit(j.ExitCode, j.State == JobCollecting && j.Error == nil || j.State == JobDone)})
}

// JobOutputs say what a job has left in the directory that it collects.
type JobOutputs struct {
	Files int64 `json:"files" doc:"everything that is not a directory"`
	Bytes int64 `json:"bytes" doc:"sum of the sizes of files"`
	Kept  bool  `json:"kept" doc:"they can be fetched: for 24 hours, or until they are released"`
}

// JobSteps are the parts of a job's time.
type JobSteps struct {
	CreateMS  int64 `json:"create_ms,omitempty" doc:"until its computer took commands"`
	RunMS     int64 `json:"run_ms,omitempty" doc:"until the command had ended"`
	CollectMS int64 `json:"collect_ms,omitempty" doc:"until its outputs were all there"`
	DeleteMS  int64 `json:"delete_ms,omitempty" doc:"until its computer was gone"`
}

// JobInputs are files that were sent for jobs to begin with: each job has a
// fork of them.
type JobInputs struct {
	ID JobInputsID `json:"id"`
	TransferReport
}
