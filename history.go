package holt

import (
	"strings"
	"time"
)

// Live names the present wherever a checkpoint's name may stand.
const Live = "live"

// AtCheckpoint makes of a workspace's name one that stands for it as it was at
// a checkpoint, where files are read.
func AtCheckpoint(workspace, checkpoint string) string { return workspace + "@" + checkpoint }

// CutCheckpoint is the inverse of AtCheckpoint; checkpoint is empty for the
// present.
func CutCheckpoint(ref string) (workspace, checkpoint string) {
	workspace, checkpoint, _ = strings.Cut(ref, "@") // no name of a workspace holds one
	return workspace, checkpoint
}

// Checkpoint is a state of a workspace that can be looked at, compared and gone
// back to. The one named live is the present.
type Checkpoint struct {
	ID        int64     `json:"id" doc:"its number, never used again; #ID may stand for the name; 0: the present"`
	Name      string    `json:"name" doc:"unique in its workspace; auto-ID if none was given"`
	Parent    int64     `json:"parent,omitempty" doc:"number of the checkpoint that it descends from; absent: nothing"`
	Auto      bool      `json:"auto,omitempty" doc:"nobody asked for it by name; it goes when it is old"`
	Note      string    `json:"note,omitempty" doc:"why it was taken"`
	Run       string    `json:"run,omitempty" doc:"the run, or the stretch of work in a terminal, before or after which it was taken"`
	Flushed   bool      `json:"flushed,omitempty" doc:"what programs held in memory was written first"`
	Changed   bool      `json:"changed,omitempty" doc:"of the present: something changed since its parent"`
	CreatedAt time.Time `json:"created_at"`
	Files     int64     `json:"files" doc:"regular files, including the two start-up files of a new workspace, which ls does not list"`
	Bytes     int64     `json:"bytes" doc:"sum of their sizes"`
}

// CheckpointSpec says what checkpoint to take.
type CheckpointSpec struct {
	Name string `json:"name,omitempty" doc:"1 to 255 bytes without /; default: automatic, and then it goes when it is old"`
	Note string `json:"note,omitempty" maxLength:"1000" doc:"why it is taken"`
}

// Freed is what deleting a checkpoint frees, or would: what only it can see.
type Freed struct {
	Rows  int64 `json:"rows" doc:"names, attributes and places of bytes in the past, and answers held for mounts"`
	Bytes int64 `json:"bytes" doc:"of content that nothing else refers to"`
}

// Writer is who made a change.
type Writer struct {
	Kind     string `json:"kind,omitempty" doc:"run, terminal, schedule, service, computer, person, token or system; absent: nobody is known"`
	Name     string `json:"name,omitempty"`
	Run      string `json:"run,omitempty" doc:"what it was part of, and is undone with: the run, or the stretch of work in a terminal"`
	Terminal string `json:"terminal,omitempty"`
	Token    string `json:"token,omitempty"`
}

// DiffSpec says which two states of a workspace to compare.
type DiffSpec struct {
	From  string    `json:"from" doc:"a checkpoint, or live; empty: the last checkpoint that somebody named, else the oldest there is"`
	To    string    `json:"to" doc:"likewise; empty: live"`
	Paths OSStrings `json:"paths,omitempty" doc:"only what is, or was, at or below one of these; none: everything"`
}

// ChangeKind says what happened to a path.
type ChangeKind string

// The kinds of changes, in the order in which they are told: done in this
// order they make the one state from the other.
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
	From       OSString   `json:"from,omitempty" doc:"the path before, of what was renamed"`
	Type       string     `json:"type" enum:"file,dir,symlink,fifo,socket,char,block"`
	Content    bool       `json:"content,omitempty" doc:"its bytes, or its target, differ"`
	Metadata   bool       `json:"metadata,omitempty" doc:"mode, owner, time of change or attributes differ"`
	SizeBefore int64      `json:"size_before,omitempty"`
	SizeAfter  int64      `json:"size_after,omitempty"`
	By         Writer     `json:"by,omitzero" doc:"who did it"`
}

// Counts adds changes up.
type Counts struct {
	Deleted  int   `json:"deleted"`
	Renamed  int   `json:"renamed"`
	Created  int   `json:"created"`
	Changed  int   `json:"changed" doc:"with other bytes, under the same name"`
	Metadata int   `json:"metadata" doc:"with the same bytes"`
	Bytes    int64 `json:"bytes" doc:"in what was created or changed"`
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

// RestoreSpec says what to make of a workspace again.
type RestoreSpec struct {
	Checkpoint string    `json:"checkpoint" doc:"name of the checkpoint to go back to"`
	Paths      OSStrings `json:"paths,omitempty" doc:"only what is, or was, at or below one of these; default: everything"`
	DryRun     bool      `json:"dry_run,omitempty" doc:"change nothing, only say what would"`
}

// UndoSpec says which run to take back, or which stretch of work in a terminal.
type UndoSpec struct {
	Run    string    `json:"run,omitempty" doc:"id of a run or of a stretch of work in a terminal; or a terminal's id or name: the last stretch in it; default: the last run that changed something"`
	Paths  OSStrings `json:"paths,omitempty" doc:"only what is, or was, at or below one of these; default: everything"`
	DryRun bool      `json:"dry_run,omitempty" doc:"change nothing, only say what would"`
}

// ChangeReport says what a restore or an undo did, or would do.
type ChangeReport struct {
	Run       string         `json:"run,omitempty" doc:"the run or stretch that was undone"`
	Before    string         `json:"before,omitempty" doc:"the checkpoint that was taken of the present first; absent after a dry run, or when there was nothing to do"`
	Counts    Counts         `json:"counts"`
	Changes   []Change       `json:"changes" nullable:"false" doc:"from what was to what is; at most 1000, deletions first"`
	Omitted   int            `json:"omitted,omitempty" doc:"how many more changes there are; a diff from before to live has all of them"`
	Conflicts []PathConflict `json:"conflicts,omitempty" doc:"what was left as it is"`
	Unflushed bool           `json:"unflushed,omitempty" doc:"the computer that has the workspace did not write what its programs held in memory, and some of that may have been lost"`
}

// Receipt says what a run, or a stretch of work in a terminal, changed in its
// workspace.
type Receipt struct {
	Run     string   `json:"run" doc:"its id"`
	Before  string   `json:"before,omitempty" doc:"the checkpoint that it began with; absent: the empty workspace"`
	After   string   `json:"after,omitempty" doc:"the checkpoint that it left; absent: it changed nothing, or what it left is still the present"`
	Counts  Counts   `json:"counts"`
	Changes []Change `json:"changes" nullable:"false" doc:"at most 1000, deletions first"`
	Omitted int      `json:"omitted,omitempty" doc:"how many more changes there are; a diff from before to after has all of them"`
}

// PathEvent is one state of a file or directory, from one change of it to the
// next. Changes by the same writer between two checkpoints are one.
type PathEvent struct {
	At         *time.Time `json:"at,omitempty" doc:"when it became so: of what a restore brought back, the time of the restore, by the checkpoint taken before it; absent for a removal"`
	By         Writer     `json:"by,omitzero" doc:"who changed it"`
	Author     Writer     `json:"author,omitzero" doc:"whose bytes they are: a restore changes a file but is not its author"`
	Size       int64      `json:"size"`
	Gone       bool       `json:"gone,omitempty" doc:"it was removed"`
	Checkpoint string     `json:"checkpoint,omitempty" doc:"the first that sees this state; absent: none yet"`
}
