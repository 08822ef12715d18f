package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
)

const (
	// startWait is the timeout of a start without another deadline.
	startWait = time.Minute
	groupWait = time.Second      // for the kernel to remove a sandbox from its group
	goneWait  = 10 * time.Second // for the end of a keeper that has closed a connection
	maxLog    = 1 << 20          // of the keeper, when a machine starts, bytes

	// usualMB is the typical memory of keeper, gofer, sentry and the network process
	// in addition to the guest's, MiB. The limit for it is overheadMB, with the page
	// cache of the disk, which the kernel reclaims, and as much as the guest's: each
	// process of the guest takes some 0.6 MiB of the host besides its own memory, and
	// the agent allows at most one for each 0.7 MiB of the guest's.
	usualMB    = 64
	overheadMB = 512
	// processes is the limit for threads: each of the guest's address spaces has some on the host.
	processes      = 32 << 10
	lowestPriority = 19 // of nice(1)
)

var sockets = []string{machine.PortControl + ".sock", machine.PortFiles + ".sock", machine.PortNetwork + ".sock", KeeperSocket}

// Start implements [machine.Engine]. It returns when the keeper has mounted the
// root disk and listens. A machine with Spec.Unserved set starts at once, another
// one when its workspace is served.
func (e *Engine) Start(ctx context.Context, spec machine.Spec) (m machine.Machine, err error) {
	hardware, program := HardwareHere(), e.program
	if spec.Restore != "" {
		if spec, hardware, err = restored(spec); err != nil {
			return nil, err
		}
		if program, err = e.programOf(hardware.GVisor); err != nil {
			return nil, err
		}
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Disk == "" {
		return nil, holt.Errorf(holt.InvalidArgument, "a sandbox needs a root disk")
	}
	if _, err := ReadDiskHeader(spec.Disk); err != nil {
		return nil, err
	}
	dir, err := machine.MakeDir(spec.Dir)
	if err != nil {
		return nil, err
	}
	lock, err := dir.Lock()
	if err != nil {
		dir.Close()
		return nil, err
	}
	defer lock.Close() // the keeper has a copy
	g := &guest{engine: e, disk: spec.Disk, Hold: machine.Hold{Dir: dir, Ports: machine.Ports{Dir: dir}}}
	defer func() {
		if err != nil {
			g.undo()
		}
	}()
	bounded, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := g.launch(bounded, program, lock, spec); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(hardware)
	if err != nil {
		return nil, err
	}
	err = dir.WriteRecord(machine.Record{
		Engine: EngineName, Process: g.Handle.Process, Spec: spec, StartedAt: time.Now().UTC(), Hardware: encoded,
	})
	if err != nil {
		return nil, err
	}
	g.Watch(g.supervise)
	return g, nil
}

// restored completes the spec of a machine from the image that it is restored from, and returns the image's hardware.
//
// Errors: InvalidArgument, NotFound, Corrupt, Unsupported (this host cannot restore the image).
func restored(spec machine.Spec) (machine.Spec, Hardware, error) {
	var was Hardware
	if !filepath.IsAbs(spec.Restore) {
		return spec, was, holt.Errorf(holt.InvalidArgument, "machine image %q is not an absolute path", spec.Restore)
	}
	im, err := machine.ReadImage(spec.Restore)
	if err != nil {
		return spec, was, err
	}
	if im.Engine != EngineName {
		return spec, was, unfit("made by the engine %.40q", im.Engine)
	}
	if spec, err = spec.Restored(im); err != nil {
		return spec, was, err
	}
	if err := json.Unmarshal(im.Hardware, &was); err != nil {
		return spec, was, holt.Errorf(holt.Corrupt, "parse hardware of machine image: %w", err)
	}
	if was.CPU != HardwareHere().CPU {
		return spec, was, unfit("made on a processor with other features")
	}
	return spec, was, nil
}

// unfit returns the error for an image that this host cannot restore.
func unfit(format string, args ...any) error {
	return holt.Errorf(holt.Unsupported, "the memory image was %s", fmt.Sprintf(format, args...)).
		WithHint("a memory image needs the same gVisor and processor; the machine's disk can be started on any")
}

// HardwareHere returns the hardware of machines that this host starts.
var HardwareHere = sync.OnceValue(func() Hardware {
	h := Hardware{GVisor: Version}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return h
	}
	var flags []string
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && (strings.HasPrefix(name, "flags") || strings.HasPrefix(name, "Features")) {
			flags = strings.Fields(value)
			break
		}
	}
	slices.Sort(flags)
	sum := sha256.Sum256([]byte(strings.Join(flags, " ")))
	h.CPU = hex.EncodeToString(sum[:8])
	return h
})

// launch starts the keeper and waits until it is ready.
func (g *guest) launch(ctx context.Context, program string, lock *os.File, spec machine.Spec) error {
	if err := g.Dir.Remove(append([]string{EndFile}, sockets...)...); err != nil {
		return fmt.Errorf("remove sockets of a former machine: %w", err)
	}
	log, err := os.OpenFile(g.Dir.File(logFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > maxLog {
		log.Truncate(0)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	in, tell, err := os.Pipe()
	if err != nil {
		w.Close()
		return fmt.Errorf("make pipe: %w", err)
	}
	defer tell.Close()
	cmd := exec.Command(program)
	cmd.Args, cmd.Dir, cmd.ExtraFiles = []string{KeeperName}, g.Dir.Path, []*os.File{lock, w}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, log, log
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} // the daemon's environment may have secrets
	if debug := os.Getenv(DebugEnv); debug != "" {
		cmd.Env = append(cmd.Env, DebugEnv+"="+debug)
	}
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	err = jail.Thread(func() error { // a lowered priority is inherited from the thread
		if spec.Background {
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, lowestPriority); err != nil {
				return err
			}
		}
		return cmd.Start()
	})
	w.Close()
	in.Close()
	if err != nil {
		return holt.Errorf(holt.Unsupported, "start a sandbox in namespaces of its own: %w", err)
	}
	g.child = cmd.Process
	// It is an unreaped child, so its process id is not reused.
	p, err := machine.Identify(cmd.Process.Pid)
	if err == nil {
		g.Handle, err = p.Open()
	}
	g.reaped.Go(func() { cmd.Wait() })
	if err != nil {
		return fmt.Errorf("open a pidfd of the sandbox's keeper: %w", err)
	}
	g.engine.claims.Add(p)
	limits := cgroup.Limits{CPUs: float64(spec.CPUs) + 1, MemoryBytes: int64(2*spec.MemoryMB+overheadMB) * mib, Processes: processes, Background: spec.Background}
	if err := g.engine.groups.Put(g.Dir.Path, g.Handle.PID, limits); err != nil {
		g.engine.log.Warn("cannot set all resource limits of a machine", "machine", spec.ID, "err", err)
	}
	if err := json.NewEncoder(tell).Encode(Launch{Spec: spec, Guest: g.engine.guest}); err != nil {
		return fmt.Errorf("start a sandbox: %w", err)
	}
	tell.Close()
	return g.ready(ctx, r)
}

// ready waits for the keeper's report.
func (g *guest) ready(ctx context.Context, r *os.File) error {
	defer context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Unix(1, 0)) })()
	b, err := io.ReadAll(io.LimitReader(r, mib))
	var a Answer
	switch {
	case ctx.Err() != nil:
		return holt.Errorf(holt.Timeout, "start a sandbox in %s: %w", g.Dir.Path, ctx.Err())
	case err != nil:
		return fmt.Errorf("start a sandbox: %w", err)
	case json.Unmarshal(b, &a) != nil:
		return holt.Errorf(holt.Internal, "the sandbox in %s ended at once: %s", g.Dir.Path, machine.EndOfLog(g.Dir.File(logFile)))
	case a.Error != nil:
		return a.Error
	}
	return nil
}

// undo undoes a failed start, in reverse.
func (g *guest) undo() {
	switch {
	case g.Handle != nil: // KillInit also aborts its mounts
		if err := machine.KillInit(g.Handle.Process); err != nil {
			g.engine.log.Warn("undo start of machine", "dir", g.Dir.Path, "err", err)
		}
	case g.child != nil:
		g.child.Kill()
		g.reaped.Wait()
	}
	g.Let(&g.engine.claims)
	g.engine.groups.Remove(g.Dir.Path, groupWait)
	if err := g.Dir.Remove(append([]string{machine.RecordFile}, sockets...)...); err != nil {
		g.engine.log.Warn("undo start of machine", "dir", g.Dir.Path, "err", err)
	}
	g.Dir.Close()
}

// connect dials the keeper.
func (g *guest) connect(ctx context.Context) (*line, error) {
	conn, err := g.Dir.Dial(ctx, KeeperSocket)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	return &line{conn: conn, dec: json.NewDecoder(io.LimitReader(conn, mib)), stop: sync.OnceValue(func() bool {
		stopped := stop()
		if !stopped {
			<-ended // nothing changes the deadline any more
		}
		return stopped
	})}, nil
}

// gone returns ErrGone if the machine has ended, else err.
func (g *guest) gone(err error) error {
	if err == nil {
		return nil
	}
	wait := time.Duration(0)
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE} {
		if errors.Is(err, broken) { // the keeper is about to end: its sockets are closed first
			wait = goneWait
		}
	}
	late, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	select {
	case <-g.Handle.Done():
	case <-late.Done():
	}
	if errors.Is(err, machine.ErrGone) || g.ended() {
		return machine.Gone(g.Dir.Path)
	}
	return err
}

func (g *guest) ended() bool {
	select {
	case <-g.Handle.Done():
		return true
	default:
		return false
	}
}
