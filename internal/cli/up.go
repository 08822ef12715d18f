package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// upFlags are the flags of up and serve that make a daemon.
type upFlags struct {
	engine, listen     string
	sshListen          string
	hosts              []string
	keepLast, keepDays int
	archive, cache     string
	snapshots          string
	renew              time.Duration
	overcommit         float64
	watch              watchFlags
	previews           PreviewOptions
	insecure           bool
	calls, failures    float64
}

func (a *app) serveFlags(cmd *cobra.Command, f *upFlags) {
	cmd.Flags().StringVar(&f.engine, "engine", cmp.Or(a.getenv(holt.EnvEngine), "auto"), "what runs machines: auto, qemu or local (no isolation; for tests)")
	cmd.Flags().StringVar(&f.listen, "listen", "", "also listen on this TCP address, as localhost:4646 (127.0.0.1 and ::1); every caller needs a token")
	cmd.Flags().StringVar(&f.sshListen, "ssh-listen", "", "listen for SSH clients on this TCP address, as 0.0.0.0:2222; every one needs a key or a token; off: nowhere (default: localhost:2222, which is 127.0.0.1 and ::1, if that is free)")
	cmd.Flags().BoolVar(&f.insecure, "insecure-listen", false, "let --listen and --preview-listen be addresses that other machines reach without TLS, although what is sent there, tokens too, is not encrypted")
	cmd.Flags().Float64Var(&f.calls, "token-rate", 2000, "how many calls a second each token may make over TCP in the long run, and twice as many at once, and all of a tenant together 10 times as many; 0: any number")
	cmd.Flags().Float64Var(&f.failures, "failure-rate", 60, "how many calls a minute each address may make over TCP without a valid token; 0: any number")
	cmd.Flags().StringSliceVar(&f.hosts, "host", nil, "a name by which TCP callers reach it, as holt.example.com; calls by names that are not given are refused, those by IP addresses and localhost are not")
	cmd.Flags().IntVar(&f.keepLast, "keep-checkpoints", 200, "how many of the newest automatic checkpoints of a workspace stay, and as many of work in terminals; runs can be undone as far back")
	cmd.Flags().IntVar(&f.keepDays, "keep-days", 30, "for how many days before those the newest automatic checkpoint of each stays")
	cmd.Flags().StringVar(&f.archive, "archive", a.getenv(holt.EnvArchive), "an absolute directory, as on a larger disk, for the archive's packs (default: below the data directory)")
	cmd.Flags().StringVar(&f.cache, "archive-cache", "10G", "with --archive: most bytes of it that are kept on the local disk; 0 or none: each read asks DIR")
	cmd.Flags().StringVar(&f.snapshots, "snapshots-cache", "", "most bytes that the memory of snapshots takes which nobody asked for, as of forks and pauses, and of all together once they are in the archive (default: an eighth of the disk)")
	previewFlags(cmd, &f.previews)
	cmd.Flags().Float64Var(&f.overcommit, "memory-overcommit", 1, "how many times the memory that this machine has left may be promised to computers: above 1 more can run that use less than they may, as forks, and the kernel kills some if they use it")
	f.watch.add(cmd)
	cmd.Flags().DurationVar(&f.renew, "renew-after", time.Minute, "how long after its start the daemon boots, one by one and behind all else, templates that nobody has booted since they were built, or that were kept for another version of holt or QEMU; 0: never")
}

func (f *upFlags) options(at Place) (ServeOptions, error) {
	if f.keepLast < 2 || f.keepDays < 0 {
		return ServeOptions{}, holt.Errorf(holt.InvalidArgument, "--keep-checkpoints %d --keep-days %d cannot be", f.keepLast, f.keepDays).
			WithHint("a run needs the checkpoints before and after it: keep 2 or more, and 0 days or more")
	}
	if f.overcommit != 0 && (f.overcommit < 1 || f.overcommit > 100) { // 0 is once
		return ServeOptions{}, holt.Errorf(holt.InvalidArgument, "--memory-overcommit %g cannot be", f.overcommit).WithHint("give 1 to 100, as 1.5")
	}
	if f.calls < 0 || f.failures < 0 || f.calls > 1e9 || f.failures > 1e9 {
		return ServeOptions{}, holt.Errorf(holt.InvalidArgument, "--token-rate %g --failure-rate %g cannot be", f.calls, f.failures).WithHint("0 is any number")
	}
	if err := f.previews.check(f.listen); err != nil {
		return ServeOptions{}, err
	}
	open := f.insecure || f.previews.encrypted()
	if err := checkListen("--listen", f.listen, open); err != nil {
		return ServeOptions{}, err
	}
	if err := checkListen("--preview-listen", f.previews.Listen, open || f.previews.Listen == "off"); err != nil {
		return ServeOptions{}, err
	}
	switch f.engine {
	case "auto", "qemu", "local":
		cache, err := parseSize(f.cache)
		if cache == 0 {
			cache = -1 // 0 would be the default
		}
		var snapshots int64
		if err == nil && f.snapshots != "" {
			snapshots, err = parseSize(f.snapshots)
			snapshots = max(1, snapshots) // 0 would be the default
		}
		opt := ServeOptions{Place: at, Engine: f.engine, Listen: f.listen, SSHListen: f.sshListen, Hosts: f.hosts, Previews: f.previews, KeepLast: f.keepLast, KeepDays: f.keepDays,
			Archive: f.archive, ArchiveCache: cache, SnapshotCache: snapshots, Renew: f.renew, Overcommit: f.overcommit, Insecure: f.insecure, CallRate: f.calls, FailureRate: f.failures}
		if err == nil {
			err = f.watch.options(&opt)
		}
		return opt, err
	}
	return ServeOptions{}, holt.Errorf(holt.InvalidArgument, "there is no engine %q", f.engine).WithHint("engines are auto, qemu and local")
}

func (a *app) serveCommand() *cobra.Command {
	var flags upFlags
	var log string
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the daemon in the foreground", Args: exactly(0),
		Long: `Runs the daemon until it is told to end: by holt down, which ends its computers
too, or by SIGTERM, which leaves them running for the next daemon to take over.
There is one daemon for each data directory.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.place()
			if err != nil {
				return err
			}
			opt, err := flags.options(at)
			if err != nil {
				return err
			}
			opt.Log = log
			return a.local.Serve(cmd.Context(), opt)
		},
	}
	a.serveFlags(cmd, &flags)
	cmd.Flags().StringVar(&log, "log", "", "write the log to this file; above 64 MiB it becomes FILE.1 (default: standard error, for a service manager)")
	return cmd
}

func (a *app) upCommand() *cobra.Command {
	var flags upFlags
	var yes bool
	var template string
	cmd := &cobra.Command{
		Use: "up", Short: "Make everything ready and start the daemon", Args: exactly(0),
		Long: `Examines this machine, installs what is missing (it asks, unless --yes), builds
the image if it is not there, starts the daemon, and has it boot the template, if nobody
has since it was built: new computers go on from there. When all of that is done already it
takes a snapshot. Where the Debian package is installed it starts its service.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.place()
			if err != nil {
				return err
			}
			opt, err := flags.options(at)
			if err != nil {
				return err
			}
			t, err := a.target()
			if err != nil {
				return err
			}
			if t.elsewhere() { // what it says to do next would be done there
				return holt.Errorf(holt.InvalidArgument, "holt up is for the daemon of this machine, and %s is called", t.called()).WithHint("add --context local, or: holt context use local")
			}
			if hasUnit(cmd.Context(), opt.DataDir) {
				if err := a.startUnit(cmd, opt); err != nil {
					return err
				}
			}
			return a.up(cmd.Context(), opt, template, yes)
		},
	}
	a.serveFlags(cmd, &flags)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before installing packages")
	cmd.Flags().StringVar(&template, "template", "base", "the template to have an image of")
	cmd.Flags().BoolVar(&a.json, "json", false, "at the end, print what the daemon is, as JSON")
	return cmd
}

// up is everything between a fresh machine and the first computer.
func (a *app) up(ctx context.Context, opt ServeOptions, template string, yes bool) error {
	findings, err := a.local.Doctor(ctx, opt.Place, opt.Listen)
	if err != nil {
		return err
	}
	if findings, err = a.mend(ctx, findings, opt.Listen, yes); err != nil {
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
		return holt.Errorf(holt.Unsupported, "holt cannot work on this machine yet").WithHint("mend what is bad above; holt doctor looks again")
	}
	var image holt.Image
	if opt.Engine != "local" { // whose computers have no root disk
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
		a.say("the daemon runs already (process %d, engine %s)", health.PID, health.Engine)
		if opt.Listen != "" {
			a.say("it goes on as it was started; for --listen to count: holt down, then holt up again")
		}
	} else if health, err = a.start(ctx, c, opt); err != nil {
		return err
	} else {
		a.say("the daemon runs (process %d, engine %s); its log is %s", health.PID, health.Engine, logPath(opt.DataDir))
	}
	if image.Unbooted != nil { // else it was tried, and a daemon renews what is out of date
		if _, err := a.boot(ctx, c, image, *image.Unbooted); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			a.complain(err) // its computers boot
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
  holt down     ends the daemon and its computers; their disks stay
`, firstName(ctx, c), template)
	if def, err := (&app{getenv: a.getenv}).place(); err == nil && def.DataDir != opt.DataDir {
		fmt.Fprintf(a.Out, "In this shell first: export %s=%s\n", holt.EnvDataDir, opt.DataDir)
	}
	return nil
}

// firstName is a name for a computer that is free, as far as the daemon says.
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

// start starts a daemon that outlives this program, and waits until it answers.
func (a *app) start(ctx context.Context, c *client.Client, opt ServeOptions) (holt.Health, error) {
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
	args := []string{"serve", "--data-dir", opt.DataDir, "--engine", opt.Engine, "--log", log.Name(),
		"--keep-checkpoints", strconv.Itoa(opt.KeepLast), "--keep-days", strconv.Itoa(opt.KeepDays), "--renew-after", opt.Renew.String(),
		"--memory-overcommit", strconv.FormatFloat(max(1, opt.Overcommit), 'g', -1, 64)}
	args = append(args, watchArgs(opt)...)
	if opt.Listen != "" {
		args = append(args, "--listen", opt.Listen)
	}
	if opt.SSHListen != "" {
		args = append(args, "--ssh-listen", opt.SSHListen)
	}
	if opt.Insecure {
		args = append(args, "--insecure-listen")
	}
	args = append(args, "--token-rate", strconv.FormatFloat(opt.CallRate, 'g', -1, 64), "--failure-rate", strconv.FormatFloat(opt.FailureRate, 'g', -1, 64))
	if opt.Archive != "" {
		args = append(args, "--archive", opt.Archive, "--archive-cache", fmt.Sprint(max(0, opt.ArchiveCache)))
	}
	if opt.SnapshotCache > 0 {
		args = append(args, "--snapshots-cache", fmt.Sprint(opt.SnapshotCache))
	}
	if err := opt.Previews.absolute(); err != nil {
		return holt.Health{}, err
	}
	args = append(args, opt.Previews.args()...)
	for _, h := range opt.Hosts {
		args = append(args, "--host", h)
	}
	cmd := exec.Command(exe, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), holt.EnvImageDir+"="+opt.ImageDir) // what is there may be no absolute path
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C and hang-ups here are not for it
	if err := cmd.Start(); err != nil {
		return holt.Health{}, fmt.Errorf("start the daemon: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it may outlive this program; then nobody waits
	var health holt.Health
	err = a.wait("starting the daemon", func() error {
		health, err = a.await(ctx, c, ended)
		return err
	})
	if errors.Is(err, errDaemonEnded) {
		return health, holt.Errorf(holt.Unavailable, "the daemon ended at once: %s", lastWords(logTail(log, size))).
			WithHint("the whole log is %s", log.Name())
	}
	return health, err
}

var errDaemonEnded = errors.New("the daemon ended")

// await asks until the daemon answers, ends, or has had two minutes.
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
				WithHint("holt doctor looks for the cause; the daemon's log is daemon.log in the data directory")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// openLog opens the daemon's log for appending: the daemon's standard error
// until it turns the log over (see [ServeOptions.Log]), and what it says if it
// cannot start.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, here(err, path)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	return f, here(err, path)
}

// logTail returns what the log says from an offset on, at most 4 KiB of it.
func logTail(log *os.File, from int64) string {
	end, err := log.Seek(0, 2)
	if err != nil {
		return err.Error()
	}
	from = max(from, end-4096)
	buf := make([]byte, end-from)
	n, _ := log.ReadAt(buf, from) // what there is will do
	return strings.TrimSpace(string(buf[:n]))
}

// lastWords returns the error that a daemon ended with, or all of its log's
// tail where there is none.
func lastWords(tail string) string {
	const prefix = "holt: "
	i := strings.LastIndex("\n"+tail, "\n"+prefix)
	if i < 0 {
		return "\n" + tail
	}
	return tail[i+len(prefix):]
}
