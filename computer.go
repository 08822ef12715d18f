package holt

import (
	"fmt"
	"path"
	"time"
)

// ComputerState is the state of a computer. Stop keeps the disks, pause
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
	Template   string        `json:"template" doc:"template of its root disk"`
	State      ComputerState `json:"state"`
	Reason     string        `json:"reason,omitempty" doc:"reason for the state, if it is not obvious"`
	Engine     string        `json:"engine" doc:"what runs it: qemu-kvm, qemu-tcg, gvisor or local"`
	CPUs       int           `json:"cpus"`
	MemoryMB   int           `json:"memory_mb" doc:"MiB"`
	DiskSizeMB int           `json:"disk_size_mb" doc:"size of the root disk, MiB"`
	// WorkspaceSizeMB is of a workspace that goes with it.
	WorkspaceSizeMB int        `json:"workspace_size_mb,omitempty" doc:"size limit of the workspace that was created with it, MiB; absent: no limit, or an existing workspace"`
	Pending         *Pending   `json:"pending,omitempty" doc:"resize that has not taken effect yet"`
	Workspace       string     `json:"workspace" doc:"name of the workspace mounted at /home/agent"`
	CreatedAt       time.Time  `json:"created_at"`
	StartedAt       *time.Time `json:"started_at,omitempty"`
	BootMS          int64      `json:"boot_ms,omitempty" doc:"duration of the last start, until the guest agent answered, milliseconds"`
	Parent          *Origin    `json:"parent,omitempty" doc:"origin of a fork"`
	Snapshot        SnapshotID `json:"snapshot,omitempty" doc:"the snapshot that it is paused at"`
	LastSnapshot    SnapshotID `json:"last_snapshot,omitempty" doc:"its last snapshot, or the one it was forked from or restored to"`

	IdleTimeout IdleTimeout `json:"idle_timeout" nullable:"true" doc:"idle time after which it is paused, such as 15m; null: never"`
	PausedBy    string      `json:"paused_by,omitempty" doc:"why it was paused: idle, memory (another computer needed it), budget, limit, or the caller"`
	WokenBy     string      `json:"woken_by,omitempty" doc:"what woke it last, such as run: make test"`
	WokenAt     *time.Time  `json:"woken_at,omitempty"`
	WakeMS      int64       `json:"wake_ms,omitempty" doc:"duration of the last wake-up, until the guest agent answered, milliseconds"`
	Job         JobID       `json:"job,omitempty" doc:"the job that it belongs to; it is deleted with the job"`
	Tenant      string      `json:"tenant,omitempty" doc:"tenant that owns it; a fork belongs to the tenant of its parent"`
	Budgets     []Budget    `json:"budgets,omitempty" doc:"budgets that count its use: its own, and those of its ancestors"`
	AtWork      *AtWork     `json:"at_work,omitempty" doc:"the call that is changing it now, which others wait for; only in get and list"`
}

// AtWork is a call that is changing a computer. Other calls that change it wait.
type AtWork struct {
	Verb    string `json:"verb" doc:"such as pause, snapshot or snapshot restore"`
	ForMS   int64  `json:"for_ms" doc:"how long it has been in progress, milliseconds"`
	Waiting int    `json:"waiting,omitempty" doc:"number of calls that wait for it"`
}

// String describes the call, for use within a sentence.
func (w AtWork) String() string {
	return fmt.Sprintf("the %s in progress on it for %s", w.Verb, ShortMS(w.ForMS))
}

// DefaultWorkspaceMB is the default size limit of the workspace of a job, or of a computer whose tenant has a disk limit, MiB.
const DefaultWorkspaceMB = 20480

// ComputerSpec says what computer to create. Zero fields take the defaults.
type ComputerSpec struct {
	Name       string `json:"name,omitempty" doc:"default: an automatic name"`
	Template   string `json:"template,omitempty" doc:"default: base"`
	Engine     string `json:"engine,omitempty" doc:"what runs it: qemu or gvisor; default: what its template needs, or else the daemon's default. It stays the same for the computer's life"`
	CPUs       int    `json:"cpus,omitempty" doc:"default: 1"`
	MemoryMB   int    `json:"memory_mb,omitempty" doc:"MiB; default: 1024"`
	DiskSizeMB int    `json:"disk_size_mb,omitempty" doc:"MiB; default: 10240"`
	Workspace  string `json:"workspace,omitempty" doc:"an existing workspace to mount; default: a new one with the computer's name"`
	// WorkspaceSizeMB is of a new workspace only.
	WorkspaceSizeMB int `json:"workspace_size_mb,omitempty" doc:"size limit of its new workspace, MiB; default: none, or 20480 if the tenant has a disk limit. setQuota changes it"`

	IdleTimeout IdleTimeout    `json:"idle_timeout,omitzero" nullable:"true" doc:"idle time after which it is paused, such as 15m; null: never; default: 15m"`
	Network     *NetworkPolicy `json:"network,omitempty" doc:"network policy; default: the internet"`
	SecretsOf   string         `json:"secrets_of,omitempty" doc:"computer whose host secrets are copied; default: none"`
}

// RunState is the state of a run.
type RunState string

// The states of a run.
const (
	RunRunning RunState = "running"
	RunExited  RunState = "exited"
	RunLost    RunState = "lost" // the computer ended first
)

// RunReason says why a run's computer ended during the run.
type RunReason string

// The reasons.
const (
	RunRebooted   RunReason = "rebooted"    // from inside
	RunPoweredOff RunReason = "powered-off" // from inside
	RunCrashed    RunReason = "crashed"     // its kernel panicked
)

// String describes the reason, for use in a sentence about the computer.
func (r RunReason) String() string {
	switch r {
	case RunRebooted:
		return "was rebooted from inside and is starting again"
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
	Env       map[OSString]OSString `json:"env,omitempty" writeOnly:"true" doc:"added to the user's environment; never stored or shown, because it may contain secrets"`
	Secrets   Secrets               `json:"secrets,omitempty" writeOnly:"true" doc:"also added to the environment; values of at least 4 bytes are shown as *** in the run's output and record"`
	Cwd       OSString              `json:"cwd,omitempty" doc:"absolute; default: the workspace, /home/agent"`
	User      string                `json:"user,omitempty" doc:"Linux user; default: agent"`
	Stdin     bool                  `json:"stdin,omitempty" doc:"input will be sent; default: standard input is /dev/null"`
	TimeoutMS int64                 `json:"timeout_ms,omitempty" doc:"time after which all its processes get SIGTERM, then SIGKILL; 0: no timeout"`
	Detached  bool                  `json:"detached,omitempty" doc:"the command does not wait for slow followers: a follower that reads nothing for 30 s may get a gap event. By default the command waits"`
}

// Run is one command in a computer. Files that it changes in the workspace have
// its id as writer.
type Run struct {
	ID          RunID        `json:"id"`
	ComputerID  ComputerID   `json:"computer_id"`
	Schedule    string       `json:"schedule,omitempty" doc:"name of the schedule that started it, which is the writer of its changes"`
	Spec        RunSpec      `json:"spec"`
	State       RunState     `json:"state"`
	ExitCode    int          `json:"exit_code" nullable:"true" doc:"exit status; 128 + signal number if a signal ended it; null until it has exited"`
	Signal      string       `json:"signal,omitempty" doc:"the signal that ended it, such as SIGTERM"`
	TimedOut    bool         `json:"timed_out,omitempty"`
	Reason      RunReason    `json:"reason,omitempty" enum:"rebooted,powered-off,crashed" doc:"why the computer ended during the run"`
	OutOfMemory *OutOfMemory `json:"out_of_memory,omitempty" doc:"the kernel killed processes of the run because memory ran out; independent of the exit status"`
	Background  int          `json:"background,omitempty" doc:"processes of the run that were still alive when it ended; in a get, those still alive now, if the computer answers"`
	StartedAt   time.Time    `json:"started_at"`
	EndedAt     *time.Time   `json:"ended_at,omitempty"`
}

// MarshalJSON writes a null exit status before there is one.
func (r Run) MarshalJSON() ([]byte, error) {
	type plain Run
	return asJSON(struct {
		plain
		ExitCode *int `json:"exit_code"`
	}{plain(r), shownExit(r.ExitCode, r.State == RunExited)})
}

// RunEvent is one event of a run that is followed: output, a gap where output is
// missing, or the end.
type RunEvent struct {
	Kind    RunEventKind `json:"kind" enum:"stdout,stderr,gap,exit"`
	Offset  int64        `json:"offset" doc:"position in the run's output, in bytes of both streams together; to continue, follow from this offset plus the length of data"`
	Data    []byte       `json:"data,omitempty" doc:"output bytes (base64 in JSON)"`
	Dropped int64        `json:"dropped,omitempty" doc:"for gap: number of missing bytes"`
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

// mostLinks is how many symbolic links Linux follows in one path.
const mostLinks = 40

// Follow returns what a path leads to, by a stat that does not follow a symbolic link at its end.
//
// Errors: InvalidArgument (too many links), those of stat.
func Follow(file string, stat func(file string) (FileInfo, error)) (string, FileInfo, error) {
	for range mostLinks {
		info, err := stat(file)
		if err != nil || info.Kind != "symlink" {
			return file, info, err
		}
		target := string(info.Target)
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(file), target)
		}
		file = target
	}
	return file, FileInfo{}, Errorf(InvalidArgument, "%s: too many symlinks", file).WithHint("use the path that the links lead to")
}

// ETag is the entity tag (RFC 9110, section 8.8.3) of the file's content: it changes with its size and modification time.
func (f FileInfo) ETag() string { return fmt.Sprintf(`"%x-%x"`, f.ModTime.UnixNano(), f.Size) }
