package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"holt"
	"holt/machine"
)

// guest is a running machine. It is a [machine.Machine].
type guest struct {
	engine *Engine
	dir    *machine.Dir
	handle *machine.Handle
	ports  machine.Ports

	child  *os.Process    // if this process started it
	reaped sync.WaitGroup // of the goroutine that waits for the child; outlasts Release

	release sync.Once
	stop    chan struct{} // closed by Release
	stopped chan struct{} // closed when supervise has ended
	done    chan struct{} // closed when the machine has ended
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
	g := &guest{engine: e, dir: dir, handle: handle, ports: machine.Ports{Dir: dir}}
	g.watch()
	return g, nil
}

// watch begins to supervise. Before it, the guest is used by one goroutine only.
func (g *guest) watch() {
	g.stop, g.stopped, g.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	go g.supervise()
}

// supervise waits for the machine's end or for Release.
func (g *guest) supervise() {
	defer close(g.stopped)
	select {
	case <-g.handle.Done():
		sweepCgroups(g.dir.Path)
		defer close(g.done)
	case <-g.stop:
	}
	g.let()
	g.dir.Close()
}

// let closes all that this process holds of the machine but its directory.
func (g *guest) let() {
	g.ports.Close()
	if g.handle != nil {
		g.engine.claims.Remove(g.handle.Process)
		g.handle.Close()
	}
}

// Dial implements [machine.Machine].
func (g *guest) Dial(ctx context.Context, port string) (net.Conn, error) {
	return g.ports.Dial(ctx, port)
}

// PowerDown sends SIGTERM to the agent.
func (g *guest) PowerDown(ctx context.Context) error {
	err := g.handle.Signal(unix.SIGTERM)
	if errors.Is(err, machine.ErrGone) || errors.Is(err, os.ErrClosed) {
		return machine.Gone(g.dir.Path)
	}
	if err != nil {
		return fmt.Errorf("power down machine: %w", err)
	}
	return nil
}

// Kill kills PID 1 of the machine; the kernel kills all others of its PID
// namespace before that one is gone. See [kill].
func (g *guest) Kill() error {
	if err := kill(g.handle.Process); err != nil {
		return err
	}
	<-g.stopped // ended, or released before
	sweepCgroups(g.dir.Path)
	return machine.Clear(g.dir.Path, sockets[:]...)
}

// Release implements [machine.Machine].
func (g *guest) Release() {
	g.release.Do(func() { close(g.stop) })
	<-g.stopped
}

// Done implements [machine.Machine].
func (g *guest) Done() <-chan struct{} { return g.done }

// Console implements [machine.Machine].
func (g *guest) Console() string { return g.dir.File(machine.ConsoleFile) }

// PID implements [machine.Machine].
func (g *guest) PID() int { return g.handle.PID }

// isInit says whether a process is PID 1 of a PID namespace below this one.
func isInit(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(status) {
		if ids, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			f := bytes.Fields(ids)
			return len(f) > 1 && string(f[len(f)-1]) == "1"
		}
	}
	return false
}
