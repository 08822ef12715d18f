package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) serveCommand() *cobra.Command {
	var set *settings
	var log string
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the daemon in the foreground", Args: exactly(0),
		Long: `Runs the daemon. holt down ends it and its computers. SIGTERM ends only the daemon: its
computers keep running, and the next daemon takes them over. A data directory has one daemon.

Every flag from --engine on can also be a line of the configuration file, for example:

  # comments begin with #
  listen = 0.0.0.0:4646
  tls-cert = /etc/holt/cert.pem
  tls-key = /etc/holt/key.pem
  host = holt.example.com

A flag overrides its line. --host and --trusted-proxy may have several lines. Relative paths
are relative to the file. The Debian package's daemon reads /etc/holt/serve.conf.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.place()
			if err != nil {
				return err
			}
			opt, err := set.options(at)
			if err != nil {
				return err
			}
			opt.Log = log
			return a.local.Serve(cmd.Context(), opt)
		},
	}
	set = a.settings(cmd)
	cmd.Flags().StringVar(&log, "log", "", "write the log to this file, and rotate it to FILE.1 at 64 MiB (default: standard error)")
	return cmd
}

func (a *app) upCommand() *cobra.Command {
	var set *settings
	var yes bool
	var template string
	cmd := &cobra.Command{
		Use: "up", Short: "Prepare this machine and start the daemon", Args: exactly(0),
		Long: `Checks this machine, installs missing packages (it asks first, unless --yes is given), builds
the template's image if there is none, starts the daemon in the background, and boots the
template once, so that new computers start in a fraction of a boot. Steps that are already
done are skipped. If the Debian package is installed, holt up starts its service.

The daemon gets the flags given here and its configuration file (holt serve --help).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.place()
			if err != nil {
				return err
			}
			opt, err := set.options(at)
			if err != nil {
				return err
			}
			t, err := a.target()
			if err != nil {
				return err
			}
			if t.elsewhere() { // the commands that it suggests would run there
				return holt.Errorf(holt.InvalidArgument, "holt up starts the daemon of this machine, but %s is selected", t.called()).WithHint("add --context local, or run: holt context use local")
			}
			if hasUnit(cmd.Context(), opt.DataDir) {
				if err := a.startUnit(cmd, opt); err != nil {
					return err
				}
			}
			return a.up(cmd.Context(), opt, set.args(), template, yes)
		},
	}
	set = a.settings(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "install packages without asking")
	cmd.Flags().StringVar(&template, "template", "base", "the template whose image is built and booted")
	cmd.Flags().BoolVar(&a.json, "json", false, "at the end, print the daemon's health as JSON")
	return cmd
}

// up does everything between a fresh machine and the first computer.
func (a *app) up(ctx context.Context, opt ServeOptions, flags []string, template string, yes bool) error {
	findings, err := a.local.Doctor(ctx, opt.Place, opt.Engine, opt.Listen)
	if err != nil {
		return err
	}
	if findings, err = a.mend(ctx, findings, opt, yes); err != nil {
		return err
	}
	for _, f := range findings {
		if f.Verdict != holt.VerdictOK {
			if err := a.printFindings(a.Err, []holt.Finding{f}); err != nil {
				return err
			}
		}
	}
	if worst(findings) == holt.VerdictBad {
		return holt.Errorf(holt.Unsupported, "this machine does not meet holt's requirements").WithHint("fix the findings above that are marked bad, then check again: holt doctor")
	}
	var image holt.Image
	if opt.Engine != "local" { // its computers have no root disk
		if image, err = a.build(ctx, opt.Place, template); err != nil {
			return err
		}
	}
	socket := filepath.Join(opt.DataDir, "holt.sock")
	c, err := client.New(client.Options{Socket: socket})
	if err != nil {
		return err
	}
	health, err := c.Daemon.Health(ctx)
	if err == nil {
		a.say("the daemon is already running (process %d, engine %s)", health.PID, health.Engine)
		if len(flags) > 0 {
			a.say("it keeps its settings; to apply %s: holt down --keep, then holt up again", strings.Join(flags, " "))
		}
	} else if health, err = a.start(ctx, c, opt, flags); err != nil {
		return err
	} else {
		a.say("the daemon is running (process %d, engine %s); its log is %s", health.PID, health.Engine, logPath(opt.DataDir))
	}
	if line := withoutKVM(opt.Engine, health.Engine); line != "" {
		a.say("%s", line)
	}
	if image.Unbooted != nil { // a boot snapshot that is out of date is renewed by the daemon
		if _, err := a.boot(ctx, c, image, *image.Unbooted); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			a.complain(err) // computers boot the template themselves
		}
	}
	if a.json {
		return printJSON(a.Out, struct {
			holt.Health
			Socket string `json:"socket"`
		}{health, socket})
	}
	fmt.Fprintf(a.Out, `
Next:
  holt computer create %s --template %s
  holt computer run %[1]s "df -h / /home/agent"
  holt down     # ends the daemon and its computers; their disks are kept
`, firstName(ctx, c), template)
	if def, err := (&app{getenv: a.getenv}).place(); err == nil && def.DataDir != opt.DataDir {
		fmt.Fprintf(a.Out, "In this shell, run this first: export %s=%s\n", holt.EnvDataDir, opt.DataDir)
	}
	return nil
}

// withoutKVM says what it means that a daemon, which was asked for an engine, does not use KVM; "" if it does.
func withoutKVM(asked, engine string) string {
	switch {
	case engine == "gvisor" && asked == "auto":
		return "No usable KVM on this machine: computers run in gVisor sandboxes. Docker and kernel modules need --engine qemu, which is slower."
	case engine == "qemu-tcg" && asked == "auto":
		return "No usable KVM on this machine, and no gVisor sandboxes (holt doctor says why): computers run in software emulation, 5 to 20 times slower."
	case engine == "qemu-tcg":
		return "No usable KVM on this machine: computers run in software emulation, 5 to 20 times slower. gVisor sandboxes are faster: --engine gvisor."
	}
	return ""
}

// firstName returns a name that no computer or workspace has.
func firstName(ctx context.Context, c *client.Client) string {
	taken := map[string]bool{}
	computers, _ := c.Computers.List(ctx)
	for _, one := range computers {
		taken[one.Name] = true
	}
	workspaces, _ := c.Workspaces.List(ctx)
	for _, one := range workspaces {
		taken[one.Name] = true
	}
	name := "einstein"
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("einstein-%d", n)
	}
	return name
}

func logPath(dataDir string) string { return filepath.Join(dataDir, "log", "daemon.log") }

// start starts the daemon in the background, and waits until it answers.
func (a *app) start(ctx context.Context, c *client.Client, opt ServeOptions, flags []string) (holt.Health, error) {
	log, err := openLog(logPath(opt.DataDir))
	if err != nil {
		return holt.Health{}, err
	}
	defer log.Close()
	size, err := log.Seek(0, 2)
	if err != nil {
		return holt.Health{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return holt.Health{}, fmt.Errorf("find this program: %w", err)
	}
	args := append([]string{"serve", "--data-dir", opt.DataDir, "--log", log.Name()}, flags...)
	cmd := exec.Command(exe, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), holt.EnvImageDir+"="+opt.ImageDir) // made absolute
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to this program do not reach it
	if err := cmd.Start(); err != nil {
		return holt.Health{}, fmt.Errorf("start the daemon: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with this program at the latest
	var health holt.Health
	err = a.wait("starting the daemon", func() error {
		health, err = a.await(ctx, c, ended)
		return err
	})
	if errors.Is(err, errDaemonEnded) {
		return health, holt.Errorf(holt.Unavailable, "the daemon did not start: %s", lastWords(logTail(log, size))).
			WithHint("its log is %s", log.Name())
	}
	return health, err
}

var errDaemonEnded = errors.New("the daemon ended")

// await polls the daemon until it answers or ends, for two minutes at most.
func (a *app) await(ctx context.Context, c *client.Client, ended <-chan error) (holt.Health, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		health, err := c.Daemon.Health(ctx)
		if err == nil {
			return health, nil
		}
		select {
		case <-ended:
			return health, errDaemonEnded
		case <-ctx.Done():
			return health, holt.Errorf(holt.Timeout, "the daemon does not answer: %w", err).
				WithHint("read its log, log/daemon.log in the data directory; check this machine with: holt doctor")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// openLog opens the daemon's log for appending. It is the daemon's standard error until the daemon rotates it (see
// [ServeOptions.Log]).
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, here(err, path)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	return f, here(err, path)
}

// logTail returns the end of the log from an offset on, at most 4 KiB.
func logTail(log *os.File, from int64) string {
	end, err := log.Seek(0, 2)
	if err != nil {
		return err.Error()
	}
	from = max(from, end-4096)
	buf := make([]byte, end-from)
	n, _ := log.ReadAt(buf, from) // a short read is fine
	return strings.TrimSpace(string(buf[:n]))
}

// lastWords returns the last error in a log's tail, or the tail if there is none.
func lastWords(tail string) string {
	const prefix = "holt: "
	i := strings.LastIndex("\n"+tail, "\n"+prefix)
	if i < 0 {
		return "\n" + tail
	}
	return tail[i+len(prefix):]
}
