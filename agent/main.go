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
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt/channel"
)

// Names of a machine's virtio-serial ports.
const (
	ControlPort = "control"
	FilesPort   = "files"
)

const (
	portWait     = 10 * time.Second
	restartAfter = 500 * time.Millisecond
	usage        = `holt-guest runs inside a computer.

  holt-guest                as PID 1 of an initramfs: bring the machine up
  holt-guest machine [--net ADDRESS/BITS,GATEWAY,NAMESERVER]
                            the machine's agent, on virtio-serial ports, started again if it ends
  holt-guest agent --control-socket S [--files-socket S] [--workspace DIR] [--cgroup NAME] [--verbose]
                            an agent on unix sockets, for machines that are local processes;
                            S is a path, or fd:N for an inherited listening socket
`
)

// Main is the program holt-guest. It returns the exit status.
func Main(args []string) int {
	// What the starter left open (a lock, this program) is not for runs.
	unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	var err error
	switch {
	case len(args) == 0 && os.Getpid() == 1:
		Boot()
	case len(args) == 0:
		fmt.Fprint(os.Stderr, usage)
		return 2
	case args[0] == "machine":
		err = supervise(args[1:])
	case args[0] == "serve":
		err = serveMachine(args[1:])
	case args[0] == "agent":
		err = serveSockets(args[1:])
	default:
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if errors.Is(err, flag.ErrHelp) {
		return 2
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "holt-guest: %v\n", err)
		return 1
	}
	return 0
}

// supervise keeps a machine's agent alive. The agent's own process can be
// ended by a defect; this one does nothing that could fail.
func supervise(args []string) error {
	protect(slog.New(slog.NewTextHandler(kernelLog{}, nil)))
	disregard(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT) // systemd's, at the end
	argv := append([]string{AgentName, "serve"}, args...)
	for ; ; argv = append([]string{AgentName, "serve", "--again"}, args...) {
		pid, err := syscall.ForkExec(GuestPath, argv, &syscall.ProcAttr{
			Dir: "/", Env: os.Environ(), Files: []uintptr{0, 1, 2},
		})
		if err != nil {
			kmsg(3, fmt.Sprintf("start agent: %v", err))
		} else {
			var status unix.WaitStatus
			for {
				if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
					break
				}
			}
			kmsg(3, fmt.Sprintf("agent ended with status %d; starting it again", status))
		}
		time.Sleep(restartAfter)
	}
}

// serveMachine is the agent of a virtual machine.
func serveMachine(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	netArg := flags.String("net", "", "static network")
	again := flags.Bool("again", false, "an earlier agent has ended; its sessions may stand")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(kernelLog{}, nil))
	disregard(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	unix.Umask(0o022)
	protect(log)
	go raiseNetwork(*netArg, log)
	control, err := openPort(ControlPort)
	if err != nil {
		return err
	}
	files, err := openPort(FilesPort)
	if err != nil {
		log.Warn("no workspace", "err", err)
	}
	if *again {
		go control.HangUp()
		if files != nil {
			go files.HangUp()
		}
	}
	return Serve(context.Background(), ServerOptions{Control: control, Files: files, Machine: true, Log: log})
}

// disregard drops signals. Ignoring them (SIG_IGN) would be inherited by runs.
func disregard(sig ...os.Signal) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sig...)
	go func() {
		for range c {
		}
	}()
}

func raiseNetwork(arg string, log *slog.Logger) {
	if arg == "" {
		if err := raiseLoopback(); err != nil {
			log.Error("raise network", "err", err)
		}
		return
	}
	n, err := parseNet(arg)
	if err == nil {
		err = n.raise()
	}
	if err != nil {
		log.Error("raise network", "err", err)
	}
}

// openPort opens a virtio-serial port, which may appear a little later than
// this process.
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

// serveSockets is the agent of a machine that is a local process: PID 1 of a
// namespace, or (in tests) any process.
func serveSockets(args []string) error {
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
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	opt := ServerOptions{
		Workspace: *workspace, Cgroup: *cgroup,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
	disregard(syscall.SIGPIPE)
	unix.Umask(0o022)
	line, err := listen(*control)
	if err != nil {
		return err
	}
	opt.Control = channel.NewPort(line)
	if *files != "" {
		if line, err = listen(*files); err != nil {
			return err
		}
		opt.Files = channel.NewPort(line)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return Serve(ctx, opt)
}

func listen(where string) (*channel.Socket, error) {
	if fd, ok := strings.CutPrefix(where, "fd:"); ok {
		return channel.InheritSocket(fd)
	}
	return channel.ListenSocket(where)
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
