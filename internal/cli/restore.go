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
	cmd := a.onPast("restore NAME CHECKPOINT [PATH]…", "Make a workspace, or paths of it, what it was", 2, -1, func(ctx context.Context, c *client.Client, args []string) error {
		spec := holt.RestoreSpec{Checkpoint: args[1], DryRun: dryRun}
		var err error
		if spec.Paths, err = pathsOf(args[0], args[2:]); err != nil {
			return err
		}
		report, err := c.History.Restore(ctx, args[0], spec, "")
		if err != nil {
			return err
		}
		preview := fmt.Sprintf("all of them: holt workspace diff %s live %s", args[0], shellWord(args[1]))
		return a.reportChanges(args[0], report, dryRun, preview)
	})
	cmd.Long = `Makes the workspace, or only what is or was at or below the given paths, what it
was at a checkpoint. The present gets a checkpoint first, so nothing is lost.
Files keep their inode numbers and times. It happens at once, wholly or not at
all, also under a running computer, whose programs see it at once. A path that is
not there now and was not then is an error. Where more than 2,000,000 files differ it
is refused, as are diff, undo and merge; a fork of the checkpoint has them. With its
memory and root disk, holt snapshot restore takes a computer back.`
	cmd.Example = `  holt workspace restore einstein before-upgrade --dry-run
  holt workspace restore einstein before-upgrade src go.mod`
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only show what would change")
	return cmd
}

// pathsOf reads paths of a workspace: from its top, with or without the slash.
func pathsOf(workspace string, args []string) (paths []string, err error) {
	for _, arg := range args {
		if arg == "" {
			return nil, holt.Errorf(holt.InvalidArgument, "a path is empty").WithHint("/ is everything in %s", workspace)
		}
		at, err := parseSpot(workspace + ":" + arg)
		if err != nil {
			return nil, err
		}
		paths = append(paths, at.path)
	}
	return paths, nil
}

const undoHelp = `Takes back what one run changed, or one stretch of work in a terminal, and keeps
what came later. WORK is a run or a stretch by its id, or a terminal by its name:
the last stretch in it. Without WORK it is the last run that changed something,
whatever terminals did since; a second undo finds that taken back, and goes no
further: name an earlier one. A stretch begins with the first change after a
minute without one, and ends when the last one leaves the terminal, and after
five minutes. What was changed again since is a conflict: it is left as it is and
listed, and the exit status is 4. The present gets a checkpoint first, so an undo
can be undone by restoring that.

holt computer run --receipt shows the id of a run; holt workspace checkpoints and
holt workspace history show those of runs and stretches.`

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
	cmd := a.onPast("undo NAME [WORK [PATH]…]", "Take back what a run, or work in a terminal, changed", 1, -1, func(ctx context.Context, c *client.Client, args []string) error {
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
	cmd := a.onPast("undo NAME [WORK [PATH]…]", "Take back what a run, or work in a terminal, changed in a computer's workspace", 1, -1, func(ctx context.Context, c *client.Client, args []string) error {
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
		a.say("hint: nothing of it is left to take back; holt workspace checkpoints %s names what came earlier", workspace)
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
		all = fmt.Sprintf("all of them: holt workspace diff %s %s live", workspace, shellWord(r.Before))
	}
	a.listChanges(r.Changes, r.Omitted, all)
	for _, c := range r.Conflicts {
		fmt.Fprintf(a.Out, "%s %s: %s\n", a.paint(a.Out, red, "conflict"), shown(c.Path), visible(c.Reason))
	}
	if r.Unflushed {
		a.say("holt: the computer did not write what its programs held in memory; some of that may be lost")
	}
	if r.Before != "" {
		a.say("what was before: holt workspace restore %s %s", workspace, shellWord(r.Before))
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
