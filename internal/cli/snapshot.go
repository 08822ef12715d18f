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
		Use: "snapshot NAME", Short: "Take a snapshot of a running computer", Args: exactly(1),
		Long: `A snapshot keeps the memory, root disk and workspace of a running computer at one instant. The
computer is halted for some hundredths of a second (longer without KVM), then continues. The snapshot
is kept until it is deleted. To return to it: holt snapshot restore. To create computers from it:
holt computer fork --at.` + fmt.Sprintf(lastingHelp, seeSnapshots),
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
			fmt.Fprintf(a.Out, "took snapshot %s of %s; it was halted for %s\n", snapshotName(taken), taken.Computer, took(taken.PauseMS))
			a.say("next: holt computer fork %s --at %s", taken.Computer, snapshotName(taken))
			return nil
		},
	}
	cmd.Flags().StringVar(&spec.Name, "name", "", "name of the snapshot, a DNS label (default: none, only its id)")
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
		Use: "fork NAME", Short: "Fork a computer, running, paused, or at a snapshot", Args: exactly(1),
		Long: `Creates computers with copies of NAME's processes, memory, root disk and workspace, as they are now,
or with --at as in a snapshot. NAME is not affected. A fork has its own name, machine id, SSH host
keys, entropy and clock; its open network connections are closed. It has the network policy of NAME,
unless --egress or --allow is given. To bring files back: holt workspace merge.` + fmt.Sprintf(lastingHelp, seeComputers),
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
	cmd.Flags().StringVar(&spec.At, "at", "", "fork this snapshot: a name, an id, or NAME@SNAPSHOT")
	cmd.Flags().StringVar(&spec.Name, "name", "", "name of the fork; with --count, prefix of the names")
	cmd.Flags().IntVar(&spec.Count, "count", 1, "number of forks")
	cmd.Flags().BoolVar(&spec.WithSecrets, "with-secrets", false, "copy the computer's host secrets to the forks (holt computer secret; default: none)")
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
			fmt.Fprintf(a.Out, "%s is running, forked from %s\n", visible(one.Name), visible(of))
		}
		failed.note(a, one.Name, one.Error)
	}
	return failed.err(len(forked.Computers))
}

func (a *app) snapshotCommand() *cobra.Command {
	return group("snapshot", "Saved states of computers: memory, root disk and workspace", a.snapshotList(), a.snapshotShow(), a.snapshotDiff(), a.snapshotRestore(), a.snapshotDelete())
}

func (a *app) snapshotList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [COMPUTER]", Aliases: []string{"ls"}, Short: "List snapshots", Args: atLeast(0, 1),
		Long: `Lists the snapshots of one computer or of all, oldest first. Snapshots of KIND manual are kept until
they are deleted. Of those taken by a fork or a pause, the last three of each computer are kept. AFTER
names the predecessor if it is not the one above. ON DISK is the disk space of the memory; IN ARCHIVE
is by how much the archive grew. Archived memory can leave the disk (holt serve --snapshots-cache) and
is fetched when needed. HALTED is how long the computer was halted; for a pause, until all was copied.`,
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
				a.say("no snapshots yet; take one with: holt computer snapshot NAME")
				return nil
			}
			known := all
			if len(args) > 0 { // the first may continue from another computer's
				if known, err = c.Snapshots.List(cmd.Context(), ""); err != nil {
					return err
				}
			}
			return printTable(a.Out, []string{"SNAPSHOT", "COMPUTER", "AFTER", "KIND", "TAKEN", "MEMORY", "ON DISK", "IN ARCHIVE", "HALTED", "FORKS"}, snapshotRows(all, known))
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
		memory = "none; the computer was stopped"
	}
	held, forced := "", ""
	if m.Throttle > 0 {
		held = fmt.Sprintf("processors throttled by up to %d %%, because memory changed quickly", m.Throttle)
	}
	if m.Forced {
		forced = "memory changed too quickly, so the rest was copied while the computer was halted"
	}
	rows = [][]string{
		{"id", string(m.ID)}, {"name", m.Name}, {"computer", m.Computer}, {"workspace", visible(m.Workspace)}, {"kind", string(m.Kind)}, {"after", after},
		{"taken", ago(m.CreatedAt)}, {"cpus", fmt.Sprint(m.CPUs)}, {"memory", memory},
		{"on disk", size(m.Bytes)}, {"in archive", inArchive(m)}, {"halted", stood(m)}, {"forks", dependents(m.Forks)}, {"throttled", held}, {"forced", forced},
	}
	return slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
}

func (a *app) snapshotRestore() *cobra.Command {
	var yes bool
	var spec holt.SnapshotRestoreSpec
	cmd := &cobra.Command{
		Use: "restore SNAPSHOT|COMPUTER@SNAPSHOT", Short: "Restore a computer to one of its snapshots", Args: exactly(1),
		Long: `Restores a computer's memory, root disk, workspace and terminals from a snapshot. It keeps its name
and identity. The current state is saved as a snapshot first; restore that to revert. (The snapshot of
a stopped computer has no memory.)

The restore ends runs and terminals that started after the snapshot, attached clients, and network
connections. The workspace is replaced; the previous one is kept under a new name, such as
einstein-before-restore, until the last snapshot that uses it is deleted.

If the restore fails, the computer keeps its current state. If a running computer cannot continue, it
stays paused at the snapshot of its current state.

To restore only files, without interrupting the computer: holt workspace restore.
To get a second computer instead: holt computer fork --at.` + fmt.Sprintf(lastingHelp, seeComputers),
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
			if err := a.confirm(yes, fmt.Sprintf("Restore %s to the snapshot %s, taken %s?", m.Computer, snapshotName(m), ago(m.CreatedAt))); err != nil {
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
	cmd.Flags().StringVar(&spec.Name, "name", "", "name of the snapshot of the current state (default: before-restore, or that with a number)")
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) sayRestored(snapshot string, back holt.RestoredComputer) {
	c, p := back.Computer, back.Present
	if p.ID == c.LastSnapshot {
		fmt.Fprintf(a.Out, "%s is %s; it was paused at %s and continued from there\n", c.Name, c.State, visible(snapshot))
		return
	}
	fmt.Fprintf(a.Out, "%s is %s, restored to %s; its previous state is the snapshot %s\n", c.Name, c.State, visible(snapshot), snapshotName(p))
	if p.Stopped {
		a.say("the computer was stopped, so that snapshot has no memory")
	}
	a.say("revert with: holt snapshot restore %s@%s", c.Name, snapshotName(p))
}

func (a *app) snapshotDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete SNAPSHOT|COMPUTER@SNAPSHOT...", Aliases: []string{"rm"}, Short: "Delete a snapshot; its forks are kept", Args: exactly(1),
		Long: `Deletes a snapshot, given by its id, its name if that is unique, or COMPUTER@SNAPSHOT. Its forks are
not affected: data that they share with it is kept as long as they need it. Its space in the archive
is freed within two hours (immediately: holt archive collect). A workspace that a restore replaced is
deleted with the last snapshot that uses it.`,
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
				shared = "; its forks are kept: " + dependents(freed.Forks)
			}
			if freed.Workspace != "" {
				shared += "; also deleted, the workspace " + freed.Workspace + ""
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
