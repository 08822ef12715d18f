package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	gvlog "gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/specutils"

	"holt"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
)

// sandboxID is the same for all sandboxes: paths of cgroups in the guest begin with it, also in forks.
const sandboxID = "computer"

// keeper is the process of one machine. See the package's comment.
type keeper struct {
	launch gvisor.Launch
	log    *slog.Logger
	conf   *config.Config
	tags   *tags
	lines  *lines
	memory *os.File      // of the image that is restored; nil: none
	served chan struct{} // closed when the workspace is served for the first time

	mu      sync.Mutex
	running *container.Container // nil until it runs
	disk    string               // path of the root disk
}

// keeperMain is the keeper's main function. It returns the exit status.
func keeperMain() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	unix.CloseOnExec(gvisor.LockFD)
	unix.CloseOnExec(gvisor.ReportFD)
	report := os.NewFile(gvisor.ReportFD, "report")
	k := &keeper{log: slog.New(slog.NewTextHandler(os.Stderr, nil)), served: make(chan struct{})}
	err := k.prepare()
	answer := gvisor.Answer{}
	if err != nil {
		answer.Error = holt.AsError(err)
	}
	json.NewEncoder(report).Encode(answer)
	report.Close()
	if err != nil {
		return 1
	}
	if err := k.run(); err != nil {
		k.log.Error("sandbox", "err", err)
		if console, err2 := os.OpenFile(machine.ConsoleFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err2 == nil {
			fmt.Fprintf(console, "holt: the sandbox cannot start: %v\n", err)
		}
		return 1
	}
	return 0
}

// prepare mounts the root disk and opens the sockets.
func (k *keeper) prepare() error {
	if err := json.NewDecoder(io.LimitReader(os.Stdin, 1<<20)).Decode(&k.launch); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	spec := k.launch.Spec
	k.disk = spec.Disk
	if err := enter(); err != nil {
		return err
	}
	if err := mountRoot(spec.Disk); err != nil {
		return err
	}
	if spec.Restore != "" { // it may be removed as soon as the start is reported
		memory, err := openImage(spec.Restore, imageDir)
		if err != nil {
			return err
		}
		k.memory = memory
	}
	if err := mount(k.launch.Guest, guestDir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	gvlog.SetLevel(gvlog.Warning)
	gvlog.SetTarget(&gvlog.GoogleEmitter{Writer: &gvlog.Writer{Next: os.Stderr}})
	var err error
	if k.conf, err = settings(spec.Dir, os.Getenv(gvisor.DebugEnv)); err != nil {
		return err
	}
	if k.tags, err = newTags(bundleDir + "/tags.sock"); err != nil {
		return err
	}
	if k.lines, err = openLines(k.log); err != nil {
		return err
	}
	if !spec.Unserved {
		files, err := channel.ListenSocket(machine.Socket(machine.PortFiles))
		if err != nil {
			return err
		}
		go k.serveFiles(files)
	}
	requests, err := listen(gvisor.KeeperSocket, "unix")
	if err != nil {
		return err
	}
	go k.serve(requests)
	return takeConsole()
}

// serveFiles serves the workspace.
func (k *keeper) serveFiles(files *channel.Socket) {
	var once sync.Once
	err := agent.ServeFiles(context.Background(), agent.FilesOptions{
		Port: channel.NewPort(files), Workspace: workspaceDir, Tagger: k.tags, Log: k.log,
		Standing: func(is agent.Standing) {
			if is == agent.Served {
				once.Do(func() { close(k.served) })
			}
		},
	})
	k.log.Error("no workspace", "err", err)
}

// run runs the sandbox until its end.
func (k *keeper) run() error {
	if !k.launch.Spec.Unserved {
		<-k.served // gVisor opens the workspace
	}
	c, err := k.begin()
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.running = c
	k.mu.Unlock()
	over := make(chan machine.EndKind, 1)
	go func() {
		status, err := c.Wait()
		k.log.Info("sandbox ended", "status", status, "err", err)
		if err == nil && status == 0 { // init has ended
			over <- machine.EndOff
		} else {
			over <- machine.EndUnknown
		}
	}()
	var kind machine.EndKind
	select {
	case kind = <-over:
		select {
		case said := <-k.tags.Ended():
			kind = machine.EndKind(said)
		default:
		}
	case said := <-k.tags.Ended():
		kind = machine.EndKind(said)
	}
	k.mu.Lock() // waits for a snapshot; no request is answered any more
	return k.end(kind)
}

// end ends the sandbox, releases the root disk, and records how it ended. mu is held.
func (k *keeper) end(kind machine.EndKind) error {
	k.running.Destroy()
	return errors.Join(os.WriteFile(gvisor.EndFile, []byte(kind), 0o600), unmountRoot())
}

// begin starts the sandbox, or restores it from an image.
func (k *keeper) begin() (*container.Container, error) {
	spec := k.launch.Spec
	if err := writeBundle(spec); err != nil {
		return nil, err
	}
	bundle, err := specutils.ReadSpec(bundleDir, k.conf)
	if err != nil {
		return nil, err
	}
	var link *os.File
	if spec.Network {
		near, far, err := linkPair()
		if err != nil {
			return nil, err
		}
		link = far
		go k.lines.network(near)
	}
	c, err := container.New(k.conf, container.Args{
		ID: sandboxID, Spec: bundle, BundleDir: bundleDir, PassFiles: map[int]*os.File{3: k.lines.in, 4: k.lines.out},
	})
	if err != nil {
		return nil, fmt.Errorf("create the sandbox: %w", err)
	}
	args := links(link, spec.Restore != "")
	if spec.Restore != "" {
		err = c.Restore(k.conf, imageDir, false, false, args)
	} else if err = call(c, boot.ContMgrSetNetworkArgs, args); err == nil {
		// Start would read a network namespace. With the host's network in this
		// copy it does not; the sandbox, which was started before, has its own.
		quiet := *k.conf
		quiet.Network = config.NetworkHost
		err = c.Start(&quiet)
	}
	if err != nil {
		c.Destroy()
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	return c, nil
}

// call calls the sandbox's control server.
func call(c *container.Container, method string, arg any) error {
	conn, err := client.ConnectTo(c.Sandbox.GetControlSocketPath())
	if err != nil {
		return fmt.Errorf("connect to the sandbox: %w", err)
	}
	defer conn.Close()
	return conn.Call(method, arg, nil)
}
