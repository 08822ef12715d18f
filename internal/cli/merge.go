package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) workspaceMerge() *cobra.Command {
	var spec holt.MergeSpec
	cmd := a.onPast("merge FROM INTO", "Bring the changes of a fork back", 2, 2, func(ctx context.Context, c *client.Client, args []string) error {
		spec.From = args[0]
		one := spec
		for _, paths := range []*holt.OSStrings{&one.Paths, &one.Ours, &one.Theirs} {
			var err error
			if *paths, err = pathsOf(args[0], *paths); err != nil {
				return err
			}
		}
		report, err := c.Workspaces.Merge(ctx, args[1], one, "")
		if err != nil {
			return err
		}
		return a.reportMerge(args[1], report, spec.DryRun)
	})
	cmd.Long = `Brings what changed in FROM, since both were the same or since the last merge, to
INTO: a fork back to what it was forked from, the other way round, or between
forks. FROM is not changed; INTO gets a checkpoint first. What both changed,
each in its way, is a conflict: it stays in INTO as it is and is listed, the
rest is merged, and the exit status is 4. The next merge looks at it again,
until it is settled: by --ours PATH (INTO's stays, for good), by --theirs PATH
(INTO's becomes like FROM's), or by hand, when both were made alike. PATH is one
of FROM; "." is everything.`
	cmd.Example = `  holt workspace merge einstein-1 einstein --dry-run
  holt workspace merge einstein-1 einstein --path src --path go.mod --text
  holt workspace merge einstein-1 einstein --theirs src --ours src/config.toml`
	cmd.ValidArgsFunction = a.completeAll(a.workspaceNames)
	cmd.Flags().StringArrayVar((*[]string)(&spec.Paths), "path", nil, "only what is at or below this path of FROM; may be given several times")
	cmd.Flags().StringArrayVar((*[]string)(&spec.Ours), "ours", nil, "settle conflicts at or below this path of FROM by keeping INTO's; may be given several times")
	cmd.Flags().StringArrayVar((*[]string)(&spec.Theirs), "theirs", nil, "settle conflicts at or below this path of FROM by taking FROM's; may be given several times")
	cmd.Flags().BoolVarP(&spec.DryRun, "dry-run", "n", false, "change nothing, only say what would")
	cmd.Flags().BoolVar(&spec.Text, "text", false, "merge text by lines where both changed a file and the lines do not touch")
	return cmd
}

// reportMerge says what a merge did. Conflicts are its status.
func (a *app) reportMerge(into string, r holt.MergeReport, dryRun bool) error {
	if a.wantsJSON() {
		if err := printJSON(a.Out, r); err != nil {
			return err
		}
	} else {
		if err := a.sayChanges(into, r.ChangeReport, dryRun, "--json lists 1000"); err != nil {
			return err
		}
		for _, said := range []struct {
			paths []string
			line  string
		}{{r.Merged, "text of %s merged by lines\n"}, {r.Ours, "%s stays as it is\n"}, {r.Theirs, "%s is taken as the other has it\n"}} {
			for _, path := range said.paths {
				fmt.Fprintf(a.Out, said.line, shown(path))
			}
		}
	}
	if len(r.Conflicts) > 0 {
		a.say("next: settle a conflict by --ours PATH (what %s has stays) or --theirs PATH", into)
		return exitStatus(exitConflict)
	}
	return nil
}
