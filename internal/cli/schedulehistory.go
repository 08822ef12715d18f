package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) scheduleRun() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run SCHEDULE", Short: "Run a schedule's command now", Args: exactly(1),
		Long: `Runs the command of a schedule now, as if it were due, also if it is disabled. Its computer is woken,
and paused or stopped again afterwards. Prints the run's id.`,
		Example: `  holt schedule run nightly
  holt run follow $(holt schedule run nightly --json | jq -r .run)`,
		ValidArgsFunction: a.complete(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			s, err := c.Schedules.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var fired holt.Firing
			err = a.lasts(c, s.Computer, "waking", "holt schedule history "+args[0], func() error {
				fired, err = c.Schedules.Run(cmd.Context(), string(s.ID), "")
				return err
			})
			if err != nil {
				return err
			}
			if fired.State == holt.FiringFailed {
				return holt.Errorf(holt.Unavailable, "the command could not be run: %s", fired.Reason).WithHint("see the history with: holt schedule history %s", args[0])
			}
			if a.wantsJSON() {
				return printJSON(a.Out, fired)
			}
			if fired.Run == "" {
				fmt.Fprintf(a.Out, "%s: %s\n", fired.State, visible(fired.Reason))
				return nil
			}
			fmt.Fprintln(a.Out, fired.Run)
			a.say("next: holt run follow %s", fired.Run)
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) scheduleHistory() *cobra.Command {
	limit := mostRunsShown
	cmd := &cobra.Command{
		Use: "history SCHEDULE", Aliases: []string{"runs"}, Short: "Show a schedule's past firings, newest first", Args: exactly(1),
		Long: `Lists the times at which a schedule was due. Each was run, skipped (the previous run was in progress),
missed (the daemon was down or the host was asleep), or failed to run. WHY has the reason. DUE is in the
schedule's time zone. The last 200 are kept. For the output of a run: holt run follow RUN.`,
		Example:           "  holt schedule history nightly -n 5",
		ValidArgsFunction: a.complete(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			list, err := c.Schedules.History(cmd.Context(), args[0], limit)
			switch {
			case err != nil:
				return err
			case a.wantsJSON():
				return printJSON(a.Out, list)
			case len(list) == 0:
				a.say("not due yet; run it now with: holt schedule run %s", args[0])
				return nil
			}
			s, err := c.Schedules.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			zone := zoneOf(s)
			return printTable(a.Out, []string{"DUE (" + zone.String() + ")", "STATE", "RUN", "LATE", "TOOK", "WHY"}, firingRows(list, zone))
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", mostRunsShown, "number of firings to show, at most 200")
	a.jsonFlag(cmd)
	return cmd
}

// zoneOf is the zone by whose clock a schedule goes, as far as it is known here.
func zoneOf(s holt.Schedule) *time.Location {
	if zone, err := time.LoadLocation(s.TimeZone); err == nil {
		return zone
	}
	return time.UTC
}

func firingRows(list []holt.Firing, zone *time.Location) [][]string {
	rows := make([][]string, len(list))
	for i, f := range list {
		due := calendar(f.Due.In(zone))
		if f.Until != nil {
			due += " to " + calendar(f.Until.In(zone))
		}
		if f.Manual {
			due += " (manual)"
		}
		run, late, took := "-", "-", "-"
		if f.Run != "" {
			run = string(f.Run)
		}
		if f.StartedAt != nil {
			late = span(max(0, f.StartedAt.Sub(f.Due)))
			end := time.Now()
			if f.EndedAt != nil {
				end = *f.EndedAt
			}
			took = soFar(span(max(0, end.Sub(*f.StartedAt))), f.EndedAt == nil)
		}
		rows[i] = []string{due, firingState(f), run, late, took, visible(f.Reason)}
	}
	return rows
}

// firingState says what became of a firing, in a word or two.
func firingState(f holt.Firing) string {
	switch {
	case f.State == holt.FiringExited && f.TimedOut:
		return "timed out"
	case f.State == holt.FiringExited:
		return fmt.Sprintf("exit %d", f.ExitCode)
	case f.Count > 1:
		return fmt.Sprintf("%d %s", f.Count, f.State)
	}
	return string(f.State)
}
