package cli

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holt"
	"holt/client"
)

// Of the Debian package: its daemon is a service.
const (
	unitName = "holt.service"
	unitDir  = "/var/lib/holt" // its data directory
)

// startUnit starts the daemon of a data directory that the package's unit serves, unless one answers: another that was started
// beside it would keep the unit from its directory, at an upgrade too, and from pausing its computers when the machine shuts
// down. Where there is no such unit it does nothing.
func (a *app) startUnit(ctx context.Context, cmd *cobra.Command, c *client.Client, dir string) error {
	if dir != unitDir {
		return nil
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil { // see sd_booted(3)
		return nil
	}
	state, err := exec.CommandContext(ctx, "systemctl", "show", "--property=LoadState", "--value", unitName).Output()
	if err != nil || strings.TrimSpace(string(state)) != "loaded" {
		return nil
	}
	if _, err := c.Daemon.Health(ctx); err == nil {
		return nil
	}
	var given []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if own := []string{"yes", "template", "json", "data-dir", "context", "tenant"}; !slices.Contains(own, f.Name) {
			given = append(given, "--"+f.Name)
		}
	})
	if len(given) > 0 {
		return holt.Errorf(holt.InvalidArgument, "the daemon of %s is the service %s, which takes no flags here: %s", dir, unitName, strings.Join(given, ", ")).
			WithHint("set them in /etc/default/holt")
	}
	a.say("starting %s", unitName)
	if said, err := exec.CommandContext(ctx, "systemctl", "start", unitName).CombinedOutput(); err != nil {
		return holt.Errorf(holt.Unavailable, "%s does not start: %s", unitName, lastWords(string(said))).WithHint("journalctl --unit %s says why", unitName)
	}
	return nil
}
