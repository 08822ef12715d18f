package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) workspaceHistory() *cobra.Command {
	cmd := a.onPast("history NAME[:PATH] [PATH]", "Show the history of a file", 1, 2, func(ctx context.Context, c *client.Client, args []string) error {
		at, _, err := takeSpot(args)
		if err != nil {
			return err
		}
		events, err := c.History.History(ctx, at.workspace, at.path)
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, events)
		}
		rows := make([][]string, len(events))
		for i, e := range events {
			rows[i] = eventRow(e, i+1 == len(events))
		}
		return printTable(a.Out, []string{"WHAT", "WHEN", "BY", "SIZE", "CHECKPOINT"}, rows)
	})
	cmd.Long = `Shows the earlier states of a file or directory, newest first, also of a deleted one: when it was
changed, by which run, terminal session or person, and the first checkpoint with that state (to print
it: holt workspace cat --at CHECKPOINT). Changes by one writer between two checkpoints count as one.`
	cmd.ValidArgsFunction = a.complete(a.workspaceNames)
	return cmd
}

func eventRow(e holt.PathEvent, first bool) []string {
	what, when, bytes := "changed", "-", size(e.Size)
	switch {
	case e.Gone:
		what, bytes = "removed", ""
	case first:
		what = "created"
	}
	if e.At != nil {
		when = ago(*e.At)
	}
	by := writerName(e.By)
	if author := writerName(e.Author); !e.Gone && author != by && author != "" {
		by += " (bytes of " + author + ")"
	}
	return []string{what, when, by, bytes, e.Checkpoint}
}

func (a *app) workspaceBlame() *cobra.Command {
	cmd := a.onPast("blame NAME:PATH [PATH]", "Show who last wrote a file", 1, 2, func(ctx context.Context, c *client.Client, args []string) error {
		at, _, err := takeSpot(args)
		if err != nil {
			return err
		}
		w, err := c.History.Blame(ctx, at.workspace, at.path)
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, w)
		}
		switch {
		case w.Run != "":
			fmt.Fprintf(a.Out, "%s, in %s\n", visible(w.Run), visible(w.Name))
			a.say("see all its changes with: holt workspace receipt %s %s", at.workspace, visible(w.Run))
		case w.Name != "":
			fmt.Fprintf(a.Out, "%s (%s)\n", visible(w.Name), visible(w.Kind))
		default:
			fmt.Fprintln(a.Out, "its writer is not known")
		}
		return nil
	})
	cmd.ValidArgsFunction = a.complete(a.workspaceNames)
	return cmd
}

func (a *app) workspaceReceipt() *cobra.Command {
	cmd := a.onPast("receipt NAME WORK", "Show what a run or a terminal session changed", 2, 2, func(ctx context.Context, c *client.Client, args []string) error {
		work, err := holt.ParseWork(args[1])
		if err != nil {
			return err
		}
		r, err := c.History.Receipt(ctx, args[0], work)
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, r)
		}
		a.sayReceipt(args[0], "workspace undo "+args[0], r, false)
		return nil
	})
	cmd.Long = `WORK is the id of a run or of a terminal session, or the name of a terminal for its
last session.`
	cmd.ValidArgsFunction = a.completeSecond(a.workspaceNames, workIDs)
	return cmd
}

// sayReceipt says what a run changed in a workspace, and with which command to
// take it back.
func (a *app) sayReceipt(workspace, undo string, r holt.Receipt, goesOn bool) {
	fmt.Fprintf(a.Out, "%s: %s\n", visible(r.Run), soFar(countsLine(r.Counts), goesOn))
	for i := range r.Changes {
		r.Changes[i].By = holt.Writer{} // it is said above
	}
	after := r.After
	if after == "" {
		after = holt.Live
	}
	a.listChanges(r.Changes, r.Omitted, fmt.Sprintf("see all changes with: holt workspace diff %s %s %s", workspace, shellWord(r.Before), shellWord(after)))
	if r.Counts.Total() > 0 {
		a.say("undo it with: holt %s %s", undo, visible(r.Run))
	}
}
