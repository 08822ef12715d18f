package holt

import (
	"time"
)

// JobID identifies a job: "job_…". JobInputsID identifies uploaded inputs of
// jobs: "inp_…".
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

// JobState is the state of a job.
type JobState string

// The states of a job. The last three are final.
const (
	JobQueued     JobState = "queued"     // waits until the host has memory
	JobRunning    JobState = "running"    // its computer is created and its command runs
	JobCollecting JobState = "collecting" // its command has ended; outputs are collected and the computer is deleted
	JobDone       JobState = "done"       // its command ended with exit status 0
	JobFailed     JobState = "failed"     // its command failed, or could not run
	JobCancelled  JobState = "cancelled"
)

// Ended reports whether the state is final.
func (s JobState) Ended() bool { return s == JobDone || s == JobFailed || s == JobCancelled }

// Defaults of jobs, and how long results are kept.
const (
	// JobOut is the directory of the workspace that holds a job's outputs.
	JobOut = "out"
	// JobTimeout is the timeout of its command.
	JobTimeout = 6 * time.Hour
	// JobKept is how long outputs are kept, unless they are released.
	JobKept = 24 * time.Hour
	// JobInputsKept is how long unused inputs are kept.
	JobInputsKept = time.Hour
	// JobsKept is how many ended jobs of a tenant are kept, besides those with outputs.
	JobsKept = 1000
	// JobTail is how much of the end of a job's output is kept, bytes.
	JobTail = 64 << 10
)

// JobSpec describes a job: a command in a temporary computer. Zero fields take
// the defaults.
type JobSpec struct {
	Template   string         `json:"template,omitempty" doc:"template of its computer; default: base"`
	Engine     string         `json:"engine,omitempty" doc:"what runs its computer: qemu or gvisor; default: what its template needs, or else the daemon's default"`
	CPUs       int            `json:"cpus,omitempty" doc:"default: 1"`
	MemoryMB   int            `json:"memory_mb,omitempty" doc:"MiB; default: 1024"`
	DiskSizeMB int            `json:"disk_size_mb,omitempty" doc:"MiB; default: 10240"`
	Inputs     JobInputsID    `json:"inputs,omitempty" doc:"initial files of its workspace: the id that sendJobInputs returned"`
	Workspace  string         `json:"workspace,omitempty" doc:"use a fork of this workspace, or NAME@CHECKPOINT, instead of inputs"`
	Collect    OSString       `json:"collect,omitempty" doc:"directory with the outputs, inside the workspace; default: out. It is created before the command starts"`
	Network    *NetworkPolicy `json:"network,omitempty" doc:"network policy of its computer; default: the internet"`
	SecretsOf  string         `json:"secrets_of,omitempty" doc:"computer whose host secrets are copied when the job starts; default: none"`
	Publish    *JobPublish    `json:"publish,omitempty" doc:"publish outputs as artifacts when the command has succeeded; default: none"`
	Run        RunSpec        `json:"run" doc:"the command; timeout_ms defaults to 6 hours; environment and secrets are stored until the job has ended"`
}

// JobPublish says which outputs of a job are published.
type JobPublish struct {
	Bucket string     `json:"bucket,omitempty" maxLength:"64" doc:"default: artifacts"`
	Paths  []OSString `json:"paths,omitempty" maxItems:"1000" doc:"files or directories of the directory with the outputs, each one artifact; default: all files of it, at most 1000"`
}

// MostJobArtifacts is how many outputs of a job are published.
const MostJobArtifacts = 1000

// Job is a command that runs once in a temporary computer, with inputs and outputs.
type Job struct {
	ID          JobID        `json:"id"`
	Spec        JobSpec      `json:"spec"`
	State       JobState     `json:"state" enum:"queued,running,collecting,done,failed,cancelled"`
	Tenant      string       `json:"tenant,omitempty" doc:"tenant that owns it"`
	Reason      string       `json:"reason,omitempty" doc:"why it is still queued or collecting, or does not progress"`
	ExitCode    int          `json:"exit_code" nullable:"true" doc:"exit status of its command, as for a run; null until it has ended"`
	Signal      string       `json:"signal,omitempty" doc:"the signal that ended its command, such as SIGTERM"`
	TimedOut    bool         `json:"timed_out,omitempty"`
	OutOfMemory *OutOfMemory `json:"out_of_memory,omitempty" doc:"the kernel killed processes of its command because memory ran out"`
	Error       *Error       `json:"error,omitempty" doc:"why its command did not complete, or its outputs are incomplete"`
	Attempts    int          `json:"attempts,omitempty" doc:"number of attempts; it starts again if its machine fails"`
	ComputerID  ComputerID   `json:"computer_id,omitempty" doc:"for the last attempt"`
	RunID       RunID        `json:"run_id,omitempty" doc:"for the last attempt"`
	Outputs     *JobOutputs  `json:"outputs,omitempty" doc:"set when the outputs are collected"`
	Artifacts   []ArtifactID `json:"artifacts,omitempty" doc:"the outputs that are published"`
	CreatedAt   time.Time    `json:"created_at"`
	StartedAt   *time.Time   `json:"started_at,omitempty" doc:"start of the last attempt"`
	EndedAt     *time.Time   `json:"ended_at,omitempty"`
	Steps       JobSteps     `json:"steps" doc:"durations of the last attempt"`
}

// MarshalJSON writes a null exit status before there is one.
func (j Job) MarshalJSON() ([]byte, error) {
	type plain Job
	return asJSON(struct {
		plain
		ExitCode *int `json:"exit_code"`
	}{plain(j), shownExit(j.ExitCode, j.State == JobCollecting && j.Error == nil || j.State == JobDone)})
}

// JobOutputs summarises the outputs of a job.
type JobOutputs struct {
	Files int64 `json:"files" doc:"everything except directories"`
	Bytes int64 `json:"bytes" doc:"sum of the sizes of files"`
	Kept  bool  `json:"kept" doc:"the outputs can be fetched, for 24 hours or until they are released"`
}

// JobSteps are the durations of a job's steps.
type JobSteps struct {
	CreateMS  int64 `json:"create_ms,omitempty" doc:"creating the computer"`
	RunMS     int64 `json:"run_ms,omitempty" doc:"running the command"`
	CollectMS int64 `json:"collect_ms,omitempty" doc:"collecting the outputs"`
	DeleteMS  int64 `json:"delete_ms,omitempty" doc:"deleting the computer"`
}

// JobInputs are uploaded files that jobs start with. Each job gets a fork of them.
type JobInputs struct {
	ID JobInputsID `json:"id"`
	TransferReport
}
