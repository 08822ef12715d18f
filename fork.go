package holt

// ForkPoint says what a workspace was forked from.
type ForkPoint struct {
	ID         WorkspaceID `json:"id" doc:"the workspace it was forked from"`
	Name       string      `json:"name,omitempty" doc:"its name; absent once it is deleted"`
	Was        string      `json:"was,omitempty" doc:"the name that it had when it was deleted"`
	Checkpoint string      `json:"checkpoint" doc:"the checkpoint that both had then"`
}

// ForkSpec says what to fork and how often.
type ForkSpec struct {
	At    string `json:"at,omitempty" doc:"a checkpoint; default: the present, which gets one"`
	Name  string `json:"name,omitempty" doc:"of the fork, or what the names of several begin with; default: the workspace's, and a number"`
	Count int    `json:"count,omitempty" minimum:"1" maximum:"100" doc:"how many forks to make of the same checkpoint; default 1"`
}

// Forked lists the forks that were asked for, those that could not be made too.
type Forked struct {
	Workspaces []ForkedWorkspace `json:"workspaces" nullable:"false"`
}

// ForkedWorkspace is one fork, or why it was not made.
type ForkedWorkspace struct {
	Name      string     `json:"name"`
	Workspace *Workspace `json:"workspace,omitempty"`
	Error     *Error     `json:"error,omitempty"`
}

// MostForks is how many forks one call makes at most.
const MostForks = 100

// CheckForks refuses a number of forks that one call does not make, with InvalidArgument.
func CheckForks(count int) error {
	if count < 1 || count > MostForks {
		return Errorf(InvalidArgument, "%d forks cannot be made at once", count).WithHint("ask for 1 to %d", MostForks)
	}
	return nil
}

// MergeSpec says what to bring from another workspace.
type MergeSpec struct {
	From   string    `json:"from" doc:"the workspace whose changes are merged: a fork of this one, what it was forked from, or a fork of the same"`
	Paths  OSStrings `json:"paths,omitempty" doc:"only what is, or was, at or below one of these in it; default: everything"`
	DryRun bool      `json:"dry_run,omitempty" doc:"only show what would change"`
	Text   bool      `json:"text,omitempty" doc:"merge text by lines where both changed a file, if that leaves no conflict"`
	Ours   OSStrings `json:"ours,omitempty" doc:"settle conflicts at or below one of these by keeping what stands in the workspace that is merged into; the longest of the paths in ours and theirs counts"`
	Theirs OSStrings `json:"theirs,omitempty" doc:"settle conflicts at or below one of these by taking what the other has; one that this would not settle stays a conflict"`
}

// MergeReport says what a merge did, or would do. Paths are those of the
// workspace that was merged.
type MergeReport struct {
	ChangeReport
	After  string    `json:"after,omitempty" doc:"the checkpoint that was taken right after the merge; absent after a dry run, or when there was nothing to do"`
	Merged OSStrings `json:"merged,omitempty" doc:"files whose text was merged by lines"`
	Ours   OSStrings `json:"ours,omitempty" doc:"conflicts that were settled by keeping what stands here"`
	Theirs OSStrings `json:"theirs,omitempty" doc:"conflicts that were settled by taking what the other has"`
}
