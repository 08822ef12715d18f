package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) noteCommand() *cobra.Command {
	return group("note", "Short texts that a tenant keeps under names", a.noteCreate(), a.noteShow(), a.noteList(), a.noteUpdate(), a.noteDelete())
}

func (a *app) noteCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "create NAME TEXT", Short: "Create a note", Args: exactly(2),
		Long:              "Creates a note. Quote a text with blanks. A note has at most 4096 characters, and a tenant at most 1000 notes.",
		Example:           `  holt note create deploy "the staging computer is einstein"`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			n, err := c.Notes.Create(cmd.Context(), holt.NoteSpec{Name: args[0], Text: args[1]}, "")
			return a.sayNote(n, "created", err)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// sayNote shows a note that was created or changed, if err is nil.
func (a *app) sayNote(n holt.Note, what string, err error) error {
	if err != nil {
		return err
	}
	if a.wantsJSON() {
		return printJSON(a.Out, n)
	}
	fmt.Fprintf(a.Out, "note %s is %s\n", n.Name, what)
	return nil
}

func (a *app) noteShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Aliases: []string{"get"}, Short: "Print the text of a note", Args: exactly(1),
		Example:           "  holt note show deploy",
		ValidArgsFunction: a.complete(noteNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			n, err := c.Notes.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, n)
			}
			fmt.Fprintln(a.Out, visible(n.Text))
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) noteList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List notes", Args: exactly(0),
		Example: "  holt note list --json | jq -r '.[].name'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Notes.List(cmd.Context())
			switch {
			case err != nil:
				return err
			case a.wantsJSON():
				return printJSON(a.Out, all)
			case len(all) == 0:
				a.say("no notes yet; create one with: holt note create NAME TEXT")
				return nil
			}
			rows := make([][]string, len(all))
			for i, n := range all {
				rows[i] = []string{n.Name, n.Tenant, ago(n.UpdatedAt), clipLine(n.Text, 60)}
			}
			return printTable(a.Out, []string{"NAME", "TENANT", "CHANGED", "TEXT"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) noteUpdate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "update NAME TEXT", Short: "Change the text of a note", Args: exactly(2),
		Example:           `  holt note update deploy "the staging computer is curie"`,
		ValidArgsFunction: a.complete(noteNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			n, err := c.Notes.Update(cmd.Context(), args[0], holt.NoteChange{Text: args[1]}, "")
			return a.sayNote(n, "changed", err)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) noteDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete NAME...", Aliases: []string{"rm"}, Short: "Delete notes", Args: exactly(1),
		Example:           "  holt note delete deploy",
		ValidArgsFunction: a.completeAll(noteNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.Notes.Delete(cmd.Context(), args[0], ""); err != nil {
				return err
			}
			return a.deleted(args[0])
		},
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

// noteNames completes notes.
func noteNames(ctx context.Context, c *client.Client) (out []string) {
	all, _ := c.Notes.List(ctx) // no daemon, no names
	for _, n := range all {
		out = append(out, n.Name+"\t"+oneLine(n.Text))
	}
	return out
}
