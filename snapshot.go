package holt

import "time"

// Snapshot is the saved state of a computer at one instant: memory, root disk and
// workspace. Computers can be restored to it and forked from it.
type Snapshot struct {
	ID            SnapshotID   `json:"id"`
	Name          string       `json:"name,omitempty" doc:"unique among the computer's snapshots; absent if it has none"`
	Kind          SnapshotKind `json:"kind" enum:"manual,fork,pause" doc:"why it was taken; manual ones are kept until they are deleted, of the others the last three"`
	ComputerID    ComputerID   `json:"computer_id" doc:"the computer"`
	Computer      string       `json:"computer" doc:"its name"`
	Parent        SnapshotID   `json:"parent,omitempty" doc:"the previous snapshot: the computer's last one, or the one it was forked from or restored to"`
	Workspace     string       `json:"workspace" doc:"name of the workspace with its files: the computer's, or one that a later restore replaced"`
	Stopped       bool         `json:"stopped,omitempty" doc:"the computer was stopped, so the snapshot has no memory"`
	CreatedAt     time.Time    `json:"created_at"`
	CPUs          int          `json:"cpus"`
	MemoryMB      int          `json:"memory_mb" doc:"MiB"`
	DiskSizeMB    int          `json:"disk_size_mb,omitempty" doc:"size of the root disk, MiB"`
	Bytes         int64        `json:"bytes" doc:"disk space of its memory on the host now; little if the memory is only in the archive"`
	Archived      bool         `json:"archived,omitempty" doc:"it is completely in the archive; its memory can leave the host's disk and is fetched when needed"`
	ArchivedBytes int64        `json:"archived_bytes,omitempty" doc:"by how much it made the archive grow; content that the archive already had does not count"`
	PauseMS       float64      `json:"pause_ms" doc:"how long the computer was halted, milliseconds; for a pause, until all memory was copied"`
	Throttle      int          `json:"throttle,omitempty" doc:"percent by which its processors were throttled because memory changed faster than it could be copied"`
	Forced        bool         `json:"forced,omitempty" doc:"memory still changed too quickly, so the rest was copied while the computer was halted"`
	Forks         []Dependent  `json:"forks,omitempty" doc:"computers that were forked from it; they no longer depend on it"`
}

// SnapshotKind says why a snapshot was taken.
type SnapshotKind string

// The kinds of snapshots.
const (
	SnapshotManual  SnapshotKind = "manual" // requested; kept until it is deleted
	SnapshotOfFork  SnapshotKind = "fork"   // taken by a fork of a running computer
	SnapshotOfPause SnapshotKind = "pause"  // taken by a pause
)

// Dependent is a computer that was forked from a snapshot.
type Dependent struct {
	ID   ComputerID `json:"id"`
	Name string     `json:"name"`
}

// NamedSnapshot identifies a snapshot.
type NamedSnapshot struct {
	ID   SnapshotID `json:"id"`
	Name string     `json:"name,omitempty" doc:"absent if it has none"`
}

// DeletedComputer lists what was deleted with a computer, and its forks.
type DeletedComputer struct {
	Snapshots []NamedSnapshot `json:"snapshots,omitempty" doc:"snapshots that were deleted with it, oldest first"`
	Schedules []string        `json:"schedules,omitempty" doc:"names of schedules that were deleted with it"`
	Forks     []Dependent     `json:"forks,omitempty" doc:"its forks, which are kept"`
}

// Origin is the origin of a forked computer.
type Origin struct {
	ID       ComputerID `json:"id" doc:"the parent computer"`
	Name     string     `json:"name,omitempty" doc:"its name; absent if it is deleted"`
	Was      string     `json:"was,omitempty" doc:"its name when it was deleted"`
	Snapshot SnapshotID `json:"snapshot" doc:"the snapshot that it was created from"`
}

// SnapshotSpec describes a snapshot to take.
type SnapshotSpec struct {
	Name string `json:"name,omitempty" doc:"a DNS label, unique among the computer's snapshots; default: none"`
}

// SnapshotRestoreSpec describes a restore.
type SnapshotRestoreSpec struct {
	Name string `json:"name,omitempty" doc:"name of the snapshot of the current state, a DNS label; default: before-restore, or that with a number"`
}

// RestoredComputer is the result of a restore.
type RestoredComputer struct {
	Computer Computer `json:"computer"`
	Present  Snapshot `json:"present" doc:"snapshot of the state before the restore, kept until it is deleted; restore it to revert. If the computer was paused at the restored snapshot, this is that snapshot"`
}

// ComputerForkSpec describes forks of a computer to create.
type ComputerForkSpec struct {
	At      string         `json:"at,omitempty" doc:"a snapshot of the computer: a name, an id, or COMPUTER@SNAPSHOT; default: its current state"`
	Name    string         `json:"name,omitempty" doc:"name of the fork, or prefix of the names of several; default: the computer's name with a number"`
	Count   int            `json:"count,omitempty" minimum:"1" maximum:"100" doc:"number of forks; default: 1"`
	Network *NetworkPolicy `json:"network,omitempty" doc:"network policy of the forks; default: that of the computer"`
	// WithSecrets copies the computer's host secrets.
	WithSecrets bool `json:"with_secrets,omitempty" doc:"copy the computer's host secrets to the forks; default: none"`
}

// ForkedComputers lists the requested forks, including failed ones.
type ForkedComputers struct {
	Computers []ForkedComputer `json:"computers" nullable:"false"`
	Snapshot  SnapshotID       `json:"snapshot,omitempty" doc:"the snapshot that they were created from"`
}

// ForkedComputer is one running fork, or the error why it was not created.
type ForkedComputer struct {
	ID    ComputerID `json:"id,omitempty"`
	Name  string     `json:"name,omitempty"`
	Error *Error     `json:"error,omitempty"`
}

// SnapshotFreed is the result of deleting a snapshot.
type SnapshotFreed struct {
	Bytes     int64       `json:"bytes" doc:"bytes freed on the host's disk, without workspaces"`
	Archived  int64       `json:"archived_bytes,omitempty" doc:"bytes that the archive frees within two hours, unless other snapshots need them"`
	Forks     []Dependent `json:"forks,omitempty" doc:"its forks; data that they share with it is kept as long as they need it"`
	Workspace string      `json:"workspace,omitempty" doc:"a workspace that an earlier restore replaced, deleted with its last snapshot"`
}
