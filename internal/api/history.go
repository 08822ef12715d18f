package api

import (
	"fmt"

	"holt"
)

// OneCheckpoint names a checkpoint of a workspace in a path.
type OneCheckpoint struct {
	OneWorkspace
	Checkpoint string `path:"checkpoint" maxLength:"255" doc:"name, or # and its number"`
}

// Inputs of calls about the past of workspaces.
type (
	CheckpointsOf struct {
		OneWorkspace
		Paging
	}
	CheckpointRemoval struct {
		OneCheckpoint
		Keyed
		DryRun bool `query:"dry_run" doc:"delete nothing, only say what that would free"`
	}
	TwoPoints struct {
		OneWorkspace
		From string   `query:"from" maxLength:"255" doc:"a checkpoint, or live; default: the last checkpoint that was given a name, else the oldest there is"`
		To   string   `query:"to" maxLength:"255" doc:"likewise; default: live"`
		Path []string `query:"path,explode" maxItems:"1000" doc:"only what is, or was, at or below one of these; default: everything"`
	}
	WorkspaceRestore struct {
		WorkspaceBody[holt.RestoreSpec]
	}
	WorkspaceUndo struct{ WorkspaceBody[holt.UndoSpec] }
	PastFile      struct {
		OneWorkspace
		Path string `query:"path" required:"true" maxLength:"4096" doc:"absolute, from the workspace's top"`
	}
	ReceiptOf struct {
		OneWorkspace
		Run string `path:"run" is:"work" maxLength:"255" doc:"id of a run or of a terminal session; or a terminal's id or name: the last session in it"`
	}
)

// Parse checks that a checkpoint is named, and cleans paths.
func (in *WorkspaceRestore) Parse() error {
	if in.Body.Checkpoint == "" {
		return holt.Errorf(holt.InvalidArgument, "the name of the checkpoint is missing").WithHint("list the checkpoints and use the name of one")
	}
	return cleanAll(&in.Body.Paths)
}

// Parse cleans paths, and makes the run an id.
func (in *WorkspaceUndo) Parse() (err error) {
	if in.Body.Run != "" {
		if in.Body.Run, err = holt.ParseWork(in.Body.Run); err != nil {
			return err
		}
	}
	return cleanAll(&in.Body.Paths)
}

// Parse makes the run an id.
func (in *ReceiptOf) Parse() (err error) {
	in.Run, err = holt.ParseWork(in.Run)
	return err
}

var inHistory = Tag("history")

// The past of workspaces. The changes of one path show other paths, so all of these need the whole workspace.
var (
	CreateCheckpoint = Post[WorkspaceBody[holt.CheckpointSpec], holt.Checkpoint]("/v1/workspaces/{workspace}/checkpoints", "createCheckpoint", "Take a checkpoint", Need{On: Content, Change: true}, inHistory, Created,
		Doc("It writes one record, whatever the workspace's size. A checkpoint with a name is kept until deleted."))
	ListCheckpoints = GetList[CheckpointsOf]("/v1/workspaces/{workspace}/checkpoints", "listCheckpoints", "List checkpoints, oldest first", Need{On: Content}, func(c holt.Checkpoint) string { return fmt.Sprintf("%020d", c.ID) }, inHistory,
		Doc("They are a tree: parent is the checkpoint that each descends from."))
	GetCheckpoint    = Get[OneCheckpoint, holt.Checkpoint]("/v1/workspaces/{workspace}/checkpoints/{checkpoint}", "getCheckpoint", "Get a checkpoint, or live, the present", lookWorkspace, inHistory)
	DeleteCheckpoint = Delete[CheckpointRemoval, holt.Freed]("/v1/workspaces/{workspace}/checkpoints/{checkpoint}", "deleteCheckpoint", "Delete a checkpoint", changeWorkspace, inHistory,
		Doc("The answer says what that freed: content that only this checkpoint had. A run right before or after it can no longer be undone."))
	DiffWorkspace = Get[TwoPoints, Stream]("/v1/workspaces/{workspace}/diff", "diffWorkspace", "Compare two states of a workspace", lookWorkspace, inHistory, Lines[holt.Change]("changes, one a line"),
		Doc("One Change a line, all of them: deletions first, then what was renamed, created, changed, and changed without its bytes. The content of a directory does not count as changed when the directory is renamed."))
	DiffText = Get[TwoPoints, Stream]("/v1/workspaces/{workspace}/diff/text", "diffText", "Compare the text of files in two states", lookWorkspace, inHistory, Audited(AuditAll), Bytes("text/x-diff", "unified diffs"),
		Doc("Unified diffs, one file after the other in the order of diffWorkspace. Files that are not text, and those above 16 MiB or 1,048,576 lines, are only named."))
	DiffPoints       = Get[TwoPoints, holt.DiffSpec]("/v1/workspaces/{workspace}/diff/points", "diffPoints", "Get the two states that a diff compares", lookWorkspace, inHistory)
	RestoreWorkspace = Post[WorkspaceRestore, holt.ChangeReport]("/v1/workspaces/{workspace}/restore", "restoreWorkspace", "Restore a workspace, or paths of it, from a checkpoint", changeWorkspace, inHistory,
		Doc("The current state gets a checkpoint first: nothing is lost. The restore is atomic; files keep their inode numbers and times. Mounts see the change at once."))
	UndoRun = Post[WorkspaceUndo, holt.ChangeReport]("/v1/workspaces/{workspace}/undo", "undoRun", "Undo the changes of one run, or of one terminal session, and keep later changes", changeWorkspace, inHistory,
		Doc("Files that were changed again later are kept and reported as conflicts. The current state gets a checkpoint first."))
	FileHistory = Get[PastFile, holt.Page[holt.PathEvent]]("/v1/workspaces/{workspace}/history", "fileHistory", "List the changes of a file or directory, newest first", lookWorkspace, inHistory,
		Doc("Also of a file that is deleted. All of them are in one page."))
	BlameFile        = Get[PastFile, holt.Writer]("/v1/workspaces/{workspace}/blame", "blameFile", "Get the last writer of a file", lookWorkspace, inHistory)
	WorkspaceReceipt = Get[ReceiptOf, holt.Receipt]("/v1/workspaces/{workspace}/receipts/{run}", "getReceipt", "Say what a run, or work in a terminal, changed in a workspace", lookWorkspace, inHistory,
		Doc("Also of a run whose computer is deleted. A run that changed nothing has an empty receipt."))
)
