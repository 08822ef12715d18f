package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holt"
	"holt/client"
)

// unitName is the service that the Debian package has for its daemon, whose data directory is [rootDir].
const unitName = "holt.service"

// hasUnit says whether a data directory is served by the package's unit: a daemon that was started beside it would keep the unit
// from the directory, at an upgrade too, and from pausing its computers when the machine shuts down.
func hasUnit(ctx context.Context, dir string) bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil || dir != rootDir { // see sd_booted(3)
		return false
	}
	state, err := exec.CommandContext(ctx, "systemctl", "show", "--property=LoadState", "--value", unitName).Output()
	return err == nil && strings.TrimSpace(string(state)) == "loaded"
}

// startUnit starts the unit, unless its daemon answers. What it would not heed is refused.
func (a *app) startUnit(cmd *cobra.Command, opt ServeOptions) error {
	c, err := client.New(client.Options{Socket: filepath.Join(opt.DataDir, "holt.sock")})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Daemon.Health(cmd.Context()); err == nil {
		return nil
	}
	var given []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if own := []string{"yes", "template", "json", "data-dir", "context", "tenant"}; !slices.Contains(own, f.Name) {
			given = append(given, "--"+f.Name)
		}
	})
	if opt.ImageDir != filepath.Join(rootDir, "images") {
		given = append(given, holt.EnvImageDir)
	}
	if len(given) > 0 {
		return holt.Errorf(holt.InvalidArgument, "the daemon of %s is the service %s, which does not heed %s", rootDir, unitName, strings.Join(given, ", ")).
			WithHint("its flags are in /etc/default/holt")
	}
	return a.wait("starting "+unitName, func() error { // which ends once the daemon is ready
		said, err := exec.CommandContext(cmd.Context(), "systemctl", "start", unitName).CombinedOutput()
		if err != nil {
			return holt.Errorf(holt.Unavailable, "%s does not start: %s", unitName, strings.TrimSpace(string(said))).
				WithHint("journalctl --unit %s says why; holt doctor looks for what is missing", unitName)
		}
		return nil
	})
}
