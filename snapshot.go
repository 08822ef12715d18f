package holt

import "time"

// Snapshot is a computer at one instant: its memory, root disk and workspace,
// kept together under one id. A computer can be forked from it.
type Snapshot struct {
	ID            SnapshotID   `json:"id"`
	Name          string       `json:"name,omitempty" doc:"unique among the computer's snapshots; absent if nobody gave one"`
	Kind          SnapshotKind `json:"kind" enum:"manual,fork,pause" doc:"why it was taken; a snapshot stays until it is deleted, of the others the last few"`
	ComputerID    ComputerID   `json:"computer_id" doc:"whose snapshot it is"`
	Computer      string       `json:"computer" doc:"its name"`
	Parent        SnapshotID   `json:"parent,omitempty" doc:"the snapshot before: that computer's last one, or the one that it was forked from or restored to"`
	Workspace     string       `json:"workspace" doc:"name of the workspace its files are in: its computer's, or one that was left by a restore since"`
	Stopped       bool         `json:"stopped,omitempty" doc:"its computer was stopped: it has a root disk and a workspace, and no memory"`
	CreatedAt     time.Time    `json:"created_at"`
	CPUs          int          `json:"cpus"`
	MemoryMB      int          `json:"memory_mb" doc:"MiB"`
	DiskSizeMB    int          `json:"disk_size_mb,omitempty" doc:"size of the root disk, MiB; absent of snapshots of before this was written down"`
	Bytes         int64        `json:"bytes" doc:"what its memory takes on the host's disk now; little once it is in the archive only"`
	Archived      bool         `json:"archived,omitempty" doc:"the archive has all of it: its memory may go from the host's disk, and is fetched when it is needed"`
	ArchivedBytes int64        `json:"archived_bytes,omitempty" doc:"by how much storing it made the archive grow: what was there already, as of another snapshot, is not counted again"`
	PauseMS       float64      `json:"pause_ms" doc:"how long the computer stood still for it, milliseconds; for a pause, until all was copied"`
	Throttle      int          `json:"throttle,omitempty" doc:"percent by which its processors were held back at last, since they changed memory faster than it could be copied"`
	Forced        bool         `json:"forced,omitempty" doc:"even so it changed too fast: in the end the computer stood still for all that was left"`
	Forks         []Dependent  `json:"forks,omitempty" doc:"computers that were forked from it; they do not need it any more"`
}

// SnapshotKind says why a snapshot was taken.
type SnapshotKind string

// The kinds of snapshots.
const (
	SnapshotManual  SnapshotKind = "manual" // requested; kept until it is deleted
	SnapshotOfFork  SnapshotKind = "fork"     // a running computer was forked
	SnapshotOfPause SnapshotKind = "pause"    // a computer was paused
)

// Dependent is a computer that came from a snapshot.
type Dependent struct {
	ID   ComputerID `json:"id"`
	Name string     `json:"name"`
}

// NamedSnapshot is a snapshot that is spoken of.
type NamedSnapshot struct {
	ID   SnapshotID `json:"id"`
	Name string     `json:"name,omitempty" doc:"absent if nobody gave one"`
}

// DeletedComputer says what went with a computer, and what came from it.
type DeletedComputer struct {
	Snapshots []NamedSnapshot `json:"snapshots,omitempty" doc:"its snapshots, which went with it, oldest first"`
	Schedules []string        `json:"schedules,omitempty" doc:"names of its schedules, which went with it"`
	Forks     []Dependent     `json:"forks,omitempty" doc:"computers that were forked from it, which go on"`
}

// Origin says what a computer was forked from.
type Origin struct {
	ID       ComputerID `json:"id" doc:"the computer it was forked from"`
	Name     string     `json:"name,omitempty" doc:"its name; absent once it is deleted"`
	Was      string     `json:"was,omitempty" doc:"the name that it had when it was deleted"`
	Snapshot SnapshotID `json:"snapshot" doc:"the snapshot it began with"`
}

// SnapshotSpec says how to call a snapshot.
type SnapshotSpec struct {
	Name string `json:"name,omitempty" doc:"a DNS label, unique among the computer's snapshots; default: none, it has its id"`
}

// SnapshotRestoreSpec says what a restore makes of the present.
type SnapshotRestoreSpec struct {
	Name string `json:"name,omitempty" doc:"of the snapshot that the present becomes, a DNS label; default: before-restore, or that and a number"`
}

// RestoredComputer is a computer that went back to a snapshot.
type RestoredComputer struct {
	Computer Computer `json:"computer"`
	Present  Snapshot `json:"present" doc:"what it was until now, which stays until it is deleted; to restore that undoes this. The snapshot itself, where the computer was paused at it and only went on"`
}

// ComputerForkSpec says what to fork and how often.
type ComputerForkSpec struct {
	At      string         `json:"at,omitempty" doc:"a snapshot of the computer, by name or id, or COMPUTER@SNAPSHOT; default: now, or what it is paused at"`
	Name    string         `json:"name,omitempty" doc:"of the fork, or what the names of several begin with; default: the computer's, and a number"`
	Count   int            `json:"count,omitempty" minimum:"1" maximum:"100" doc:"how many forks to make of the same snapshot; default 1"`
	Network *NetworkPolicy `json:"network,omitempty" doc:"what the forks may reach; default: what their computer may now"`
	// WithSecrets gives them their computer's host secrets as well.
	WithSecrets bool `json:"with_secrets,omitempty" doc:"give the forks the computer's host secrets as they are now; default: they have none"`
}

// ForkedComputers lists the forks that were asked for, those that could not be
// made too.
type ForkedComputers struct {
	Computers []ForkedComputer `json:"computers" nullable:"false"`
	Snapshot  SnapshotID       `json:"snapshot,omitempty" doc:"what they are forks of"`
}

// ForkedComputer is one fork, which runs, or why it was not made.
type ForkedComputer struct {
	ID    ComputerID `json:"id,omitempty"`
	Name  string     `json:"name,omitempty"`
	Error *Error     `json:"error,omitempty"`
}

// SnapshotFreed says what deleting a snapshot did.
type SnapshotFreed struct {
	Bytes     int64       `json:"bytes" doc:"what the host's disk got back, without what a workspace took"`
	Archived  int64       `json:"archived_bytes,omitempty" doc:"what storing it had added to the archive, which gets it back within two hours, but for what other snapshots need"`
	Forks     []Dependent `json:"forks,omitempty" doc:"computers that were forked from it; what they share with it stays as long as they need it"`
	Workspace string      `json:"workspace,omitempty" doc:"a workspace that a restore had left, and that went with the last snapshot in it"`
}
