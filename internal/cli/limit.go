package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) limitCommand() *cobra.Command {
	return group("limit", "What tenants may have", a.limitSet(), a.limitShow())
}

// limitHelp says how limits count.
const limitHelp = `A tenant is whose a token is; what is made without one is the tenant default's, and a fork is its
parent's. Paused and stopped computers count as computers and for their disks, not as running ones nor for memory.
Disks are root disks, and workspaces that were made with computers.`

func (a *app) limitSet() *cobra.Command {
	var tenant string
	var computers, running int
	var memory, disk int64
	var run time.Duration
	cmd := &cobra.Command{
		Use: "set", Short: "Change what a tenant may have", Args: exactly(0),
		Long: `Changes what all computers of a tenant may have together. What would take more is refused at once
(exit status 5, code too_many) with what is used and by which computers; jobs wait until there is room. What
is there already stays. One that has run for as long as --max-run-time in one go is paused, and may be woken again; a job fails with it.

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
				return holt.Errorf(holt.InvalidArgument, "nothing is to be changed").WithHint("give at least one limit, as --max-running 4; 0 takes one away")
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
	f.StringVar(&tenant, "tenant", holt.DefaultTenant, "whose limits")
	f.IntVar(&computers, "max-computers", 0, "computers, whatever their state; 0: no limit")
	f.IntVar(&running, "max-running", 0, "computers that are neither paused nor stopped; 0: no limit")
	f.Int64Var(&memory, "max-memory-mb", 0, "memory of computers that are neither paused nor stopped, MiB; 0: no limit")
	f.Int64Var(&disk, "max-disk-mb", 0, "sizes of all root disks and of computers' own workspaces, MiB; 0: no limit")
	f.DurationVar(&run, "max-run-time", 0, "how long one may run without being paused or stopped, as 10h; 0: no limit")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) limitShow() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use: "show", Short: "Show what tenants may have, and what they have", Args: exactly(0),
		Long: "Shows what the tenants that have limits or computers have, and of how much.\n\n" + limitHelp,
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
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this one's")
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
