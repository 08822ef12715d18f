package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) computerDiff() *cobra.Command {
	return a.diffCommand("Show what differs between two computers or snapshots", "  holt computer diff attempt-1 attempt-2\n  holt computer diff einstein@before-migration einstein")
}

func (a *app) snapshotDiff() *cobra.Command {
	return a.diffCommand("Show what differs between two snapshots or computers", "  holt snapshot diff before-migration after-migration\n  holt snapshot diff before-migration einstein")
}

func (a *app) diffCommand(short, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff A B", Short: short, Args: exactly(2), Example: example,
		Long: `Shows what must change in A to make it equal to B: files of the workspace and the root disk,
packages (dpkg), processes and listening ports. A and B are computers in their current state, or
snapshots: a name, an id, or COMPUTER@SNAPSHOT. Workspace files are compared by content, also between
forks. The other parts come from the guest: of a running computer now; of a snapshot or a paused
computer from just before the snapshot was taken; of a fork from just after.

Files of the root disk are compared in /etc, /root, /home, /opt, /srv, /usr/local, /var/www,
/var/spool/cron and top-level directories that no package owns, by size, time, mode and owner. Files that
always differ (/etc/hostname, /etc/hosts, /etc/machine-id, SSH host keys), caches and mounts are left out.

The output lists up to 1000 differences of each kind, also with --json, and counts the rest.
To copy files of B to A: holt workspace merge B A --path PATH`,
		ValidArgsFunction: a.completeAll(a.diffSides),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			var d holt.ComputerDiff
			err = a.wait("comparing", func() error {
				d, err = c.Snapshots.Diff(cmd.Context(), args[0], args[1])
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, d)
			}
			a.sayDiff(d)
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// diffSides completes computers and snapshots with names.
func (a *app) diffSides(ctx context.Context, c *client.Client) []string {
	out := a.computerNames(ctx, c)
	all, _ := c.Snapshots.List(ctx, "") // no daemon, no names
	for _, m := range all {
		if m.Name != "" {
			out = append(out, m.Computer+"@"+m.Name+"\tsnapshot")
		}
	}
	return out
}

func (a *app) sayDiff(d holt.ComputerDiff) {
	a.say("from %s to %s", sideName(d.From), sideName(d.To))
	if d.Files.Unrelated != "" {
		fmt.Fprintf(a.Out, "files      not compared: %s\n", visible(d.Files.Unrelated))
	} else {
		a.section("files", d.Files.Counts.Total() == 0, countsLine(d.Files.Counts))
		a.listChanges(d.Files.Changes, d.Files.Omitted, "--json lists 1000")
	}
	a.sayRootFiles(d)
	if d.Unlisted {
		for _, side := range []holt.DiffSide{d.From, d.To} {
			if side.Unlisted != "" {
				why := visible(side.Unlisted)
				if !strings.HasPrefix(why, sideName(side)+" ") { // it says of whom
					why = sideName(side) + ": " + why
				}
				fmt.Fprintf(a.Out, "root disk, packages, processes and ports are not compared: %s\n", why)
			}
		}
		return
	}
	var lines []string
	for _, p := range d.Packages.Changes {
		switch {
		case p.Before == "":
			lines = append(lines, a.paint(a.Out, green, "+")+" "+visible(p.Name+" "+p.After))
		case p.After == "":
			lines = append(lines, a.paint(a.Out, red, "-")+" "+visible(p.Name+" "+p.Before))
		default:
			lines = append(lines, a.paint(a.Out, yellow, "~")+" "+visible(p.Name+" "+p.Before+" -> "+p.After))
		}
	}
	a.list("packages", lines, d.Packages.Omitted, "")
	lines = nil
	for _, p := range d.Processes.Gone {
		lines = append(lines, a.processLine(red, "-", p))
	}
	for _, p := range d.Processes.Came {
		lines = append(lines, a.processLine(green, "+", p))
	}
	a.list("processes", lines, d.Processes.Omitted, fmt.Sprintf("%d in both", d.Processes.Same))
	lines = nil
	for _, p := range d.Ports.Gone {
		lines = append(lines, a.portLine(red, "-", p))
	}
	for _, p := range d.Ports.Came {
		lines = append(lines, a.portLine(green, "+", p))
	}
	a.list("ports", lines, d.Ports.Omitted, fmt.Sprintf("%d in both", d.Ports.Same))
	if d.Omitted > 0 {
		fmt.Fprintf(a.Out, "%d more files, packages, processes and ports were not compared: a computer has too many\n", d.Omitted)
	}
}

func (a *app) sayRootFiles(d holt.ComputerDiff) {
	files := d.RootFiles
	switch {
	case d.Unlisted:
		return
	case files.Unlisted != "":
		a.section("root disk", false, "not compared: "+visible(files.Unlisted))
		return
	}
	a.section("root disk", files.Counts.Total() == 0, countsLine(files.Counts))
	a.listChanges(files.Changes, files.Omitted, "--json lists 1000")
	if n := len(files.Unread); n > 0 {
		where := shown(files.Unread[0])
		if n > 1 {
			where += fmt.Sprintf(" and %d more; --json lists them", n-1)
		}
		fmt.Fprintf(a.Out, "  not compared completely, too many files: %s\n", where)
	}
}

func (a *app) processLine(colour, sign string, p holt.Process) string {
	return fmt.Sprintf("%s %6d  %-8s  %s", a.paint(a.Out, colour, sign), p.PID, visible(p.User), clipLine(shown(p.Command), 100))
}

func (a *app) portLine(colour, sign string, p holt.Port) string {
	line := fmt.Sprintf("%s %s %s:%d", a.paint(a.Out, colour, sign), visible(p.Protocol), visible(p.Address), p.Port)
	if p.Process != "" {
		line += fmt.Sprintf("  %s (%d)", visible(p.Process), p.PID)
	}
	return line
}

// section heads a part of a comparison.
func (a *app) section(name string, same bool, what string) {
	if same {
		what = "the same"
	}
	fmt.Fprintf(a.Out, "%-9s  %s\n", name, what)
}

// list prints a part of a comparison: how many differ, and the first of them.
func (a *app) list(name string, lines []string, omitted int, beside string) {
	what := fmt.Sprintf("%d differ", len(lines)+omitted)
	if len(lines) == 1 && omitted == 0 {
		what = "1 differs"
	}
	a.section(name, len(lines) == 0, strings.TrimSuffix(what+", "+beside, ", "))
	for _, line := range lines[:min(len(lines), mostShown)] {
		fmt.Fprintln(a.Out, "  "+line)
	}
	if more := omitted + max(0, len(lines)-mostShown); more > 0 {
		fmt.Fprintf(a.Out, "  and %d more; --json lists 1000\n", more)
	}
}

// sideName is what a person calls one side.
func sideName(s holt.DiffSide) string {
	if s.Snapshot == "" {
		return visible(s.Computer)
	}
	return visible(s.Computer + "@" + cmp.Or(s.Name, string(s.Snapshot)))
}
