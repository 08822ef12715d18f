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

// logFile has QEMU's own output.
const logFile = "qemu.log"

// startWait is the timeout of a start without another deadline. Loading QEMU
// and allocating memory takes 0.1 s, more on a busy host.
const startWait = time.Minute

// environ is the environment of QEMU. It has nothing of the daemon's, which may
// have secrets: a guest that compromises QEMU can read it.
func environ() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
}

// Start implements [machine.Engine]. The guest's processors run only after the
// machine is recorded. If the daemon is killed before that, the process has
// done nothing, and Strays finds it.
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
	defer lock.Close() // QEMU has a copy
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

// check refuses specs for which QEMU's own errors are unclear.
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
			return holt.Errorf(holt.InvalidArgument, "kernel argument %q contains a space or a quote", clip(a))
		}
	}
	return nil
}

// launch starts the process and returns the log of its output.
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
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // detach it from the daemon's terminal and signals
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
	// It is an unreaped child, so its process id is not reused.
	p, err := machine.Identify(cmd.Process.Pid)
	if err == nil {
		g.Handle, err = p.Open()
	}
	g.reaped.Go(func() { cmd.Wait() })
	if err != nil {
		return said, fmt.Errorf("open a pidfd of QEMU: %w", err)
	}
	g.lowerPriority()
	g.engine.claims.Add(p)
	g.bound(g.hardware.shape())
	return said, nil
}

// run starts the process with core dumps disabled, so that a guest that crashes
// it leaves no memory on the disk. It uses a thread of its own, because a
// lowered priority is inherited from the thread and cannot be raised again.
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

// lowerPriority lowers the priority of a background machine in ways that are not inherited.
func (g *guest) lowerPriority() {
	if !g.spec.Background {
		return
	}
	// The out-of-memory killer chooses it first (proc_pid_oom_score_adj(5)).
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", g.Handle.PID), []byte("1000"), 0)
	// With sched_autogroup, the priority of the session's autogroup counts.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", g.Handle.PID), fmt.Append(nil, lowestPriority), 0)
}

const lowestPriority = 19 // of nice(1)

// begin connects, records the machine, and starts its processors.
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

// undo undoes a failed start, in reverse.
func (g *guest) undo() {
	g.end()
	g.let()
	g.engine.groups.Remove(g.Dir.Path, groupWait)
	if err := g.Dir.Remove(append([]string{machine.RecordFile, machine.InitrdFile}, sockets[:]...)...); err != nil {
		g.engine.log.Warn("undo start of machine", "dir", g.Dir.Path, "err", err)
	}
	g.Dir.Close()
}

// end kills the child of a failed start. It abandons a process that cannot be
// killed because it waits for a dead disk.
func (g *guest) end() {
	switch {
	case g.Handle != nil:
		if err := g.Handle.Kill(); err != nil {
			g.engine.log.Warn("undo start of machine", "dir", g.Dir.Path, "err", err)
		}
	case g.child != nil:
		g.child.Kill()
	}
	g.stopReaders()
}

// explain adds QEMU's output to the error of a start.
func (g *guest) explain(ctx context.Context, err error, said *tailLog) error {
	if ctx.Err() != nil {
		return holt.Errorf(holt.Timeout, "start machine in %s: %w", g.Dir.Path, err)
	}
	if g.Handle.Kill() == nil {
		g.readers.Wait() // to the end of the pipe
	}
	return holt.Errorf(holt.Internal, "start machine in %s: %w: %s", g.Dir.Path, err, strings.TrimSpace(said.Last()))
}
