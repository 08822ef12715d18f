package cli

import (
	"github.com/spf13/cobra"

	"holt"
)

func (a *app) scheduleEnable() *cobra.Command {
	cmd := a.enabling("enable", true)
	cmd.Short = "Enable a schedule"
	cmd.Long = `Enables a schedule. Times while it was disabled do not count as missed: it runs when it is due next.
An enabled schedule is not changed.`
	cmd.Example = "  holt schedule enable nightly"
	return cmd
}

func (a *app) scheduleDisable() *cobra.Command {
	cmd := a.enabling("disable", false)
	cmd.Short = "Disable a schedule"
	cmd.Long = `Disables a schedule. Its history is kept. A run in progress is not interrupted (end it with holt run
signal). holt schedule run still works. A disabled schedule is not changed.`
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
