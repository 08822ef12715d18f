package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// onPast makes a command about a workspace's past: its first argument is the
// workspace, its second, if any, a checkpoint.
func (a *app) onPast(use, short string, least, most int, run func(ctx context.Context, c *client.Client, args []string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: atLeast(least, most),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return a.ask(cmd, a.workspaceNames), cobra.ShellCompDirectiveNoFileComp
			}
			return a.ask(cmd, checkpointNames(args[0])), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, args)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func checkpointNames(workspace string) names {
	return func(ctx context.Context, c *client.Client) []string {
		workspace, _, _ := strings.Cut(workspace, ":")
		all, _ := c.History.Checkpoints(ctx, workspace)
		var out []string
		for _, one := range all {
			out = append(out, one.Name+"\t"+one.Note)
		}
		return out
	}
}

// atFlag adds --at, and returns what it makes of a workspace's name.
func (a *app) atFlag(cmd *cobra.Command) func(workspace string) string {
	at := ""
	cmd.Flags().StringVar(&at, "at", "", "use the state at this checkpoint")
	return func(workspace string) string {
		if at == "" || at == holt.Live {
			return workspace
		}
		return holt.AtCheckpoint(workspace, at)
	}
}

func (a *app) workspaceCheckpoint() *cobra.Command {
	var spec holt.CheckpointSpec
	cmd := a.onPast("checkpoint NAME [CHECKPOINT]", "Take a checkpoint of a workspace's files", 1, 2, func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) == 2 {
			if spec.Name = args[1]; spec.Name == "" {
				return holt.Errorf(holt.InvalidArgument, "the checkpoint name is empty").WithHint("give a name, or leave the argument out for an automatic checkpoint")
			}
		}
		taken, err := c.History.Checkpoint(ctx, args[0], spec, "")
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, taken)
		}
		fmt.Fprintf(a.Out, "checkpoint %s: %s, %s\n", visible(taken.Name), holt.CountOf(taken.Files, "file"), size(taken.Bytes))
		a.say("restore it with: holt workspace restore %s %s", args[0], shellWord(taken.Name))
		return nil
	})
	cmd.Long = `A checkpoint keeps the current state of the files: it can be listed, compared and restored. Taking
one needs milliseconds, whatever the size of the workspace. A checkpoint with a name is kept until it
is deleted; automatic ones expire. Runs and terminal sessions that change files take automatic ones.`
	cmd.Example = "  holt workspace checkpoint einstein before-upgrade --note 'npm 11'"
	cmd.Flags().StringVar(&spec.Note, "note", "", "a note, shown in the list")
	return cmd
}

// shellWord quotes a name that a shell would take apart.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(visible(s), "'", `'\''`) + "'"
}

func (a *app) workspaceCheckpoints() *cobra.Command {
	cmd := a.onPast("checkpoints NAME", "List the checkpoints of a workspace", 1, 1, func(ctx context.Context, c *client.Client, args []string) error {
		all, err := c.History.Checkpoints(ctx, args[0])
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, all)
		}
		if len(all) == 0 {
			a.say("no checkpoints yet; a run that changes files takes one, or: holt workspace checkpoint %s", args[0])
			return nil
		}
		live, err := c.History.GetCheckpoint(ctx, args[0], holt.Live)
		if err != nil {
			return err
		}
		return printTable(a.Out, []string{"NAME", "AFTER", "TAKEN", "FILES", "SIZE", "NOTE"}, checkpointRows(all, live))
	})
	cmd.Long = `Lists checkpoints, oldest first, and the current state last. AFTER names the predecessor of a
checkpoint if that is not the one above it, as after a restore. FILES counts regular files,
including the two start-up files of a new workspace, which ls does not list.`
	return cmd
}

func checkpointRows(all []holt.Checkpoint, live holt.Checkpoint) (rows [][]string) {
	named := map[int64]string{}
	above := int64(0)
	after := func(c holt.Checkpoint) string {
		if c.Parent == above {
			return ""
		}
		return named[c.Parent]
	}
	for _, c := range all {
		rows = append(rows, []string{c.Name, after(c), ago(c.CreatedAt), fmt.Sprint(c.Files), size(c.Bytes), c.Note})
		above, named[c.ID] = c.ID, c.Name
	}
	state := "as at this checkpoint"
	if live.Changed {
		state = "changed since"
	}
	return append(rows, []string{live.Name, after(live), "now", fmt.Sprint(live.Files), size(live.Bytes), state})
}

func (a *app) workspaceDeleteCheckpoint() *cobra.Command {
	var dryRun, yes bool
	cmd := a.onPast("delete-checkpoint NAME CHECKPOINT", "Delete a checkpoint of a workspace", 2, 2, func(ctx context.Context, c *client.Client, args []string) error {
		if !dryRun && a.asks(yes) {
			would, err := c.History.DeleteCheckpoint(ctx, args[0], args[1], true, "")
			if err != nil {
				return err
			}
			question := fmt.Sprintf("Delete checkpoint %s of %s? This frees %s of content. The runs directly before and after it can no longer be undone.",
				visible(args[1]), args[0], size(would.Bytes))
			if err := a.confirm(yes, question); err != nil {
				return err
			}
		}
		freed, err := c.History.DeleteCheckpoint(ctx, args[0], args[1], dryRun, "")
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, freed)
		}
		verb := "frees"
		if dryRun {
			verb = "would free"
		}
		_, err = fmt.Fprintf(a.Out, "deleting %s %s %s of content and %s\n", visible(args[1]), verb, size(freed.Bytes), holt.CountOf(freed.Rows, "row"))
		return err
	})
	cmd.Long = `Deletes a checkpoint and the content that no other checkpoint needs. The runs directly before and
after it can no longer be undone.`
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only show how much space that would free")
	yesFlag(cmd, &yes)
	return cmd
}
