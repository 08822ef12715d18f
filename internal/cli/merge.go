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
	cmd := a.onPast("merge FROM INTO", "Merge the changes of one fork into another", 2, 2, func(ctx context.Context, c *client.Client, args []string) error {
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
	cmd.Long = `Applies the changes in FROM since the fork, or since the last merge, to INTO. One can be a fork of
the other, or both forks of a third. FROM is not changed; INTO gets a checkpoint first. A path that
both have changed differently is a conflict: INTO keeps its version, the conflict is listed, the rest
is merged, and the exit status is 4. The next merge reports it again until it is resolved: with --ours
PATH (keep INTO's version), with --theirs PATH (take FROM's version), or by making both equal. PATH is
a path in FROM; "." is everything.`
	cmd.Example = `  holt workspace merge einstein-1 einstein --dry-run
  holt workspace merge einstein-1 einstein --path src --path go.mod --text
  holt workspace merge einstein-1 einstein --theirs src --ours src/config.toml`
	cmd.ValidArgsFunction = a.completeAll(a.workspaceNames)
	cmd.Flags().StringArrayVar((*[]string)(&spec.Paths), "path", nil, "only files at or below this path of FROM (repeatable)")
	cmd.Flags().StringArrayVar((*[]string)(&spec.Ours), "ours", nil, "resolve conflicts at or below this path by keeping INTO's version (repeatable)")
	cmd.Flags().StringArrayVar((*[]string)(&spec.Theirs), "theirs", nil, "resolve conflicts at or below this path by taking FROM's version (repeatable)")
	cmd.Flags().BoolVarP(&spec.DryRun, "dry-run", "n", false, "only show what would change")
	cmd.Flags().BoolVar(&spec.Text, "text", false, "merge text files line by line if both changed different lines")
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
		}{{r.Merged, "text of %s merged by lines\n"}, {r.Ours, "%s: kept this version\n"}, {r.Theirs, "%s: took the other version\n"}} {
			for _, path := range said.paths {
				fmt.Fprintf(a.Out, said.line, shown(path))
			}
		}
	}
	if len(r.Conflicts) > 0 {
		a.say("resolve a conflict with --ours PATH (keeps the version of %s) or --theirs PATH", into)
		return exitStatus(exitConflict)
	}
	return nil
}
