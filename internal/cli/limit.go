package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) limitCommand() *cobra.Command {
	return group("limit", "Resource limits of tenants", a.limitSet(), a.limitShow())
}

// limitHelp says how limits count.
const limitHelp = `A token belongs to a tenant, and so does everything created with it; without a token the tenant is default.
A fork belongs to the tenant of its parent. Paused and stopped computers count as computers and for their disks,
but not as running ones and not for memory. Disks are root disks and workspaces that were created with computers.`

func (a *app) limitSet() *cobra.Command {
	var tenant string
	var computers, running int
	var memory, disk int64
	var run time.Duration
	cmd := &cobra.Command{
		Use: "set", Short: "Change the limits of a tenant", Args: exactly(0),
		Long: `Sets limits for all computers of a tenant together. An operation that exceeds a limit fails (exit status 5, code
too_many); the error shows the current use and the computers. Jobs are queued instead. Existing computers are not
changed. A computer that runs longer than --max-run-time without a pause is paused, and can be woken again; a job
fails then.

` + limitHelp,
		Example: `  holt limit set --max-computers 20 --max-running 4 --max-memory-mb 8192
  holt limit set --tenant team-a --max-run-time 10h
  holt limit set --tenant team-a --max-disk-mb 0   # no limit any more`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var change holt.LimitChange
			given := cmd.Flags().Changed
			if given("max-computers") {
				change.MaxComputers = &computers
			}
			if given("max-running") {
				change.MaxRunning = &running
			}
			if given("max-memory-mb") {
				change.MaxMemoryMB = &memory
			}
			if given("max-disk-mb") {
				change.MaxDiskMB = &disk
			}
			if given("max-run-time") {
				change.MaxRunMS = rounded(float64(run) / float64(time.Millisecond))
			}
			if change == (holt.LimitChange{}) {
				return holt.Errorf(holt.InvalidArgument, "no change is given").WithHint("add at least one limit, such as --max-running 4; 0 removes one")
			}
			if err := change.Apply(&holt.Limit{}); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			got, err := c.Limits.Set(cmd.Context(), tenant, change, "")
			if err != nil {
				return err
			}
			return a.printLimits([]holt.Limit{got}, got)
		},
	}
	f := cmd.Flags()
	f.StringVar(&tenant, "tenant", holt.DefaultTenant, "the tenant")
	f.IntVar(&computers, "max-computers", 0, "number of computers in any state; 0: no limit")
	f.IntVar(&running, "max-running", 0, "number of running computers; 0: no limit")
	f.Int64Var(&memory, "max-memory-mb", 0, "memory of running computers, MiB; 0: no limit")
	f.Int64Var(&disk, "max-disk-mb", 0, "total size of root disks and computers' own workspaces, MiB; 0: no limit")
	f.DurationVar(&run, "max-run-time", 0, "how long a computer may run without a pause or stop, such as 10h; 0: no limit")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) limitShow() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use: "show", Short: "Show the limits and the use of tenants", Args: exactly(0),
		Long: "Shows the limits and the current use of tenants that have limits or computers.\n\n" + limitHelp,
		Example: `  holt limit show
  holt limit show --tenant team-a --json | jq .used.running`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if tenant != "" {
				l, err := c.Limits.Get(cmd.Context(), tenant)
				if err != nil {
					return err
				}
				return a.printLimits([]holt.Limit{l}, l)
			}
			all, err := c.Limits.List(cmd.Context())
			if err != nil {
				return err
			}
			return a.printLimits(all, all)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant")
	a.jsonFlag(cmd)
	return cmd
}

// printLimits shows what tenants have, and of how much.
func (a *app) printLimits(all []holt.Limit, answer any) error {
	if a.wantsJSON() {
		return printJSON(a.Out, answer)
	}
	of := func(used, limit int64, say func(int64) string) string {
		if limit == 0 {
			return say(used)
		}
		return say(used) + " of " + say(limit)
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	mb := func(n int64) string { return size(n << 20) }
	rows := make([][]string, len(all))
	for i, l := range all {
		run := "-"
		if l.MaxRunMS > 0 {
			run = "at most " + holt.ShortMS(l.MaxRunMS)
		}
		rows[i] = []string{l.Tenant, of(int64(l.Used.Computers), int64(l.MaxComputers), number), of(int64(l.Used.Running), int64(l.MaxRunning), number),
			of(l.Used.MemoryMB, l.MaxMemoryMB, mb), of(l.Used.DiskMB, l.MaxDiskMB, mb), run}
	}
	return printTable(a.Out, []string{"TENANT", "COMPUTERS", "RUNNING", "MEMORY", "DISKS", "RUN TIME"}, rows)
}
