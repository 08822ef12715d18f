package cli

import (
	"context"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) workspaceCopy() *cobra.Command {
	var k copier
	var at func(string) string
	cmd := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files into or out of a workspace",
		Long: `Copies a file between this machine and a workspace. One side is NAME:PATH, from
the workspace's top, the other a path here, or - for standard input or output. A
directory needs --recursive. Pipes, sockets, devices and files that cannot be read
are left out. Standard error names them, and the exit status is 1. Import and export
keep times and hard links too.

` + whatCopyKeeps,
		Example: `  holt workspace cp notes.md einstein:notes.md
  holt workspace cp -r einstein:results ./results
  holt workspace cp -r einstein:src ./src --at before-upgrade`,
		Args:              exactly(2),
		ValidArgsFunction: a.completeSpots(inWorkspaces, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			k.noun = inWorkspaces
			return a.copy(cmd.Context(), args[0], args[1], &k, at)
		},
	}
	k.recursiveFlags(cmd)
	k.flags(cmd)
	a.copyJSONFlag(cmd)
	at = a.atFlag(cmd)
	return cmd
}

func (a *app) workspacePut() *cobra.Command {
	k := copier{noun: inWorkspaces}
	cmd := &cobra.Command{
		Use: "put FILE NAME:PATH", Short: "Copy a file of this machine into a workspace", Args: exactly(2),
		ValidArgsFunction: a.completeSpots(inWorkspaces, 2),
		Long:              "Copies one file, or standard input if FILE is -.\n\n" + whatCopyKeeps,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.copy(cmd.Context(), args[0], args[1], &k, nil)
		},
	}
	k.flags(cmd)
	a.copyJSONFlag(cmd)
	return cmd
}

// copyJSONFlag is the --json of a command whose output may be a file: nothing is JSON unless it asks.
func (a *app) copyJSONFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print what was copied, as JSON")
}

// copyNoun is what a copy goes into or out of.
type copyNoun struct {
	word string
	home string // where relative paths begin
}

var (
	inComputers  = copyNoun{"computer", "/home/agent"}
	inWorkspaces = copyNoun{"workspace", "/"}
)

func (n copyNoun) files(c *client.Client) client.Files {
	if n == inWorkspaces {
		return c.WorkspaceFiles
	}
	return c.Files
}

// copy copies between two ends, of which one is here. at, if not nil, says
// which state of a workspace is read.
func (a *app) copy(ctx context.Context, fromArg, toArg string, k *copier, at func(string) string) error {
	noun := k.noun
	from, to := noun.parseEnd(fromArg), noun.parseEnd(toArg)
	if (from.owner == "") == (to.owner == "") {
		return holt.Errorf(holt.InvalidArgument, "exactly one of %q and %q must be in a %s", fromArg, toArg, noun.word).
			WithHint("use NAME:PATH, such as einstein:notes.md; write ./ before a local path that contains a colon")
	}
	if at != nil {
		if to.owner != "" && at(to.owner) != to.owner {
			return holt.Errorf(holt.InvalidArgument, "a checkpoint cannot be changed").WithHint("use --at only to copy out of a workspace")
		}
		from.owner = at(from.owner)
	}
	if a.json && toArg == "-" {
		return holt.Errorf(holt.InvalidArgument, "--json and a copy to standard output exclude each other").WithHint("leave --json out, or copy to a file")
	}
	if err := k.fill(to.owner != ""); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	k.a, k.files, k.uploads = a, noun.files(c), c.Uploads
	k.bar = a.begin("copying")
	if to.owner != "" {
		err = k.put(ctx, from.path, to)
	} else {
		err = k.get(ctx, from, to.path)
	}
	k.bar.end()
	k.not.say(a)
	if err == nil && a.json {
		err = printJSON(a.Out, struct {
			From    string  `json:"from"`
			To      string  `json:"to"`
			LeftOut int     `json:"left_out"`
			NotSent notSent `json:"not_sent,omitzero"`
		}{fromArg, toArg, k.left, k.not})
	}
	if err == nil && k.left > 0 {
		return exitStatus(exitFailure)
	}
	return err
}
