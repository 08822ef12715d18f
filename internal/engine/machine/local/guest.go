package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// guest is a running machine. It is a [machine.Machine].
type guest struct {
	machine.Hold
	engine *Engine
	disk   string // placeholder, from the spec

	child  *os.Process     // if this process started it
	status unix.WaitStatus // of the child, once reaped
	reaped sync.WaitGroup  // of the goroutine that waits for the child; outlasts Release
}

// Adopt implements [machine.Engine].
func (e *Engine) Adopt(ctx context.Context, path string) (machine.Machine, error) {
	dir, err := machine.OpenDir(path)
	if err != nil {
		return nil, err
	}
	handle, record, err := dir.Find(e.Strays)
	if err == nil && record.Engine != engineName {
		handle.Close()
		err = holt.Errorf(holt.Conflict, "the machine in %s runs on another engine, %.40q", path, record.Engine)
	}
	if err != nil {
		if errors.Is(err, machine.ErrGone) {
			sweepCgroups(path)
		}
		dir.Close()
		return nil, err
	}
	e.claims.Add(handle.Process)
	g := &guest{engine: e, disk: record.Spec.Disk, Hold: machine.Hold{Dir: dir, Handle: handle, Ports: machine.Ports{Dir: dir}}}
	g.Watch(g.supervise)
	return g, nil
}

// Snapshot implements [machine.Machine].
func (g *guest) Snapshot(context.Context, machine.SnapshotSpec) (machine.SnapshotReport, error) {
	return machine.SnapshotReport{}, noMemory()
}

// Grow implements [machine.Machine].
func (g *guest) Grow(context.Context, machine.Shape) error { return noShape() }

// Shape implements [machine.Machine].
func (g *guest) Shape(context.Context) (machine.Shape, error) { return machine.Shape{}, noShape() }

// noShape returns the error for changes of shape.
func noShape() error {
	return holt.Errorf(holt.Unsupported, "a machine of the local engine has all of the host's processors and memory").
		WithHint(machine.UseVirtual)
}

// noMemory returns the error for memory images.
func noMemory() error {
	return holt.Errorf(holt.Unsupported, "the local engine cannot keep a machine's memory").
		WithHint(machine.UseVirtual)
}

// Disk implements [machine.Machine].
func (g *guest) Disk() string { return g.disk }

// Reopen implements [machine.Machine]: its disk has no base.
func (g *guest) Reopen(context.Context) error { return nil }

// supervise waits for the machine's end or for Release.
func (g *guest) supervise(released <-chan struct{}) (ended bool) {
	select {
	case <-g.Handle.Done():
		sweepCgroups(g.Dir.Path)
		g.sayEnd()
		ended = true
	case <-released:
	}
	g.Let(&g.engine.claims)
	g.Dir.Close()
	return ended
}

// PowerDown sends SIGTERM to the agent.
func (g *guest) PowerDown(ctx context.Context) error {
	err := g.Handle.Signal(unix.SIGTERM)
	if errors.Is(err, machine.ErrGone) || errors.Is(err, os.ErrClosed) {
		return machine.Gone(g.Dir.Path)
	}
	if err != nil {
		return fmt.Errorf("power down machine: %w", err)
	}
	return nil
}

// Kill kills PID 1 of the machine; the kernel first kills all other processes
// of the PID namespace. See [machine.KillInit].
func (g *guest) Kill() error {
	if err := machine.KillInit(g.Handle.Process); err != nil {
		return err
	}
	<-g.Over() // ended, or released before
	sweepCgroups(g.Dir.Path)
	return machine.Clear(g.Dir.Path, sockets[:]...)
}
