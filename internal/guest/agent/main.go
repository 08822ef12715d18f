package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/guest/channel"
)

// Names of a machine's virtio-serial ports.
const (
	ControlPort = "control"
	FilesPort   = "files"
)

const (
	portWait = 10 * time.Second
	usage    = `holt-guest runs inside a computer.

  holt-guest                as PID 1 of an initramfs: bring the machine up
  holt-guest machine [--net ADDRESS/BITS,GATEWAY,NAMESERVER]
                            the machine's agent, on virtio-serial ports
  holt-guest sandbox [--net ADDRESS/BITS,GATEWAY,NAMESERVER]
                            as PID 1 of a gVisor sandbox: start its agent, on a pair of named pipes, and its init
  holt-guest agent --control-socket PATH [--files-socket PATH] [--workspace DIR] [--cgroup NAME] [--verbose]
                            an agent on unix sockets, for machines that are local processes
  holt-guest sftp           an SFTP server on its standard streams, with the rights of who runs it

It is in a computer's PATH under two more names. Called holt, it asks for things in the computer's name: holt help.
Called sync, it does what the system's sync does, and makes the workspace durable.
`
)

// Main is the program holt-guest. It returns the exit status.
func Main(args []string) int {
	// Files inherited from the starter (a lock, this program) must not be inherited by runs.
	unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	switch filepath.Base(os.Args[0]) {
	case Command:
		return runCommand(args, ownHost+":80", os.Stdout, os.Stderr)
	case syncCommand:
		return runSync(args, defaultWorkspace)
	}
	var err error
	switch {
	case len(args) == 0 && os.Getpid() == 1:
		Boot()
	case len(args) > 0 && args[0] == "sandbox" && os.Getpid() == 1:
		err = bootSandbox(args[1:])
	case len(args) > 0 && args[0] == "machine":
		err = keepMachine(args[1:])
	case len(args) > 0 && args[0] == "agent":
		err = keepSockets(args[1:])
	case len(args) > 0 && args[0] == "serve":
		err = serve(args[1:])
	case len(args) > 0 && args[0] == "sftp":
		err = serveSFTP(os.Stdin, os.Stdout)
	default:
		err = flag.ErrHelp
	}
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "holt-guest: %v\n", err)
		return 1
	}
	return 0
}

// keepMachine is the first process of the agent of a virtual machine or a sandbox.
func keepMachine(args []string) error {
	flags := flag.NewFlagSet("machine", flag.ContinueOnError)
	netArg := flags.String("net", "", "static network")
	sandbox := flags.Bool("sandbox", false, "this is a gVisor sandbox")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := machineLog(*sandbox)
	disregard(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE) // sent by systemd at shutdown
	unix.Umask(0o022)
	protect(log)
	go raiseNetwork(*netArg, *sandbox, log)
	if err := installCommands(""); err != nil {
		log.Warn("install the commands holt and sync", "err", err)
	}
	k := keeper{name: AgentName, args: []string{"--machine"}, log: log}
	if *sandbox { // a process of the host serves the workspace
		k.args, k.files = append(k.args, "--sandbox"), []uintptr{lineIn, lineOut}
		return k.run(context.Background())
	}
	k.serveFiles = func(ctx context.Context, state shared) {
		port, err := openPort(FilesPort)
		if err == nil {
			err = ServeFiles(ctx, FilesOptions{Port: port, Machine: true, Standing: state.setStanding, Ending: state.ending, Log: log})
		}
		log.Error("no workspace", "err", err)
	}
	return k.run(context.Background())
}

// keepSockets is the first process of the agent of a machine that is a local
// process: PID 1 of a namespace or, in tests, any process.
func keepSockets(args []string) error {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	control := flags.String("control-socket", "", "where the host's control channel connects")
	files := flags.String("files-socket", "", "where the host's file channel connects")
	workspace := flags.String("workspace", "", "where the workspace is mounted")
	cgroup := flags.String("cgroup", "", "directory of the runs' cgroups, under the cgroup2 mount")
	verbose := flags.Bool("verbose", false, "log what is of interest only in tests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *control == "" {
		return errors.New("--control-socket is missing")
	}
	disregard(syscall.SIGPIPE)
	unix.Umask(0o022)
	log := socketLog(*verbose)
	k := keeper{name: "holt-guest", log: log, args: []string{
		"--control-socket=" + *control, "--workspace=" + *workspace, "--cgroup=" + *cgroup,
		fmt.Sprintf("--verbose=%v", *verbose),
	}}
	if *files != "" {
		line, err := channel.ListenSocket(*files)
		if err != nil {
			return err
		}
		k.serveFiles = func(ctx context.Context, state shared) {
			err := ServeFiles(ctx, FilesOptions{
				Port: channel.NewPort(line), Workspace: *workspace, Cgroup: *cgroup, Standing: state.setStanding, Ending: state.ending, Log: log,
			})
			if err != nil {
				log.Error("no workspace", "err", err)
			}
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return k.run(ctx)
}

// serve is the second process: control channel and runs.
func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	machine := flags.Bool("machine", false, "this is the agent of a virtual machine or a sandbox")
	sandbox := flags.Bool("sandbox", false, "as of machine")
	control := flags.String("control-socket", "", "as of agent")
	workspace := flags.String("workspace", "", "as of agent")
	cgroup := flags.String("cgroup", "", "as of agent")
	verbose := flags.Bool("verbose", false, "as of agent")
	again := flags.Bool("again", false, "an earlier process has ended; its session may stand")
	if err := flags.Parse(args); err != nil {
		return err
	}
	state := inherited()
	opt := ServerOptions{Machine: *machine, Sandbox: *sandbox, Workspace: *workspace, Cgroup: *cgroup, Standing: state.standing, Ending: state.setEnding}
	ctx, stop := context.Background(), func() {}
	disregard(syscall.SIGPIPE, syscall.SIGHUP) // sessions must not inherit an ignored SIGHUP
	if *machine {
		disregard(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		opt.Log = machineLog(*sandbox)
		open := func() (*channel.Port, error) { return openPort(ControlPort) }
		if *sandbox {
			open, opt.Standing = openLine, func() Standing { return Served }
		}
		port, err := open()
		if err != nil {
			return err
		}
		opt.Control = port
	} else {
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
		opt.Log = socketLog(*verbose)
		line, err := channel.ListenSocket(*control)
		if err != nil {
			return err
		}
		opt.Control = channel.NewPort(line)
	}
	defer stop()
	if *again {
		go opt.Control.HangUp()
	}
	return Serve(ctx, opt)
}

// machineLog returns the log of a machine's agent: the kernel's, or in a sandbox,
// whose kernel has none, the console.
func machineLog(sandbox bool) *slog.Logger {
	if sandbox {
		return socketLog(false)
	}
	return slog.New(slog.NewTextHandler(kernelLog{}, nil))
}

func socketLog(verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// disregard handles signals by dropping them. Runs would inherit SIG_IGN.
func disregard(sig ...os.Signal) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sig...)
	go func() {
		for range c {
		}
	}()
}

// raiseNetwork configures the network; the links of a sandbox are configured.
func raiseNetwork(arg string, sandbox bool, log *slog.Logger) {
	var n network
	var err error
	if arg != "" {
		n, err = parseNet(arg)
	}
	switch {
	case err != nil, sandbox && arg == "":
	case sandbox:
		err = n.resolve()
	case arg == "":
		err = raiseLoopback()
	default:
		err = n.raise()
	}
	if err != nil {
		log.Error("raise network", "err", err)
	}
}

// openPort opens a virtio-serial port, which may appear slightly later than this process.
func openPort(name string) (*channel.Port, error) {
	for end := time.Now().Add(portWait); ; time.Sleep(2 * time.Millisecond) {
		path, err := channel.FindDevice(name)
		if err == nil {
			d, err := channel.OpenDevice(path)
			if err == nil {
				return channel.NewPort(d), nil
			}
			if time.Now().After(end) {
				return nil, err
			}
		} else if time.Now().After(end) {
			return nil, err
		}
	}
}

// kernelLog writes log lines to the kernel's ring, which the console shows.
type kernelLog struct{}

func (kernelLog) Write(p []byte) (int, error) {
	level := 6
	if strings.Contains(string(p), "level=WARN") {
		level = 4
	} else if strings.Contains(string(p), "level=ERROR") {
		level = 3
	}
	kmsg(level, strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// kmsg writes one line to the kernel's ring with a syslog level.
func kmsg(level int, line string) {
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	io.WriteString(f, fmt.Sprintf("<%d>holt-guest: %s", level, line))
}
