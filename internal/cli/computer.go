package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holt"
	"holt/client"
)

func (a *app) computerCommand() *cobra.Command {
	return group("computer", "Linux machines for agents",
		a.computerCreate(), a.computerList(), a.computerGet(), a.computerRun(),
		a.computerLife("start", "Start a stopped computer, or resume a paused one", startHelp, client.Computers.Start),
		a.computerLife("stop", "Shut a computer down; its disks are kept", "", client.Computers.Stop),
		a.computerLife("pause", "Pause a computer; its memory and disks are kept", "", client.Computers.Pause),
		a.computerLife("resume", "Resume a paused computer", "", client.Computers.Resume),
		a.computerUpdate(), a.computerWhyAwake(), a.computerHold(), a.computerHolds(), a.computerRelease(),
		a.computerSnapshot(), a.computerFork(), a.computerDiff(), a.computerResize(), a.computerBudget(),
		a.computerPorts(), a.computerForward(), a.computerConnect(), a.computerSSH(), a.computerSSHProxy(),
		a.computerNetwork(), a.computerSecret(), a.computerPreview(), a.computerPreviews(), a.computerDomain(), a.computerDelete(), a.computerLogs(), a.computerCopy(), a.computerUndo())
}

func (a *app) computerCreate() *cobra.Command {
	var spec holt.ComputerSpec
	var reach networkFlags
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create and start a computer",
		Long: `Creates a computer and returns when it accepts commands. Without NAME it gets a scientist's name.

If the template has a boot snapshot with the same number of processors and memory (READY in holt
image list), the computer starts from that in a fraction of a boot, with its own name, clock and
keys. Otherwise the template is booted first, and a boot snapshot is kept for the next computer.`,
		Example: `  holt computer create einstein --template coding-agent --disk-size-mb 10240
  holt computer create --allow registry.example.com --allow '*.debian.org'
  holt computer create --json | jq -r .name`,
		Args: atLeast(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				switch {
				case args[0] == "":
					return holt.Errorf(holt.InvalidArgument, "the computer name is empty").WithHint("give a name, or leave NAME out for an automatic one")
				case spec.Name != "" && spec.Name != args[0]:
					return holt.Errorf(holt.InvalidArgument, "two names for one computer: %q and %q", args[0], spec.Name).WithHint("use either NAME or --name")
				}
				spec.Name = args[0]
			}
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			spec.Network = reach.policy(cmd, holt.NetworkPolicy{})
			if strings.Contains(spec.Template, "/") && !holt.OCIReference(spec.Template) { // a recipe file; the daemon has another working directory
				path, err := filepath.Abs(spec.Template)
				if err != nil {
					return err
				}
				spec.Template = path
			}
			var made holt.Computer
			err = a.wait("creating (boots the template first, unless it has a boot snapshot)", func() error {
				made, err = c.Computers.Create(cmd.Context(), spec, "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, made)
			}
			fmt.Fprintf(a.Out, "%s is running with workspace %s; ready after %.1f s\n", made.Name, made.Workspace, float64(made.BootMS)/1000)
			a.say("next: holt computer run %s \"df -h / /home/agent\"", made.Name)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&spec.Name, "name", "", "as NAME: a DNS label")
	f.StringVar(&spec.Template, "template", "", "source of the root disk: a template, the path of a recipe, or an OCI image (default: base)")
	engineFlag(cmd, &spec.Engine)
	f.IntVar(&spec.CPUs, "cpus", 0, "virtual processors (default: 1)")
	f.IntVar(&spec.MemoryMB, "memory-mb", 0, "memory, MiB (default: 1024)")
	f.IntVar(&spec.DiskSizeMB, "disk-size-mb", 0, "root disk, MiB (default: 10240)")
	f.IntVar(&spec.WorkspaceSizeMB, "workspace-size-mb", 0, "size limit of its new workspace, MiB (default: none, or 20480 if the tenant has a disk limit)")
	f.StringVar(&spec.Workspace, "workspace", "", "an existing workspace to mount (default: a new one with the computer's name)")
	idleFlag(cmd, &spec.IdleTimeout, "pause it after it was idle for this long, such as 2h; null: never (default: 15m)")
	reach.add(a, cmd)
	secretsOfFlag(a, cmd, &spec.SecretsOf)
	a.jsonFlag(cmd)
	a.completeFlag(cmd, "template", a.templateNames)
	a.completeFlag(cmd, "workspace", a.workspaceNames)
	return cmd
}

// engineFlag adds --engine of a new computer.
func engineFlag(cmd *cobra.Command, engine *string) {
	cmd.Flags().StringVar(engine, "engine", "", "what runs it: qemu (a virtual machine with a kernel of its own) or gvisor (a sandbox, much faster without KVM; no Docker or kernel modules) (default: what the template needs, or else the daemon's default)")
	if err := cmd.RegisterFlagCompletionFunc("engine", cobra.FixedCompletions([]cobra.Completion{"qemu", "gvisor"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag's name is misspelt
	}
}

func (a *app) computerList() *cobra.Command {
	var jobs bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List computers", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Computers.List(cmd.Context())
			if err != nil {
				return err
			}
			if !jobs {
				all = slices.DeleteFunc(all, func(c holt.Computer) bool { return c.Job != "" })
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no computers yet; create one with: holt computer create")
				return nil
			}
			rows := make([][]string, len(all))
			for i, c := range all {
				rows[i] = []string{c.Name, string(c.State), c.Template, fmt.Sprint(c.CPUs), size(int64(c.MemoryMB) << 20), size(int64(c.DiskSizeMB) << 20), c.Workspace, uptime(c), ago(c.CreatedAt)}
			}
			return printTable(a.Out, []string{"NAME", "STATE", "TEMPLATE", "CPUS", "MEMORY", "ROOT DISK", "WORKSPACE", "UPTIME", "CREATED"}, rows)
		},
	}
	cmd.Flags().BoolVar(&jobs, "all", false, "include computers of jobs")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) computerGet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get NAME", Aliases: []string{"show"}, Short: "Show a computer", Args: exactly(1),
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			got, err := c.Computers.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printComputer(got, func(id holt.SnapshotID) string { return snapshotSaid(cmd.Context(), c, id) })
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// printComputer shows a computer; called says what a snapshot is called.
func (a *app) printComputer(c holt.Computer, called func(holt.SnapshotID) string) error {
	if a.wantsJSON() {
		return printJSON(a.Out, c)
	}
	state := string(c.State)
	if c.Reason != "" {
		state += " (" + c.Reason + ")"
	}
	rows := [][]string{
		{"name", c.Name}, {"id", string(c.ID)}, {"state", state}, {"template", c.Template}, {"engine", c.Engine},
		{"cpus", fmt.Sprint(c.CPUs)}, {"memory", size(int64(c.MemoryMB) << 20)}, {"root disk", size(int64(c.DiskSizeMB) << 20)},
		{"workspace", c.Workspace}, {"created", ago(c.CreatedAt)},
	}
	if c.Job != "" {
		rows = append(rows, []string{"job", string(c.Job)})
	}
	if p := pendingText(c.Pending); p != "" {
		rows = append(rows, []string{"pending", p})
	}
	if p := c.Parent; p != nil {
		rows = append(rows, []string{"forked from", fmt.Sprintf("%s at %s", visible(parentName(p.Name, p.Was, string(p.ID))), called(p.Snapshot))})
	}
	if c.Snapshot != "" {
		rows = append(rows, []string{"paused at", called(c.Snapshot)})
	} else if c.LastSnapshot != "" {
		rows = append(rows, []string{"last snapshot", called(c.LastSnapshot)})
	}
	if w := c.AtWork; w != nil {
		rows = append(rows, []string{"at work", fmt.Sprintf("%s, for %s", visible(w.Verb), span(time.Duration(w.ForMS)*time.Millisecond))})
	}
	rows = append(rows, idleRows(c)...)
	rows = append(rows, budgetRows(c)...)
	if c.StartedAt != nil {
		rows = append(rows, []string{"started", fmt.Sprintf("%s, ready after %.1f s", ago(*c.StartedAt), float64(c.BootMS)/1000)}, []string{"uptime", uptime(c)})
	}
	return printTable(a.Out, nil, rows)
}

// uptime says how long a computer has been running.
func uptime(c holt.Computer) string {
	if c.State != holt.ComputerRunning || c.StartedAt == nil {
		return "-"
	}
	return span(time.Since(*c.StartedAt))
}

// The commands that show what becomes of computers and snapshots.
const seeComputers, seeSnapshots = "holt computer list", "holt snapshot list"

const startHelp = ` A stopped computer boots. A paused one is resumed; to boot
it instead, stop it first. A running computer is not changed.`

// computerLife makes a verb that changes a computer's state; more is what its help says beside short.
func (a *app) computerLife(verb, short, more string, call func(client.Computers, context.Context, string, string) (holt.Computer, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " NAME...", Short: short, Args: exactly(1), Long: short + "." + more + fmt.Sprintf(lastingHelp, seeComputers),
		ValidArgsFunction: a.completeAll(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			var got holt.Computer
			err = a.lasts(c, args[0], verb, seeComputers, func() error {
				got, err = call(c.Computers, cmd.Context(), args[0], "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, got)
			}
			fmt.Fprintf(a.Out, "%s is %s\n", got.Name, got.State)
			return nil
		},
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

func (a *app) computerDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME...", Aliases: []string{"rm"}, Short: "Delete a computer with its root disk and the workspace that was made with it", Args: exactly(1),
		Long: `Deletes a computer with its root disk, snapshots and schedules, and the workspace that was created
with it. A workspace that existed before is kept. Forks of the computer are not affected. The
command lists the snapshots and schedules that were deleted and the forks that are kept.`,
		ValidArgsFunction: a.completeAll(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			got, err := c.Computers.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var with holt.DeletedComputer
			if a.asks(yes) {
				if with, err = relatives(cmd.Context(), c, got.ID); err != nil {
					return err
				}
			}
			what := alsoDeleted(with, " This deletes its snapshots: %s.", " This deletes its schedules: %s.", " Its forks are kept: %s.")
			if err := a.confirm(yes, fmt.Sprintf("Delete %s with its root disk and, if it was created with it, workspace %s?%s", got.Name, got.Workspace, what)); err != nil {
				return err
			}
			err = a.lasts(c, got.Name, "deleting", seeComputers, func() error {
				with, err = c.Computers.Delete(cmd.Context(), string(got.ID), "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, struct {
					Deleted string `json:"deleted"`
					holt.DeletedComputer
				}{got.Name, with})
			}
			fmt.Fprintf(a.Out, "%s is deleted%s\n", got.Name, alsoDeleted(with, "; its snapshots are deleted: %s", "; its schedules are deleted: %s", "; its forks are kept: %s"))
			return nil
		},
	}
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

// relatives are what goes with a computer and what came from it, as far as that is known before.
func relatives(ctx context.Context, c *client.Client, id holt.ComputerID) (with holt.DeletedComputer, err error) {
	snapshots, err := c.Snapshots.List(ctx, string(id))
	if err != nil {
		return with, err
	}
	for _, m := range snapshots {
		with.Snapshots = append(with.Snapshots, holt.NamedSnapshot{ID: m.ID, Name: m.Name})
	}
	schedules, err := c.Schedules.List(ctx, string(id))
	if err != nil {
		return with, err
	}
	for _, s := range schedules {
		with.Schedules = append(with.Schedules, s.Name)
	}
	all, err := c.Computers.List(ctx)
	for _, one := range all {
		if one.Parent != nil && one.Parent.ID == id {
			with.Forks = append(with.Forks, holt.Dependent{ID: one.ID, Name: one.Name})
		}
	}
	return with, err
}

// alsoDeleted says what goes with a computer and what came from it, in these words.
func alsoDeleted(with holt.DeletedComputer, snapshots, schedules, forks string) (what string) {
	if len(with.Snapshots) > 0 {
		var names []string
		for _, m := range with.Snapshots {
			names = append(names, cmp.Or(m.Name, string(m.ID)))
		}
		what += fmt.Sprintf(snapshots, visible(strings.Join(names, ", ")))
	}
	if len(with.Schedules) > 0 {
		what += fmt.Sprintf(schedules, visible(strings.Join(with.Schedules, ", ")))
	}
	if len(with.Forks) > 0 {
		what += fmt.Sprintf(forks, dependents(with.Forks))
	}
	return what
}

// deleted says that something is gone.
func (a *app) deleted(name string) error {
	if a.wantsJSON() {
		return printJSON(a.Out, map[string]string{"deleted": name})
	}
	fmt.Fprintf(a.Out, "%s is deleted\n", name)
	return nil
}

func (a *app) computerLogs() *cobra.Command {
	var q holt.LogQuery
	cmd := &cobra.Command{
		Use: "logs NAME", Short: "Print the machine's console log", Args: exactly(1),
		Long: `Prints the last MiB that the machine wrote to its console, across starts. A kernel that
boots without problems writes almost nothing there. Services log to the journal inside:
holt computer run NAME -u root "journalctl -b"`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			out := &counted{w: a.Out}
			if isTerminal(a.Out) { // a guest chose these bytes
				out.w = &consoleWriter{w: a.Out}
			}
			err = c.Computers.Logs(cmd.Context(), args[0], q, out)
			if q.Follow && cmd.Context().Err() != nil {
				return nil // Ctrl-C is how one stops following
			}
			if err == nil && out.n < littleSaid && q.TailBytes == 0 {
				a.say(`for the logs of services: holt computer run %s -u root "journalctl -b"`, args[0])
			}
			return err
		},
	}
	cmd.Flags().Int64Var(&q.TailBytes, "tail-bytes", 0, "only this many bytes from the end")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "keep printing new output")
	return cmd
}

// littleSaid is less than a machine writes to its console, in bytes, that has
// trouble to boot.
const littleSaid = 1 << 10

// counted counts what is written to w, in bytes.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// refuseEmptyFlags is for flags whose zero value means the default: an unset
// shell variable must not silently choose it. None of them can be negative.
func refuseEmptyFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		v := f.Value.String()
		number := f.Value.Type() != "string" && strings.HasPrefix(v, "-")
		if v == "" || v == "0" || v == "0s" || number {
			hint := "use a value above 0, or leave --%s out"
			if f.Value.Type() == "string" {
				hint = "leave --%s out to use its default"
			}
			err = holt.Errorf(holt.InvalidArgument, "invalid --%s %q", f.Name, v).WithHint(hint, f.Name)
		}
	})
	return err
}

// connectFor is [app.connect] for a command that refuses empty flags.
func (a *app) connectFor(cmd *cobra.Command) (*client.Client, error) {
	if err := refuseEmptyFlags(cmd); err != nil {
		return nil, err
	}
	return a.connect()
}
