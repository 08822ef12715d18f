package holt

import (
	"strings"
	"time"
)

// Live stands for the current state wherever a checkpoint's name is expected.
const Live = "live"

// AtCheckpoint returns a reference to a workspace at a checkpoint.
func AtCheckpoint(workspace, checkpoint string) string { return workspace + "@" + checkpoint }

// CutCheckpoint is the inverse of AtCheckpoint; checkpoint is empty for the
// current state.
func CutCheckpoint(ref string) (workspace, checkpoint string) {
	workspace, checkpoint, _ = strings.Cut(ref, "@") // names of workspaces contain no @
	return workspace, checkpoint
}

// Checkpoint is a saved state of a workspace's files. The one named live is the
// current state.
type Checkpoint struct {
	ID        int64     `json:"id" doc:"number, never reused; #ID can be used instead of the name; 0: the current state"`
	Name      string    `json:"name" doc:"unique in its workspace; default: auto-ID"`
	Parent    int64     `json:"parent,omitempty" doc:"number of its predecessor; absent: none"`
	Auto      bool      `json:"auto,omitempty" doc:"automatic; expires"`
	Note      string    `json:"note,omitempty" doc:"a note"`
	Run       string    `json:"run,omitempty" doc:"the run or terminal session before or after which it was taken"`
	Flushed   bool      `json:"flushed,omitempty" doc:"the computer flushed its buffers first"`
	Changed   bool      `json:"changed,omitempty" doc:"for live: files have changed since the parent"`
	CreatedAt time.Time `json:"created_at"`
	Files     int64     `json:"files" doc:"regular files, including the two start-up files of a new workspace, which ls does not list"`
	Bytes     int64     `json:"bytes" doc:"sum of their sizes"`
}

// CheckpointSpec describes a checkpoint to take.
type CheckpointSpec struct {
	Name string `json:"name,omitempty" doc:"1 to 255 bytes without /; default: an automatic checkpoint, which expires"`
	Note string `json:"note,omitempty" maxLength:"1000" doc:"a note, shown in the list"`
}

// Freed is what deleting a checkpoint frees, or would free.
type Freed struct {
	Rows  int64 `json:"rows" doc:"rows of metadata"`
	Bytes int64 `json:"bytes" doc:"bytes of content that nothing else refers to"`
}

// Writer is the author of a change.
type Writer struct {
	Kind     string `json:"kind,omitempty" doc:"run, terminal, schedule, service, computer, person, token or system; absent: unknown"`
	Name     string `json:"name,omitempty"`
	Run      string `json:"run,omitempty" doc:"id of the run or terminal session, for an undo"`
	Terminal string `json:"terminal,omitempty"`
	Token    string `json:"token,omitempty"`
}

// DiffSpec selects two states of a workspace to compare.
type DiffSpec struct {
	From  string    `json:"from" doc:"a checkpoint, or live; default: the last checkpoint with a name, else the oldest"`
	To    string    `json:"to" doc:"a checkpoint, or live; default: live"`
	Paths OSStrings `json:"paths,omitempty" doc:"only files at or below these paths; default: all"`
}

// ChangeKind says what happened to a path.
type ChangeKind string

// The kinds of changes, in the order in which they are listed. Applied in this
// order they turn one state into the other.
const (
	ChangeDeleted  ChangeKind = "deleted"
	ChangeRenamed  ChangeKind = "renamed"
	ChangeCreated  ChangeKind = "created"
	ChangeContent  ChangeKind = "changed"
	ChangeMetadata ChangeKind = "metadata"
)

// Change is one path that differs between two states.
type Change struct {
	Kind       ChangeKind `json:"kind" enum:"deleted,renamed,created,changed,metadata"`
	Path       OSString   `json:"path"`
	From       OSString   `json:"from,omitempty" doc:"the old path of a renamed file"`
	Type       string     `json:"type" enum:"file,dir,symlink,fifo,socket,char,block"`
	Content    bool       `json:"content,omitempty" doc:"the content, or the target of a link, differs"`
	Metadata   bool       `json:"metadata,omitempty" doc:"mode, owner, modification time or attributes differ"`
	SizeBefore int64      `json:"size_before,omitempty"`
	SizeAfter  int64      `json:"size_after,omitempty"`
	By         Writer     `json:"by,omitzero" doc:"author of the change"`
}

// Counts adds changes up.
type Counts struct {
	Deleted  int   `json:"deleted"`
	Renamed  int   `json:"renamed"`
	Created  int   `json:"created"`
	Changed  int   `json:"changed" doc:"files with changed content"`
	Metadata int   `json:"metadata" doc:"files with changed metadata only"`
	Bytes    int64 `json:"bytes" doc:"size of created and changed files"`
}

// Add counts one change.
func (n *Counts) Add(c Change) {
	switch c.Kind {
	case ChangeDeleted:
		n.Deleted++
	case ChangeRenamed:
		n.Renamed++
	case ChangeCreated:
		n.Created++
		n.Bytes += c.SizeAfter
	case ChangeContent:
		n.Changed++
		n.Bytes += c.SizeAfter
	case ChangeMetadata:
		n.Metadata++
	}
}

// Total is how many changes were counted.
func (n Counts) Total() int { return n.Deleted + n.Renamed + n.Created + n.Changed + n.Metadata }

// RestoreSpec describes a restore of a workspace.
type RestoreSpec struct {
	Checkpoint string    `json:"checkpoint" doc:"the checkpoint to restore"`
	Paths      OSStrings `json:"paths,omitempty" doc:"only files at or below these paths; default: all"`
	DryRun     bool      `json:"dry_run,omitempty" doc:"only show what would change"`
}

// UndoSpec selects a run or a terminal session to undo.
type UndoSpec struct {
	Run    string    `json:"run,omitempty" doc:"id of a run or a terminal session, or id or name of a terminal for its last session; default: the last run that changed files"`
	Paths  OSStrings `json:"paths,omitempty" doc:"only files at or below these paths; default: all"`
	DryRun bool      `json:"dry_run,omitempty" doc:"only show what would change"`
}

// ChangeReport is the result of a restore or an undo, or of its dry run.
type ChangeReport struct {
	Run       string         `json:"run,omitempty" doc:"the run or terminal session that was undone"`
	Before    string         `json:"before,omitempty" doc:"the checkpoint of the previous state; absent after a dry run, or if nothing changed"`
	Counts    Counts         `json:"counts"`
	Changes   []Change       `json:"changes" nullable:"false" doc:"at most 1000, deletions first"`
	Omitted   int            `json:"omitted,omitempty" doc:"number of changes that are not listed; a diff from before to live lists all"`
	Conflicts []PathConflict `json:"conflicts,omitempty" doc:"paths that were not changed"`
	Unflushed bool           `json:"unflushed,omitempty" doc:"the computer did not flush its buffers; recent writes may be lost"`
}

// Receipt lists the changes of a run or a terminal session in its workspace.
type Receipt struct {
	Run     string   `json:"run" doc:"id of the run or terminal session"`
	Before  string   `json:"before,omitempty" doc:"the checkpoint before it; absent: the empty workspace"`
	After   string   `json:"after,omitempty" doc:"the checkpoint after it; absent: nothing changed, or its result is still the current state"`
	Counts  Counts   `json:"counts"`
	Changes []Change `json:"changes" nullable:"false" doc:"at most 1000, deletions first"`
	Omitted int      `json:"omitted,omitempty" doc:"number of changes that are not listed; a diff from before to after lists all"`
}

// PathEvent is one earlier state of a file or directory. Changes by the same
// writer between two checkpoints count as one.
type PathEvent struct {
	At         *time.Time `json:"at,omitempty" doc:"time of the change; for a restore, the time of the checkpoint taken before it; absent for a removal"`
	By         Writer     `json:"by,omitzero" doc:"author of the change"`
	Author     Writer     `json:"author,omitzero" doc:"author of the content: a restore changes a file, but does not author it"`
	Size       int64      `json:"size"`
	Gone       bool       `json:"gone,omitempty" doc:"the file was removed"`
	Checkpoint string     `json:"checkpoint,omitempty" doc:"the first checkpoint with this state; absent: none yet"`
}
