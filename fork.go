package holt

// ForkPoint is the origin of a forked workspace.
type ForkPoint struct {
	ID         WorkspaceID `json:"id" doc:"the parent workspace"`
	Name       string      `json:"name,omitempty" doc:"its name; absent if it is deleted"`
	Was        string      `json:"was,omitempty" doc:"its name when it was deleted"`
	Checkpoint string      `json:"checkpoint" doc:"the checkpoint at which it was forked"`
}

// ForkSpec describes forks to create.
type ForkSpec struct {
	At    string `json:"at,omitempty" doc:"a checkpoint; default: the current state, which gets a checkpoint"`
	Name  string `json:"name,omitempty" doc:"name of the fork, or prefix of the names of several; default: the workspace's name with a number"`
	Count int    `json:"count,omitempty" minimum:"1" maximum:"100" doc:"number of forks; default: 1"`
}

// Forked lists the requested forks, including failed ones.
type Forked struct {
	Workspaces []ForkedWorkspace `json:"workspaces" nullable:"false"`
}

// ForkedWorkspace is one fork, or the error why it was not created.
type ForkedWorkspace struct {
	Name      string     `json:"name"`
	Workspace *Workspace `json:"workspace,omitempty"`
	Error     *Error     `json:"error,omitempty"`
}

// MostForks is the maximum number of forks in one call.
const MostForks = 100

// CheckForks checks the number of forks of one call. Errors: InvalidArgument.
func CheckForks(count int) error {
	if count < 1 || count > MostForks {
		return Errorf(InvalidArgument, "invalid number of forks %d", count).WithHint("use 1 to %d", MostForks)
	}
	return nil
}

// MergeSpec describes a merge from another workspace.
type MergeSpec struct {
	From   string    `json:"from" doc:"the workspace whose changes are merged: a fork, the parent, or another fork of the same parent"`
	Paths  OSStrings `json:"paths,omitempty" doc:"only files at or below these paths of from; default: all"`
	DryRun bool      `json:"dry_run,omitempty" doc:"only show what would change"`
	Text   bool      `json:"text,omitempty" doc:"merge text files line by line if both sides changed different lines"`
	Ours   OSStrings `json:"ours,omitempty" doc:"resolve conflicts at or below these paths by keeping this workspace's version; the longest matching path in ours and theirs wins"`
	Theirs OSStrings `json:"theirs,omitempty" doc:"resolve conflicts at or below these paths by taking the other version; what this cannot resolve remains a conflict"`
}

// MergeReport is the result of a merge or its dry run. Paths are those of the
// workspace that was merged from.
type MergeReport struct {
	ChangeReport
	After  string    `json:"after,omitempty" doc:"the checkpoint taken after the merge; absent after a dry run, or if nothing changed"`
	Merged OSStrings `json:"merged,omitempty" doc:"files that were merged line by line"`
	Ours   OSStrings `json:"ours,omitempty" doc:"conflicts that were resolved by keeping this workspace's version"`
	Theirs OSStrings `json:"theirs,omitempty" doc:"conflicts that were resolved by taking the other version"`
}
