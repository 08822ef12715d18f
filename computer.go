package holt

import (
	"fmt"
	"time"
)

// ComputerState is where a computer is in its life. Stop keeps the disks, pause
// keeps memory too; delete removes the computer.
type ComputerState string

// The states of a computer.
const (
	ComputerCreating ComputerState = "creating"
	ComputerRunning  ComputerState = "running"
	ComputerPausing  ComputerState = "pausing"
	ComputerPaused   ComputerState = "paused"
	ComputerResuming ComputerState = "resuming"
	ComputerStopping ComputerState = "stopping"
	ComputerStopped  ComputerState = "stopped"
	ComputerStarting ComputerState = "starting"
	ComputerDeleting ComputerState = "deleting"
	ComputerFailed   ComputerState = "failed"
)

// Computer is a Linux machine with two disks: a bounded root disk and a
// workspace.
type Computer struct {
	ID         ComputerID    `json:"id"`
	Name       string        `json:"name" doc:"unique among computers; a DNS label"`
	Template   string        `json:"template" doc:"the recipe its root disk was made from"`
	State      ComputerState `json:"state"`
	Reason     string        `json:"reason,omitempty" doc:"why it is in this state, when that is not obvious"`
	Engine     string        `json:"engine" doc:"what runs it: qemu-kvm, qemu-tcg or local"`
	CPUs       int           `json:"cpus"`
	MemoryMB   int           `json:"memory_mb" doc:"MiB"`
	DiskSizeMB int           `json:"disk_size_mb" doc:"size of the root disk, MiB"`
	// WorkspaceSizeMB is of a workspace that goes with it.
	WorkspaceSizeMB int        `json:"workspace_size_mb,omitempty" doc:"what the workspace that was made with it may hold, MiB; absent: as much as it likes, or it is one that was there"`
	Pending         *Pending   `json:"pending,omitempty" doc:"what of its shape is to change"`
	Workspace       string     `json:"workspace" doc:"name of the workspace mounted at /home/agent"`
	CreatedAt       time.Time  `json:"created_at"`
	StartedAt       *time.Time `json:"started_at,omitempty"`
	BootMS          int64      `json:"boot_ms,omitempty" doc:"last start: from the machine's launch to the agent's first answer, milliseconds"`
	Parent          *Origin    `json:"parent,omitempty" doc:"what it was forked from"`
	Snapshot        SnapshotID `json:"snapshot,omitempty" doc:"what it is paused at"`
	LastSnapshot    SnapshotID `json:"last_snapshot,omitempty" doc:"its last snapshot, or the one that it was forked from or restored to"`

	IdleTimeout IdleTimeout `json:"idle_timeout" nullable:"true" doc:"after how long without a use it is paused, as 15m; null: never"`
	PausedBy    string      `json:"paused_by,omitempty" doc:"who paused it: idle, memory (another computer needed it), budget, limit, or whoever asked for it"`
	WokenBy     string      `json:"woken_by,omitempty" doc:"what woke it last, as run: make test"`
	WokenAt     *time.Time  `json:"woken_at,omitempty"`
	WakeMS      int64       `json:"wake_ms,omitempty" doc:"how long that took: from the call that woke it until its agent answered, milliseconds"`
	Job         JobID       `json:"job,omitempty" doc:"the job that it was made for, with which it goes"`
	Tenant      string      `json:"tenant,omitempty" doc:"whose limits it counts for; a fork is its parent's"`
	Budgets     []Budget    `json:"budgets,omitempty" doc:"that count what it uses: its own, and those of what it was forked from"`
	AtWork      *AtWork     `json:"at_work,omitempty" doc:"the call that changes it now, for which others wait; only of a get and a list"`
}

// AtWork is a call that changes a computer; whoever changes it, too, waits for its end.
type AtWork struct {
	Verb    string `json:"verb" doc:"as pause, snapshot or snapshot restore"`
	ForMS   int64  `json:"for_ms" doc:"how long it has been at work, milliseconds"`
	Waiting int    `json:"waiting,omitempty" doc:"how many calls wait for it"`
}

// String is for the middle of a sentence.
func (w AtWork) String() string {
	return fmt.Sprintf("the %s that has been at work on it for %s", w.Verb, ShortMS(w.ForMS))
}

// DefaultWorkspaceMB is what a computer's workspace may hold when nothing is asked for and a limit counts disks, or it is a job's, MiB.
const DefaultWorkspaceMB = 20480

// ComputerSpec says what computer to create. Zero fields take the defaults.
type ComputerSpec struct {
	Name       string `json:"name,omitempty" doc:"default: a scientist's name"`
	Template   string `json:"template,omitempty" doc:"default: base"`
	CPUs       int    `json:"cpus,omitempty" doc:"default: 1"`
	MemoryMB   int    `json:"memory_mb,omitempty" doc:"MiB; default: 1024"`
	DiskSizeMB int    `json:"disk_size_mb,omitempty" doc:"MiB; default: 10240"`
	Workspace  string `json:"workspace,omitempty" doc:"an existing workspace to mount; default: a new one with the computer's name"`
	// WorkspaceSizeMB is of a new workspace only.
	WorkspaceSizeMB int `json:"workspace_size_mb,omitempty" doc:"what its new workspace may hold, MiB; default: as much as it likes, or 20480 where a limit counts disks. setQuota changes it"`

	IdleTimeout IdleTimeout    `json:"idle_timeout,omitzero" nullable:"true" doc:"after how long without a use it is paused, as 15m; null: never; default: 15m"`
	Network     *NetworkPolicy `json:"network,omitempty" doc:"what it may reach; default: the internet"`
	SecretsOf   string         `json:"secrets_of,omitempty" doc:"a computer whose host secrets it gets as they are now; default: it has none"`
}

// RunState is where a run is in its life.
type RunState string

// The states of a run.
const (
	RunRunning RunState = "running"
	RunExited  RunState = "exited"
	RunLost    RunState = "lost" // the computer ended under it
)

// RunReason says what became of a run's computer as the run ended.
type RunReason string

// The reasons.
const (
	RunRebooted   RunReason = "rebooted"    // from inside
	RunPoweredOff RunReason = "powered-off" // from inside
	RunCrashed    RunReason = "crashed"     // its kernel panicked
)

// String is for the middle of a sentence about the computer.
func (r RunReason) String() string {
	switch r {
	case RunRebooted:
		return "was rebooted from inside; it starts again by itself"
	case RunPoweredOff:
		return "was powered off from inside"
	case RunCrashed:
		return "crashed: its kernel panicked"
	}
	return string(r)
}

// RunSpec says what to run. Exactly one of Command and Argv is set.
type RunSpec struct {
	Command   OSString              `json:"command,omitempty" doc:"a shell command, run by /bin/bash after the start-up files of a login"`
	Argv      OSStrings             `json:"argv,omitempty" doc:"a program and its arguments, run without a shell"`
	Env       map[OSString]OSString `json:"env,omitempty" writeOnly:"true" doc:"added to the user's environment; never kept or shown, since it may hold secrets"`
	Secrets   Secrets               `json:"secrets,omitempty" writeOnly:"true" doc:"added to the environment too; their values, of at least 4 bytes, show as *** in the run's output and record"`
	Cwd       OSString              `json:"cwd,omitempty" doc:"absolute; default: the workspace, /home/agent"`
	User      string                `json:"user,omitempty" doc:"Linux user; default: agent"`
	Stdin     bool                  `json:"stdin,omitempty" doc:"input will be sent; otherwise standard input is /dev/null"`
	TimeoutMS int64                 `json:"timeout_ms,omitempty" doc:"after this the whole tree gets SIGTERM, then SIGKILL; 0: none"`
	Detached  bool                  `json:"detached,omitempty" doc:"the command does not wait for its followers: one that reads nothing for 30 s may get a gap event. Without it the command waits while a follower does not read"`
}

// Run is one command in a computer: what was asked and how it ended. It is
// also a writer: what it changes in the workspace carries its id.
type Run struct {
	ID          RunID        `json:"id"`
	ComputerID  ComputerID   `json:"computer_id"`
	Schedule    string       `json:"schedule,omitempty" doc:"name of the schedule that started it; what it changes is the schedule's"`
	Spec        RunSpec      `json:"spec"`
	State       RunState     `json:"state"`
	ExitCode    int          `json:"exit_code" nullable:"true" doc:"exit status; 128 + signal number when a signal ended it; null until it has exited"`
	Signal      string       `json:"signal,omitempty" doc:"the signal that ended it, as SIGTERM"`
	TimedOut    bool         `json:"timed_out,omitempty"`
	Reason      RunReason    `json:"reason,omitempty" enum:"rebooted,powered-off,crashed" doc:"what happened to the computer when the run ended"`
	OutOfMemory *OutOfMemory `json:"out_of_memory,omitempty" doc:"the kernel killed processes of the run because memory ran out; it is set whatever the exit status is"`
	Background  int          `json:"background,omitempty" doc:"processes of the run still alive when it ended; of a single run, those left now as far as its computer answers"`
	StartedAt   time.Time    `json:"started_at"`
	EndedAt     *time.Time   `json:"ended_at,omitempty"`
}

// MarshalJSON shows no exit status before there is one.
func (r Run) MarshalJSON() ([]byte, error) {
	type plain Run
	return asJSON(struct {
		plain
		ExitCode *int `json:"exit_code"`
	}{plain(r), shownExit(r.ExitCode, r.State == RunExited)})
}

// RunEvent is one step of a run as it is followed: output, a gap where output
// was dropped because nobody read it in time or is not kept, or the end.
type RunEvent struct {
	Kind    RunEventKind `json:"kind" enum:"stdout,stderr,gap,exit"`
	Offset  int64        `json:"offset" doc:"position in the run's output, bytes of both streams together; follow again from here plus the data's length"`
	Data    []byte       `json:"data,omitempty" doc:"output bytes (base64 in JSON)"`
	Dropped int64        `json:"dropped,omitempty" doc:"for gap: bytes that are gone"`
	Run     *Run         `json:"run,omitempty" doc:"for exit: the ended run"`
}

// RunEventKind says what a [RunEvent] is.
type RunEventKind string

// The kinds of run events.
const (
	RunStdout RunEventKind = "stdout"
	RunStderr RunEventKind = "stderr"
	RunGap    RunEventKind = "gap"
	RunExit   RunEventKind = "exit"
)

// FileInfo describes one file as the guest or the workspace sees it.
type FileInfo struct {
	Path    OSString  `json:"path"`
	Name    OSString  `json:"name"`
	Kind    string    `json:"kind" enum:"file,dir,symlink,fifo,socket,char,block"`
	Size    int64     `json:"size" doc:"bytes"`
	Mode    uint32    `json:"mode" doc:"permission bits with set-id and sticky, as chmod takes them"`
	UID     uint32    `json:"uid"`
	GID     uint32    `json:"gid"`
	ModTime time.Time `json:"mtime"`
	Target  OSString  `json:"target,omitempty" doc:"for symlinks"`
}

// ETag is the entity tag (RFC 9110, section 8.8.3) of the file's content: it changes with its size and modification time.
func (f FileInfo) ETag() string { return fmt.Sprintf(`"%x-%x"`, f.ModTime.UnixNano(), f.Size) }
