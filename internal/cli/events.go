package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) eventsCommand() *cobra.Command {
	var q holt.EventQuery
	cmd := &cobra.Command{
		Use: "events [COMPUTER]", Short: "Show events of computers, runs, workspaces and other objects", Args: cobra.MaximumNArgs(1),
		Long: `Shows events of computers, runs, terminals, snapshots, workspaces, checkpoints, jobs, schedules and their firings.
The last 5000 events are kept. With --follow the command prints new events until Ctrl-C, also across restarts of the
daemon. With --json each event is one line; --after takes its id. A line "reset" means that events after that id are
no longer kept.

Kinds are computer, run, terminal, snapshot, workspace, checkpoint, job, schedule and firing, or one event of these,
such as computer.state.`,
		Example: `  holt events --follow
  holt events einstein --kind run
  holt events --follow --json --kind computer.state | jq -r 'select(.state == "failed") | .name'`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				q.Computer = args[0]
			}
			lines := json.NewEncoder(a.Out)
			return c.Events.Follow(cmd.Context(), q, func(e holt.Event) error {
				switch {
				case a.wantsJSON():
					return lines.Encode(e)
				case e.Kind == holt.EventReady:
					return nil
				case e.Kind == holt.EventReset:
					a.say("earlier events are no longer kept; list the current state instead")
					return nil
				}
				_, err := fmt.Fprintln(a.Out, eventLine(e))
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "then print new events")
	cmd.Flags().StringVar(&q.After, "after", "", "start after the event with this id")
	cmd.Flags().StringSliceVar(&q.Kinds, "kind", nil, "only these kinds of events")
	a.jsonFlag(cmd)
	return cmd
}

// eventLine is an event for a person.
func eventLine(e holt.Event) string {
	line := []string{e.At.Local().Format("15:04:05"), fmt.Sprintf("%-18s", e.Kind)}
	if e.ComputerName != "" {
		line = append(line, e.ComputerName)
	}
	if e.Name != "" && e.Name != e.ComputerName {
		line = append(line, e.Name)
	} else if e.ComputerName == "" || e.Ref != string(e.Computer) {
		line = append(line, e.Ref)
	}
	switch {
	case e.ExitCode != nil:
		line = append(line, fmt.Sprintf("exit %d", *e.ExitCode))
	case e.Was != "":
		line = append(line, e.Was+" → "+e.State)
	case e.State != "":
		line = append(line, e.State)
	}
	if e.Reason != "" {
		line = append(line, "("+e.Reason+")")
	}
	return visible(strings.Join(line, "  "))
}
