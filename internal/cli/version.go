package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of the command, and of the daemon if one answers", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var daemon string
			if c, err := a.connect(); err == nil {
				ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
				defer cancel()
				if h, err := c.Daemon.Health(ctx); err == nil {
					daemon = h.Version
				}
			}
			if a.wantsJSON() {
				return printJSON(a.Out, struct {
					Version string `json:"version"`
					Daemon  string `json:"daemon,omitempty"`
				}{a.local.Version, daemon})
			}
			fmt.Fprintln(a.Out, "holt", a.local.Version)
			if daemon != "" && daemon != a.local.Version {
				a.say("the daemon has version %s; to start this version: holt down --keep && holt up", visible(daemon))
			}
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}
