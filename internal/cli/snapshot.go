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
		Use: "snapshot NAME", Short: "Take a snapshot of a running computer, which goes on", Args: exactly(1),
		Long: `Keeps memory, root disk and workspace of a running computer as they are at one
instant, under one id. The computer stands still for some hundredths of a second, longer
where the host emulates processors. The snapshot stays until it is deleted; holt
computer fork --at makes computers of it.` + fmt.Sprintf(lastingHelp, seeSnapshots),
		Example:           "  holt computer snapshot einstein --name before-migration",
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			var taken holt.Snapshot
			err = a.lasts(c, args[0], "snapshot", seeSnapshots+" "+args[0], func() error {
				taken, err = c.Computers.Snapshot(cmd.Context(), args[0], spec, "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, taken)
			}
			fmt.Fprintf(a.Out, "snapshot %s of %s is kept; it stood still for %s\n", snapshotName(taken), taken.Computer, took(taken.PauseMS))
			a.say("next: holt computer fork %s --at %s", taken.Computer, snapshotName(taken))
			return nil
		},
	}
	cmd.Flags().StringVar(&spec.Name, "name", "", "what to call it, a DNS label (default: it has its id)")
	a.jsonFlag(cmd)
	return cmd
}

// snapshotName is what a person calls a snapshot.
func snapshotName(m holt.Snapshot) string {
	if m.Name != "" {
		return m.Name
	}
	return string(m.ID)
}

// snapshotSaid is the same for one of which only the id is known.
func snapshotSaid(ctx context.Context, c *client.Client, id holt.SnapshotID) string {
	m, err := c.Snapshots.Get(ctx, string(id))
	switch {
	case holt.CodeOf(err) == holt.NotFound:
		return string(id) + " (deleted)"
	case err != nil:
		return string(id)
	}
	return snapshotName(m)
}

func (a *app) computerFork() *cobra.Command {
	var spec holt.ComputerForkSpec
	var reach networkFlags
	cmd := &cobra.Command{
		Use: "fork NAME", Short: "Fork a computer while it runs, paused, or as it was at a snapshot", Args: exactly(1),
		Long: `Makes computers that go on from where NAME is now: with its processes, its
memory, its root disk and its workspace, each in copies of its own. Of a paused computer
it is what it was paused at, with --at one of its snapshots. NAME goes on. A fork
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
	cmd.Flags().StringVar(&spec.At, "at", "", "as it was at this moment, by name or id, or NAME@SNAPSHOT")
	cmd.Flags().StringVar(&spec.Name, "name", "", "name of the fork; with --count, prefix of the names")
	cmd.Flags().IntVar(&spec.Count, "count", 1, "number of forks")
	cmd.Flags().BoolVar(&spec.WithSecrets, "with-secrets", false, "give them the computer's host secrets (holt computer secret); without it they have none")
	reach.add(a, cmd)
	a.completeFlag(cmd, "at", a.snapshotNames)
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

func (a *app) snapshotCommand() *cobra.Command {
	return group("snapshot", "Kept instants of computers: memory, root disk and workspace", a.snapshotList(), a.snapshotShow(), a.snapshotDiff(), a.snapshotRestore(), a.snapshotDelete())
}

func (a *app) snapshotList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [COMPUTER]", Aliases: []string{"ls"}, Short: "List snapshots", Args: atLeast(0, 1),
		Long: `Lists snapshots, of one computer or of all, oldest first. Those that were asked
for (snapshot) stay until they are deleted; of those that a fork or a pause took
the last three of each computer stay. AFTER says which snapshot one goes on from, where
that is not the one above it. ON DISK is what its memory takes here; IN ARCHIVE by
how much the archive grew with it. What is there may leave the disk when memory takes
more of it than holt serve --snapshots-cache says, and is fetched when it is needed.
STOOD is how long the computer stood still for it; for a pause, until all was copied.`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Snapshots.List(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no snapshots yet; take one: holt computer snapshot NAME")
				return nil
			}
			known := all
			if len(args) > 0 { // the first may go on from another computer's
				if known, err = c.Snapshots.List(cmd.Context(), ""); err != nil {
					return err
				}
			}
			return printTable(a.Out, []string{"SNAPSHOT", "COMPUTER", "AFTER", "KIND", "TAKEN", "MEMORY", "ON DISK", "IN ARCHIVE", "STOOD", "FORKS"}, snapshotRows(all, known))
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// snapshotRows are the lines of a list; known are the snapshots of all computers.
func snapshotRows(all, known []holt.Snapshot) (rows [][]string) {
	slices.SortStableFunc(all, func(x, y holt.Snapshot) int { return strings.Compare(x.Computer, y.Computer) })
	names := map[holt.SnapshotID]string{}
	for _, m := range known {
		names[m.ID] = snapshotName(m)
	}
	var above holt.Snapshot
	for _, m := range all {
		after := ""
		if m.Parent != "" && (m.Parent != above.ID || m.ComputerID != above.ComputerID) {
			after = cmp.Or(names[m.Parent], string(m.Parent)+" (deleted)")
		}
		memory := size(int64(m.MemoryMB) << 20)
		if m.Stopped {
			memory = "none"
		}
		rows = append(rows, []string{snapshotName(m), m.Computer, after, string(m.Kind), ago(m.CreatedAt), memory,
			size(m.Bytes), inArchive(m), stood(m), dependents(m.Forks)})
		above = m
	}
	return rows
}

// inArchive says what the archive has of a snapshot.
func inArchive(m holt.Snapshot) string {
	switch {
	case m.Archived:
		return size(m.ArchivedBytes)
	case m.Kind == holt.SnapshotManual:
		return "not yet"
	}
	return ""
}

// stood says how long a computer stood still for a snapshot.
func stood(m holt.Snapshot) string {
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

func (a *app) snapshotShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show SNAPSHOT|COMPUTER@SNAPSHOT", Short: "Show a snapshot", Args: exactly(1),
		ValidArgsFunction: a.complete(a.snapshotNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			m, err := c.Snapshots.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, m)
			}
			return printTable(a.Out, nil, snapshotLines(m, func(id holt.SnapshotID) string { return snapshotSaid(cmd.Context(), c, id) }))
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// snapshotLines say what is known of a snapshot; called says what another is called.
func snapshotLines(m holt.Snapshot, called func(holt.SnapshotID) string) (rows [][]string) {
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

func (a *app) snapshotRestore() *cobra.Command {
	var yes bool
	var spec holt.SnapshotRestoreSpec
	cmd := &cobra.Command{
		Use: "restore SNAPSHOT|COMPUTER@SNAPSHOT", Short: "Take a computer back to one of its snapshots", Args: exactly(1),
		Long: `The same computer, with its name and identity, goes on from an older snapshot: its
memory, root disk, workspace and terminals are those of then. What it is until now becomes a
snapshot first, whose restore undoes this one; of a stopped computer, which has no memory, that
is its root disk and workspace. Runs and terminals that began since, whoever is attached, and
connections to elsewhere end. The workspace is another one under the same name; the one until
now stays, called after that and the snapshot of the present (einstein-before-restore), until
the last snapshot in it is deleted.
A restore that fails leaves the computer as it was; one that ran and cannot go on either stays
paused at the snapshot of its present.

For files alone, while everything goes on: holt workspace restore.
For a computer beside this one: holt computer fork --at.` + fmt.Sprintf(lastingHelp, seeComputers),
		Example: `  holt snapshot restore before-migration
  holt snapshot restore einstein@before-migration --yes`,
		ValidArgsFunction: a.complete(a.snapshotNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			m, err := c.Snapshots.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(yes, fmt.Sprintf("Take %s back to the snapshot %s, taken %s?", m.Computer, snapshotName(m), ago(m.CreatedAt))); err != nil {
				return err
			}
			var back holt.RestoredComputer
			err = a.lasts(c, string(m.ComputerID), "restoring", seeComputers, func() error {
				back, err = c.Snapshots.Restore(cmd.Context(), string(m.ID), spec, "")
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
	cmd.Flags().StringVar(&spec.Name, "name", "", "what to call the snapshot of the present (default: before-restore, or that and a number)")
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) sayRestored(snapshot string, back holt.RestoredComputer) {
	c, p := back.Computer, back.Present
	if p.ID == c.LastSnapshot {
		fmt.Fprintf(a.Out, "%s is %s; it was paused at %s, and went on from there\n", c.Name, c.State, visible(snapshot))
		return
	}
	fmt.Fprintf(a.Out, "%s is %s, as it was at %s; what it was until now is the snapshot %s\n", c.Name, c.State, visible(snapshot), snapshotName(p))
	if p.Stopped {
		a.say("it was stopped, so that snapshot has its root disk and workspace, and no memory")
	}
	a.say("undo: holt snapshot restore %s@%s", c.Name, snapshotName(p))
}

func (a *app) snapshotDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete SNAPSHOT|COMPUTER@SNAPSHOT...", Aliases: []string{"rm"}, Short: "Delete a snapshot; its forks go on", Args: exactly(1),
		Long: `Deletes a snapshot, by id, by a name that only one has, or as COMPUTER@SNAPSHOT. Computers
that were forked from it go on: what they share with it stays as long as they need it.
What it took in the archive is garbage then, and goes within two hours (now: holt archive
collect).
The workspace that a restore left goes with the last snapshot in it.`,
		ValidArgsFunction: a.completeAll(a.snapshotNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			m, err := c.Snapshots.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			what := alsoDeleted(holt.DeletedComputer{Forks: m.Forks}, "", "", " Its forks are kept: %s.")
			if err := a.confirm(yes, fmt.Sprintf("Delete snapshot %s of %s?%s", snapshotName(m), m.Computer, what)); err != nil {
				return err
			}
			freed, err := c.Snapshots.Delete(cmd.Context(), string(m.ID), "")
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
			fmt.Fprintf(a.Out, "snapshot %s is deleted, %s freed%s\n", snapshotName(m), size(freed.Bytes), shared)
			return nil
		},
	}
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

func (a *app) snapshotNames(ctx context.Context, c *client.Client) []string {
	all, _ := c.Snapshots.List(ctx, "")
	var out []string
	for _, m := range all {
		out = append(out, snapshotName(m)+"\t"+m.Computer)
	}
	return out
}
