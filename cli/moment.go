package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) computerSnapshot() *cobra.Command {
	var spec holt.SnapshotSpec
	cmd := &cobra.Command{
		Use: "snapshot NAME", Short: "Take a moment of a running computer, which goes on", Args: exactly(1),
		Long: `Keeps memory, root disk and workspace of a running computer as they are at one
instant, under one id. The computer stands still for some hundredths of a second, longer
where the host emulates processors. The moment stays until it is deleted; holt
computer fork --at makes computers of it.` + fmt.Sprintf(lastingHelp, seeMoments),
		Example:           "  holt computer snapshot einstein --name before-migration",
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			var taken holt.Moment
			err = a.lasts(c, args[0], "snapshot", seeMoments+" "+args[0], func() error {
				taken, err = c.Computers.Snapshot(cmd.Context(), args[0], spec, "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, taken)
			}
			fmt.Fprintf(a.Out, "moment %s of %s is kept; it stood still for %s\n", momentName(taken), taken.Computer, took(taken.PauseMS))
			a.say("next: holt computer fork %s --at %s", taken.Computer, momentName(taken))
			return nil
		},
	}
	cmd.Flags().StringVar(&spec.Name, "name", "", "what to call it, a DNS label (default: it has its id)")
	a.jsonFlag(cmd)
	return cmd
}

// momentName is what a person calls a moment.
func momentName(m holt.Moment) string {
	if m.Name != "" {
		return m.Name
	}
	return string(m.ID)
}

// momentSaid is the same for one of which only the id is known.
func momentSaid(ctx context.Context, c *client.Client, id holt.MomentID) string {
	m, err := c.Moments.Get(ctx, string(id))
	switch {
	case holt.CodeOf(err) == holt.NotFound:
		return string(id) + " (deleted)"
	case err != nil:
		return string(id)
	}
	return momentName(m)
}

func (a *app) computerFork() *cobra.Command {
	var spec holt.ComputerForkSpec
	var reach networkFlags
	cmd := &cobra.Command{
		Use: "fork NAME", Short: "Fork a computer while it runs, paused, or as it was at a moment", Args: exactly(1),
		Long: `Makes computers that go on from where NAME is now: with its processes, its
memory, its root disk and its workspace, each in copies of its own. Of a paused computer
it is what it was paused at, with --at one of its moments. NAME goes on. A fork
has its own name, machine id, SSH host keys, entropy and clock; its connections to
elsewhere end. It may reach what NAME may, unless told otherwise. holt workspace merge brings files back.` + fmt.Sprintf(lastingHelp, seeComputers),
		Example: `  holt computer fork einstein --count 3 --name attempt
  holt computer fork einstein --at before-migration`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			if err := holt.CheckForks(spec.Count); err != nil {
				return err
			}
			if reach.given(cmd) {
				now, err := c.Networks.Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				spec.Network = reach.policy(cmd, now)
			}
			var forked holt.ForkedComputers
			err = a.lasts(c, args[0], "forking", seeComputers, func() error {
				forked, err = c.Computers.Fork(cmd.Context(), args[0], spec, "")
				return err
			})
			if err != nil {
				return err
			}
			return a.reportComputerForks(args[0], forked)
		},
	}
	cmd.Flags().StringVar(&spec.At, "at", "", "as it was at this moment, by name or id, or NAME@MOMENT")
	cmd.Flags().StringVar(&spec.Name, "name", "", "name of the fork; with --count what their names begin with")
	cmd.Flags().IntVar(&spec.Count, "count", 1, "how many forks to make")
	cmd.Flags().BoolVar(&spec.WithSecrets, "with-secrets", false, "give them the computer's host secrets (holt computer secret); without it they have none")
	reach.add(a, cmd)
	a.completeFlag(cmd, "at", a.momentNames)
	a.jsonFlag(cmd)
	return cmd
}

// reportComputerForks says what was made.
func (a *app) reportComputerForks(of string, forked holt.ForkedComputers) error {
	if a.wantsJSON() {
		if err := printJSON(a.Out, forked); err != nil {
			return err
		}
	}
	var failed forksFailed
	for _, one := range forked.Computers {
		if one.Error == nil && !a.wantsJSON() {
			fmt.Fprintf(a.Out, "%s runs, forked from %s\n", visible(one.Name), visible(of))
		}
		failed.note(a, one.Name, one.Error)
	}
	return failed.err(len(forked.Computers))
}

func (a *app) momentCommand() *cobra.Command {
	return group("moment", "Kept instants of computers: memory, root disk and workspace", a.momentList(), a.momentShow(), a.momentDiff(), a.momentRestore(), a.momentDelete())
}

func (a *app) momentList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [COMPUTER]", Aliases: []string{"ls"}, Short: "List moments", Args: atLeast(0, 1),
		Long: `Lists moments, of one computer or of all, oldest first. Those that were asked
for (snapshot) stay until they are deleted; of those that a fork or a pause took
the last three of each computer stay. AFTER says which moment one goes on from, where
that is not the one above it. ON DISK is what its memory takes here; IN ARCHIVE by
how much the archive grew with it. What is there may leave the disk when memory takes
more of it than holt serve --moments-cache says, and is fetched when it is needed.
STOOD is how long the computer stood still for it; for a pause, until all was copied.`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Moments.List(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no moments yet; take one: holt computer snapshot NAME")
				return nil
			}
			known := all
			if len(args) > 0 { // the first may go on from another computer's
				if known, err = c.Moments.List(cmd.Context(), ""); err != nil {
					return err
				}
			}
			return printTable(a.Out, []string{"MOMENT", "COMPUTER", "AFTER", "KIND", "TAKEN", "MEMORY", "ON DISK", "IN ARCHIVE", "STOOD", "FORKS"}, momentRows(all, known))
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// momentRows are the lines of a list; known are the moments of all computers.
func momentRows(all, known []holt.Moment) (rows [][]string) {
	slices.SortStableFunc(all, func(x, y holt.Moment) int { return strings.Compare(x.Computer, y.Computer) })
	names := map[holt.MomentID]string{}
	for _, m := range known {
		names[m.ID] = momentName(m)
	}
	var above holt.Moment
	for _, m := range all {
		after := ""
		if m.Parent != "" && (m.Parent != above.ID || m.ComputerID != above.ComputerID) {
			after = cmp.Or(names[m.Parent], string(m.Parent)+" (deleted)")
		}
		memory := size(int64(m.MemoryMB) << 20)
		if m.Stopped {
			memory = "none"
		}
		rows = append(rows, []string{momentName(m), m.Computer, after, string(m.Kind), ago(m.CreatedAt), memory,
			size(m.Bytes), inArchive(m), stood(m), dependents(m.Forks)})
		above = m
	}
	return rows
}

// inArchive says what the archive has of a moment.
func inArchive(m holt.Moment) string {
	switch {
	case m.Archived:
		return size(m.ArchivedBytes)
	case m.Kind == holt.MomentSnapshot:
		return "not yet"
	}
	return ""
}

// stood says how long a computer stood still for a moment.
func stood(m holt.Moment) string {
	if m.Stopped {
		return ""
	}
	return took(m.PauseMS)
}

func dependents(all []holt.Dependent) string {
	var names []string
	for _, d := range all {
		names = append(names, d.Name)
	}
	return visible(strings.Join(names, ", "))
}

func (a *app) momentShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show MOMENT|COMPUTER@MOMENT", Short: "Show a moment", Args: exactly(1),
		ValidArgsFunction: a.complete(a.momentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			m, err := c.Moments.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, m)
			}
			return printTable(a.Out, nil, momentLines(m, func(id holt.MomentID) string { return momentSaid(cmd.Context(), c, id) }))
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// momentLines say what is known of a moment; called says what another is called.
func momentLines(m holt.Moment, called func(holt.MomentID) string) (rows [][]string) {
	after := ""
	if m.Parent != "" {
		after = called(m.Parent)
	}
	memory := size(int64(m.MemoryMB) << 20)
	if m.Stopped {
		memory = "none: it was stopped"
	}
	held, forced := "", ""
	if m.Throttle > 0 {
		held = fmt.Sprintf("%d %% of its time at last", m.Throttle)
	}
	if m.Forced {
		forced = "to stand for all that was left: its memory changed too fast"
	}
	rows = [][]string{
		{"id", string(m.ID)}, {"name", m.Name}, {"computer", m.Computer}, {"workspace", visible(m.Workspace)}, {"kind", string(m.Kind)}, {"after", after},
		{"taken", ago(m.CreatedAt)}, {"cpus", fmt.Sprint(m.CPUs)}, {"memory", memory},
		{"on disk", size(m.Bytes)}, {"in archive", inArchive(m)}, {"stood still", stood(m)}, {"forks", dependents(m.Forks)}, {"held back", held}, {"forced", forced},
	}
	return slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
}

func (a *app) momentRestore() *cobra.Command {
	var yes bool
	var spec holt.MomentRestoreSpec
	cmd := &cobra.Command{
		Use: "restore MOMENT|COMPUTER@MOMENT", Short: "Take a computer back to one of its moments", Args: exactly(1),
		Long: `The same computer, with its name and identity, goes on from an older moment: its
memory, root disk, workspace and terminals are those of then. What it is until now becomes a
moment first, whose restore undoes this one; of a stopped computer, which has no memory, that
is its root disk and workspace. Runs and terminals that began since, whoever is attached, and
connections to elsewhere end. The workspace is another one under the same name; the one until
now stays, called after that and the moment of the present (einstein-before-restore), until
the last moment in it is deleted.
A restore that fails leaves the computer as it was; one that ran and cannot go on either stays
paused at the moment of its present.

For files alone, while everything goes on: holt workspace restore.
For a computer beside this one: holt computer fork --at.` + fmt.Sprintf(lastingHelp, seeComputers),
		Example: `  holt moment restore before-migration
  holt moment restore einstein@before-migration --yes`,
		ValidArgsFunction: a.complete(a.momentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			m, err := c.Moments.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(yes, fmt.Sprintf("Take %s back to the moment %s, taken %s?", m.Computer, momentName(m), ago(m.CreatedAt))); err != nil {
				return err
			}
			var back holt.RestoredComputer
			err = a.lasts(c, string(m.ComputerID), "restoring", seeComputers, func() error {
				back, err = c.Moments.Restore(cmd.Context(), string(m.ID), spec, "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, back)
			}
			_, at := holt.CutCheckpoint(args[0])
			a.sayRestored(cmp.Or(at, args[0]), back)
			return nil
		},
	}
	cmd.Flags().StringVar(&spec.Name, "name", "", "what to call the moment of the present (default: before-restore, or that and a number)")
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) sayRestored(moment string, back holt.RestoredComputer) {
	c, p := back.Computer, back.Present
	if p.ID == c.LastMoment {
		fmt.Fprintf(a.Out, "%s is %s; it was paused at %s, and went on from there\n", c.Name, c.State, visible(moment))
		return
	}
	fmt.Fprintf(a.Out, "%s is %s, as it was at %s; what it was until now is the moment %s\n", c.Name, c.State, visible(moment), momentName(p))
	if p.Stopped {
		a.say("it was stopped, so that moment has its root disk and workspace, and no memory")
	}
	a.say("undo: holt moment restore %s@%s", c.Name, momentName(p))
}

func (a *app) momentDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete MOMENT|COMPUTER@MOMENT...", Aliases: []string{"rm"}, Short: "Delete a moment; its forks go on", Args: exactly(1),
		Long: `Deletes a moment, by id, by a name that only one has, or as COMPUTER@MOMENT. Computers
that were forked from it go on: what they share with it stays as long as they need it.
What it took in the archive is garbage then, and goes within two hours (now: holt archive
collect).
The workspace that a restore left goes with the last moment in it.`,
		ValidArgsFunction: a.completeAll(a.momentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			m, err := c.Moments.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			what := alsoDeleted(holt.DeletedComputer{Forks: m.Forks}, "", "", " Its forks go on: %s.")
			if err := a.confirm(yes, fmt.Sprintf("Delete moment %s of %s?%s", momentName(m), m.Computer, what)); err != nil {
				return err
			}
			freed, err := c.Moments.Delete(cmd.Context(), string(m.ID), "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, freed)
			}
			shared := ""
			if len(freed.Forks) > 0 {
				shared = "; its forks go on: " + dependents(freed.Forks)
			}
			if freed.Workspace != "" {
				shared += "; it was the last in the workspace " + freed.Workspace + ", which went with it"
			}
			fmt.Fprintf(a.Out, "moment %s is deleted, %s freed%s\n", momentName(m), size(freed.Bytes), shared)
			return nil
		},
	}
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

func (a *app) momentNames(ctx context.Context, c *client.Client) []string {
	all, _ := c.Moments.List(ctx, "")
	var out []string
	for _, m := range all {
		out = append(out, momentName(m)+"\t"+m.Computer)
	}
	return out
}
