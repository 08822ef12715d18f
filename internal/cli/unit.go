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

// hasUnit reports whether the package's unit serves a data directory. Another daemon there would keep the unit from starting,
// would not be restarted by an upgrade, and its computers would not be paused when the machine shuts down.
func hasUnit(ctx context.Context, dir string) bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil || dir != rootDir { // see sd_booted(3)
		return false
	}
	state, err := exec.CommandContext(ctx, "systemctl", "show", "--property=LoadState", "--value", unitName).Output()
	return err == nil && strings.TrimSpace(string(state)) == "loaded"
}

// startUnit starts the unit, unless its daemon answers. It refuses flags that the unit does not see.
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
		return holt.Errorf(holt.InvalidArgument, "the daemon of %s is the service %s, which ignores %s", rootDir, unitName, strings.Join(given, ", ")).
			WithHint("change its settings in /etc/holt/serve.conf, then: systemctl restart holt")
	}
	return a.wait("starting "+unitName, func() error { // returns when the daemon is ready
		said, err := exec.CommandContext(cmd.Context(), "systemctl", "start", unitName).CombinedOutput()
		if err != nil {
			return holt.Errorf(holt.Unavailable, "%s did not start: %s", unitName, strings.TrimSpace(string(said))).
				WithHint("find the cause with: journalctl --unit %s; holt doctor", unitName)
		}
		return nil
	})
}
