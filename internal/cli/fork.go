package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) workspaceFork() *cobra.Command {
	var spec holt.ForkSpec
	cmd := &cobra.Command{
		Use: "fork NAME", Short: "Fork a workspace, or a checkpoint of it", Args: exactly(1),
		Long: `Creates an independent workspace with the files and the history of NAME, now or at a checkpoint.
No content is copied. Inode numbers and times are kept, so Git and build tools see no changes.
To bring changes back: holt workspace merge.`,
		Example: `  holt workspace fork einstein --name try-npm-11
  holt workspace fork einstein --at before-upgrade --count 3`,
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := holt.CheckForks(spec.Count); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			forked, err := c.Workspaces.Fork(cmd.Context(), args[0], spec, "")
			if err != nil {
				return err
			}
			return a.reportForks(forked)
		},
	}
	cmd.Flags().StringVar(&spec.At, "at", "", "use the state at this checkpoint")
	cmd.Flags().StringVar(&spec.Name, "name", "", "name of the fork; with --count, prefix of the names")
	cmd.Flags().IntVar(&spec.Count, "count", 1, "number of forks")
	a.jsonFlag(cmd)
	return cmd
}

// forksFailed are the forks of one call that were not made.
type forksFailed struct {
	first *holt.Error
	count int
}

// note says why one was not made, if so.
func (f *forksFailed) note(a *app, name string, why *holt.Error) {
	if why == nil {
		return
	}
	if f.count++; f.first == nil {
		f.first = why
	}
	a.say("%s was not created: %s", visible(name), visible(why.Message))
}

// err is the error of a call that was to make so many.
func (f *forksFailed) err(asked int) error {
	if f.count == 0 {
		return nil
	}
	e := holt.Errorf(f.first.Code, "%d of %d forks were not created", f.count, asked)
	e.Hint = f.first.Hint
	return e
}

// reportForks says what was made.
func (a *app) reportForks(forked holt.Forked) error {
	if a.wantsJSON() {
		if err := printJSON(a.Out, forked); err != nil {
			return err
		}
	}
	var failed forksFailed
	for _, one := range forked.Workspaces {
		if w := one.Workspace; one.Error == nil && !a.wantsJSON() {
			fmt.Fprintf(a.Out, "workspace %s is created, forked from %s at %s\n", w.Name, visible(w.Parent.Name), visible(w.Parent.Checkpoint))
		}
		failed.note(a, one.Name, one.Error)
	}
	if failed.count == 0 && len(forked.Workspaces) == 1 {
		a.say("next: holt computer create --workspace %s", forked.Workspaces[0].Workspace.Name)
	}
	return failed.err(len(forked.Workspaces))
}

// parent says what a workspace was forked from.
func parent(w holt.Workspace) string {
	if w.Parent == nil {
		return ""
	}
	return visible(parentName(w.Parent.Name, w.Parent.Was, string(w.Parent.ID)) + "@" + w.Parent.Checkpoint)
}

// parentName says what something was forked from; name is "" once that is deleted, was if the
// daemon did not keep what it was called.
func parentName(name, was, id string) string {
	if name != "" {
		return name
	}
	return cmp.Or(was, id) + " (deleted)"
}
