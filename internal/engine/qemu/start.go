package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
)

// logFile keeps what QEMU itself says.
const logFile = "qemu.log"

// startWait bounds a start that nobody else bounds: QEMU has to be loaded and
// to make the guest's memory. It takes 0.1 s, longer on a host that is busy.
const startWait = time.Minute

// environ is all that QEMU gets of an environment. A guest that takes QEMU over
// can read it, and the daemon's may hold secrets.
func environ() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
}

// Start implements [machine.Engine]. The guest's processors run only when the
// machine has been recorded, so a daemon that is killed meanwhile leaves a
// process that has done nothing, and that Strays finds.
func (e *Engine) Start(ctx context.Context, spec machine.Spec) (m machine.Machine, err error) {
	hw := e.verdict.hardware(spec)
	if spec.Restore != "" {
		if spec, hw, err = e.restored(spec); err != nil {
			return nil, err
		}
	}
	if err := e.check(spec); err != nil {
		return nil, err
	}
	var beneath []machine.Base
	if spec.Disk != "" {
		if beneath, err = e.beneath(ctx, spec.Disk); err != nil {
			return nil, err
		}
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
	defer lock.Close() // QEMU's copy keeps it
	g := newGuest(e, dir, spec, hw)
	g.beneath = beneath
	defer func() {
		if err != nil {
			g.undo()
		}
	}()
	booted := spec
	if booted.Initrd, err = g.holdInitrd(); err != nil {
		return nil, err
	}
	said, err := g.launch(lock, hw.arguments(booted))
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, e.startWait)
	defer cancel()
	if err := g.begin(bounded, spec); err != nil {
		return nil, g.explain(bounded, err, said)
	}
	g.watch()
	return g, nil
}

// check refuses what QEMU would refuse with a worse sentence.
func (e *Engine) check(spec machine.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	for _, f := range []struct{ name, path string }{{"kernel", spec.Kernel}, {"initrd", initrdFor(spec)}, {"disk", spec.Disk}} {
		if f.path == "" && f.name == "disk" {
			continue
		}
		if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
			return holt.Errorf(holt.NotFound, "the machine's %s %q does not exist", f.name, f.path)
		}
	}
	for _, a := range spec.Args {
		if strings.ContainsAny(a, " \t\n\"") {
			return holt.Errorf(holt.InvalidArgument, "kernel argument %q holds a blank or a quote", clip(a))
		}
	}
	return nil
}

// launch starts the process. What it says goes to the log that it returns.
func (g *guest) launch(lock *os.File, args []string) (*tailLog, error) {
	inherit := []*os.File{lock}
	defer func() {
		for _, f := range inherit[1:] {
			f.Close()
		}
	}()
	if err := g.Dir.Remove(sockets[:]...); err != nil {
		return nil, fmt.Errorf("remove sockets of a former machine: %w", err)
	}
	for _, name := range sockets { // in the order of the fd constants
		listen := g.Dir.Listen
		if name == networkSocket {
			listen = g.Dir.ListenFrames
		}
		l, err := listen(name)
		if err != nil {
			return nil, err
		}
		inherit = append(inherit, l)
	}
	if err := g.emptyEnd(); err != nil {
		return nil, err
	}
	said, err := openLog(g.Dir.File(logFile))
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		said.Close()
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer w.Close()
	cmd := exec.Command(g.engine.verdict.Binary, args...)
	cmd.Dir, cmd.ExtraFiles = g.Dir.Path, inherit
	cmd.Stdout, cmd.Stderr = w, w
	cmd.Env = environ()
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // the daemon's terminal and its signals are not the machine's
	if err := g.run(cmd); err != nil {
		w.Close()
		why, _ := io.ReadAll(io.LimitReader(r, maxLast))
		r.Close()
		said.Close()
		return nil, fmt.Errorf("start QEMU: %w: %s", err, strings.TrimSpace(string(why)))
	}
	g.readers.Go(func() { said.drain(r) })
	g.quiet = append(g.quiet, r)
	g.child = cmd.Process
	// It is our child, and nobody has waited for it: its process id is its own.
	p, err := machine.Identify(cmd.Process.Pid)
	if err == nil {
		g.Handle, err = p.Open()
	}
	g.reaped.Go(func() { cmd.Wait() })
	if err != nil {
		return said, fmt.Errorf("hold on to QEMU: %w", err)
	}
	g.behind()
	g.engine.claims.Add(p)
	g.bound(g.hardware.shape())
	return said, nil
}

// run starts the process, of which a guest that provokes a crash leaves no image of its memory on the disk. A
// thread's priority is what its children inherit, and it cannot be raised again: the thread ends with this.
func (g *guest) run(cmd *exec.Cmd) error {
	cell, err := g.cell()
	if err != nil {
		return err
	}
	return jail.Thread(func() error {
		if g.spec.Background {
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, lowestPriority); err != nil {
				return err
			}
		}
		start, forbid := cmd.Start, func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil) }
		if g.engine.apart {
			start, forbid = func() error { return cell.Start(cmd) }, cell.Forbid
		}
		if err := start(); err != nil {
			return err
		}
		if err := forbid(cmd.Process.Pid); err != nil {
			cmd.Process.Kill()
			cmd.Wait()
			return fmt.Errorf("forbid QEMU core dumps: %w", err)
		}
		return nil
	})
}

// behind has a machine in the background give way to the others also in what no thread hands down.
func (g *guest) behind() {
	if !g.spec.Background {
		return
	}
	// Memory that the host lacks is taken from it first (proc_pid_oom_score_adj(5)).
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", g.Handle.PID), []byte("1000"), 0)
	// Where each session has a share of its own (sched_autogroup), that is what counts.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", g.Handle.PID), fmt.Append(nil, lowestPriority), 0)
}

const lowestPriority = 19 // of nice(1)

// begin connects, records the machine and lets its processors run.
func (g *guest) begin(ctx context.Context, spec machine.Spec) error {
	if err := g.connect(ctx, "started"); err != nil {
		return err
	}
	hardware, err := json.Marshal(g.hardware)
	if err != nil {
		return fmt.Errorf("encode hardware: %w", err)
	}
	if spec.Restore != "" {
		if err := g.load(ctx); err != nil {
			return err
		}
		if err := g.enlarge(ctx); err != nil {
			return err
		}
	}
	err = g.Dir.WriteRecord(machine.Record{
		Engine:    g.engine.Name(),
		Process:   g.Handle.Process,
		Spec:      spec,
		StartedAt: time.Now().UTC(),
		Hardware:  hardware,
	})
	if err == nil {
		err = g.listening(ctx)
	}
	if err != nil {
		return err
	}
	return g.monitor.do(ctx, "cont", nil, nil)
}

// undo ends what a failed start has begun, in reverse.
func (g *guest) undo() {
	g.end()
	g.let()
	g.engine.groups.Remove(g.Dir.Path, groupWait)
	if err := g.Dir.Remove(append([]string{machine.RecordFile, machine.InitrdFile}, sockets[:]...)...); err != nil {
		g.engine.log.Warn("undo start of machine", "dir", g.Dir.Path, "err", err)
	}
	g.Dir.Close()
}

// end kills the child of a failed start. A process that cannot be killed (it
// waits for a dead disk) is left behind.
func (g *guest) end() {
	switch {
	case g.Handle != nil:
		if err := g.Handle.Kill(); err != nil {
			g.engine.log.Warn("undo start of machine", "dir", g.Dir.Path, "err", err)
		}
	case g.child != nil:
		g.child.Kill()
	}
	g.hush()
}

// explain adds what QEMU said to the error of a start.
func (g *guest) explain(ctx context.Context, err error, said *tailLog) error {
	if ctx.Err() != nil {
		return holt.Errorf(holt.Timeout, "start machine in %s: %w", g.Dir.Path, err)
	}
	if g.Handle.Kill() == nil {
		g.readers.Wait() // to the end of the pipe
	}
	return holt.Errorf(holt.Internal, "start machine in %s: %w: %s", g.Dir.Path, err, strings.TrimSpace(said.Last()))
}
