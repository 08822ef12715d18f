package cli

import (
	"github.com/spf13/cobra"

	"holt"
)

func (a *app) scheduleEnable() *cobra.Command {
	cmd := a.enabling("enable", true)
	cmd.Short = "Let a schedule run again, from now on"
	cmd.Long = `Lets a schedule run again that was disabled. What was due meanwhile is not missed: the next
run is the one that is due next. One that is enabled already stays as it is.`
	cmd.Example = "  holt schedule enable nightly"
	return cmd
}

func (a *app) scheduleDisable() *cobra.Command {
	cmd := a.enabling("disable", false)
	cmd.Short = "Keep a schedule, and run nothing of it until it is enabled"
	cmd.Long = `Keeps a schedule with its history, and runs nothing of it until it is enabled. A run that
goes on is left alone (holt run signal ends it), and holt schedule run still runs it now.
One that is disabled already stays as it is.`
	cmd.Example = "  holt schedule disable einstein@nightly"
	return cmd
}

// enabling is the one or the other.
func (a *app) enabling(verb string, enabled bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " SCHEDULE", Args: exactly(1), ValidArgsFunction: a.complete(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			changed, err := c.Schedules.Update(cmd.Context(), args[0], holt.ScheduleChange{Enabled: &enabled}, "")
			if err != nil {
				return err
			}
			return a.sayChanged(changed, "is "+verb+"d")
		},
	}
	a.jsonFlag(cmd)
	return cmd
}
