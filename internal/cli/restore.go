package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) workspaceRestore() *cobra.Command {
	var dryRun bool
	cmd := a.onPast("restore NAME CHECKPOINT [PATH]…", "Restore a workspace, or paths of it, to a checkpoint", 2, -1, func(ctx context.Context, c *client.Client, args []string) error {
		spec := holt.RestoreSpec{Checkpoint: args[1], DryRun: dryRun}
		var err error
		if spec.Paths, err = pathsOf(args[0], args[2:]); err != nil {
			return err
		}
		report, err := c.History.Restore(ctx, args[0], spec, "")
		if err != nil {
			return err
		}
		preview := fmt.Sprintf("see all changes with: holt workspace diff %s live %s", args[0], shellWord(args[1]))
		return a.reportChanges(args[0], report, dryRun, preview)
	})
	cmd.Long = `Restores the workspace, or only the given paths and everything below them, to a checkpoint. The
current state gets a checkpoint first, so nothing is lost. Files keep their inode numbers and times.
The restore is atomic, and programs in a running computer see it immediately. A path that exists
neither now nor at the checkpoint is an error. If more than 2,000,000 files differ, the restore fails,
as diff, undo and merge do; fork the checkpoint instead. To restore a computer's memory and root disk
too: holt snapshot restore.`
	cmd.Example = `  holt workspace restore einstein before-upgrade --dry-run
  holt workspace restore einstein before-upgrade src go.mod`
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only show what would change")
	return cmd
}

// pathsOf reads paths of a workspace: from its top, with or without the slash.
func pathsOf(workspace string, args []string) (paths []string, err error) {
	for _, arg := range args {
		if arg == "" {
			return nil, holt.Errorf(holt.InvalidArgument, "empty path").WithHint("use / for all files of %s", workspace)
		}
		at, err := parseSpot(workspace + ":" + arg)
		if err != nil {
			return nil, err
		}
		paths = append(paths, at.path)
	}
	return paths, nil
}

const undoHelp = `Reverts the changes of one run or one terminal session, and keeps later changes. WORK is the id of a
run or a terminal session, or the name of a terminal for its last session. The default is the last run
that changed files; after it is undone, name an earlier one. A terminal session begins with the first
change after a minute without changes. It ends after such a minute, after five minutes, or when the
last client detaches. A file that was changed again later is a conflict: it is kept and listed, and the
exit status is 4. The current state gets a checkpoint first; to revert the undo, restore that.

holt computer run --receipt prints the id of a run. holt workspace checkpoints and holt workspace
history show the ids of runs and terminal sessions.`

// workIDs are those of which a checkpoint is left.
func workIDs(workspace string) names {
	return func(ctx context.Context, c *client.Client) (out []string) {
		all, _ := c.History.Checkpoints(ctx, workspace) // no daemon, no work
		for _, one := range all {
			if line := one.Run + "\t" + oneLine(one.Note); one.Run != "" && !slices.Contains(out, line) {
				out = append(out, line)
			}
		}
		return out
	}
}

func (a *app) workspaceUndo() *cobra.Command {
	var dryRun bool
	cmd := a.onPast("undo NAME [WORK [PATH]…]", "Undo the changes of a run or a terminal session", 1, -1, func(ctx context.Context, c *client.Client, args []string) error {
		return a.undo(ctx, c, args[0], args[1:], dryRun)
	})
	cmd.Long = undoHelp
	cmd.ValidArgsFunction = a.completeSecond(a.workspaceNames, workIDs)
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only show what would change")
	return cmd
}

// computerUndo is the same by the computer that the run was in.
func (a *app) computerUndo() *cobra.Command {
	var dryRun bool
	cmd := a.onPast("undo NAME [WORK [PATH]…]", "Undo the changes of a run or a terminal session in a computer's workspace", 1, -1, func(ctx context.Context, c *client.Client, args []string) error {
		computer, err := c.Computers.Get(ctx, args[0])
		if err != nil {
			return err
		}
		return a.undo(ctx, c, computer.Workspace, args[1:], dryRun)
	})
	cmd.Long = undoHelp
	cmd.ValidArgsFunction = a.completeSecond(a.computerNames, func(computer string) names {
		return func(ctx context.Context, c *client.Client) []string {
			one, err := c.Computers.Get(ctx, computer)
			if err != nil {
				return nil
			}
			return workIDs(one.Workspace)(ctx, c)
		}
	})
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only show what would change")
	return cmd
}

func (a *app) undo(ctx context.Context, c *client.Client, workspace string, args []string, dryRun bool) error {
	spec := holt.UndoSpec{DryRun: dryRun}
	if len(args) > 0 {
		var err error
		if spec.Run, err = holt.ParseWork(args[0]); err != nil {
			return err
		}
		if spec.Paths, err = pathsOf(workspace, args[1:]); err != nil {
			return err
		}
	}
	report, err := c.History.Undo(ctx, workspace, spec, "")
	if err != nil {
		return err
	}
	if report.Counts.Total()+len(report.Conflicts) == 0 {
		a.say("hint: there is nothing left to undo; to find earlier runs: holt workspace checkpoints %s", workspace)
	}
	return a.reportChanges(workspace, report, dryRun, "--json lists 1000")
}

// mostShown is how many changes a summary lists.
const mostShown = 20

// reportChanges says what a restore or an undo did. Conflicts are its status.
// preview says where all is that a dry run would do.
func (a *app) reportChanges(workspace string, r holt.ChangeReport, dryRun bool, preview string) error {
	var err error
	if a.wantsJSON() {
		err = printJSON(a.Out, r)
	} else {
		err = a.sayChanges(workspace, r, dryRun, preview)
	}
	if err == nil && len(r.Conflicts) > 0 {
		return exitStatus(exitConflict)
	}
	return err
}

func (a *app) sayChanges(workspace string, r holt.ChangeReport, dryRun bool, all string) error {
	what := ""
	if r.Run != "" {
		what = visible(r.Run) + ": "
	}
	if dryRun {
		what += "would be: "
	}
	fmt.Fprintln(a.Out, what+countsLine(r.Counts))
	for i := range r.Changes {
		r.Changes[i].By = holt.Writer{} // what is undone is not theirs
	}
	if r.Before != "" {
		all = fmt.Sprintf("see all changes with: holt workspace diff %s %s live", workspace, shellWord(r.Before))
	}
	a.listChanges(r.Changes, r.Omitted, all)
	for _, c := range r.Conflicts {
		fmt.Fprintf(a.Out, "%s %s: %s\n", a.paint(a.Out, red, "conflict"), shown(c.Path), visible(c.Reason))
	}
	if r.Unflushed {
		a.say("holt: warning: the computer did not flush its buffers to the disk; recent writes may be lost")
	}
	if r.Before != "" {
		a.say("to revert this: holt workspace restore %s %s", workspace, shellWord(r.Before))
	}
	return nil
}

// listChanges lists the first of them, and says how many more there are and
// where.
func (a *app) listChanges(all []holt.Change, omitted int, where string) {
	for _, c := range all[:min(len(all), mostShown)] {
		fmt.Fprintln(a.Out, "  "+a.changeLine(a.Out, c))
	}
	if more := omitted + max(0, len(all)-mostShown); more > 0 {
		fmt.Fprintf(a.Out, "  and %d more; %s\n", more, where)
	}
}
