package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"holt/machine"
)

// spaceCheck is how often a guest that the host has no room for is looked at.
const spaceCheck = 2 * time.Second

// sockets are what a machine listens on, in the order of the fd constants.
var sockets = [...]string{monitorSocket, machine.PortControl + ".sock", machine.PortFiles + ".sock", consoleSocket}

// guest is a running machine. It is a [machine.Machine].
type guest struct {
	engine  *Engine
	dir     *machine.Dir
	spec    machine.Spec
	handle  *machine.Handle
	monitor *qmp
	ports   machine.Ports

	paused bool // when it was adopted, for want of room; read by supervise

	child  *os.Process    // if this process started it
	reaped sync.WaitGroup // of the goroutine that waits for the child; outlasts Release

	readers sync.WaitGroup // of console and of what QEMU says
	quiet   []io.Closer    // closing these ends the readers

	release sync.Once
	stop    chan struct{} // closed by Release
	stopped chan struct{} // closed when supervise has ended
	done    chan struct{} // closed when the machine has ended and its last words are logged
}

// connect opens the monitor and the console, and marks in its log how it came to.
func (g *guest) connect(ctx context.Context, mark string) error {
	conn, err := g.dir.Dial(ctx, monitorSocket)
	if err != nil {
		return err
	}
	if g.monitor, err = openQMP(ctx, conn); err != nil {
		return err
	}
	console, err := g.dir.Dial(ctx, consoleSocket)
	if err != nil {
		return err
	}
	log, err := openLog(g.Console())
	if err != nil {
		console.Close()
		return err
	}
	fmt.Fprintf(log, "\n[holt: machine %s at %s]\n", mark, time.Now().UTC().Format(time.RFC3339))
	g.quiet = append(g.quiet, console)
	g.readers.Go(func() { log.drain(console) })
	return nil
}

// watch begins to supervise. Before it, the guest is used by one goroutine only.
func (g *guest) watch() {
	g.stop, g.stopped, g.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	go g.supervise()
}

// supervise follows the machine to its end or to Release.
func (g *guest) supervise() {
	defer close(g.stopped)
	events := g.monitor.events
	var full <-chan time.Time // set while the guest is paused for want of room
	if g.paused {
		full = time.After(0)
	}
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok:
				events = nil // the process is about to end, or the monitor broke
			case g.note(e):
				full = time.After(spaceCheck)
			}
		case <-full:
			full = nil
			if !g.resume() {
				full = time.After(spaceCheck)
			}
		case <-g.handle.Done():
			g.readers.Wait() // to the end of what it wrote
			g.let()
			g.dir.Close()
			close(g.done)
			return
		case <-g.stop:
			g.let()
			g.dir.Close()
			return
		}
	}
}

// note logs what happened and says whether the host's disk is full.
func (g *guest) note(e event) bool {
	log := g.engine.log.With("machine", g.spec.ID, "event", e.name)
	switch e.name {
	case "BLOCK_IO_ERROR":
		var d struct {
			NoSpace bool   `json:"nospace"`
			Action  string `json:"action"`
			Reason  string `json:"reason"`
		}
		if err := json.Unmarshal(e.data, &d); err != nil {
			log.Warn("decode event", "err", err)
			return false
		}
		log.Warn("root disk failed", "reason", clip(d.Reason), "action", d.Action, "full", d.NoSpace)
		return d.NoSpace && d.Action == "stop"
	case "SHUTDOWN", "GUEST_PANICKED", "RESET":
		log.Info("guest event", "data", clip(string(e.data)))
	}
	return false
}

// resume lets a paused guest go on if there is room again. It says whether it
// goes on; the write that failed is then repeated.
func (g *guest) resume() bool {
	if room(filepath.Dir(g.spec.Disk)) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.engine.wait)
	defer cancel()
	if err := g.monitor.do(ctx, "cont", nil, nil); err != nil {
		g.engine.log.Warn("resume guest", "machine", g.spec.ID, "err", err)
		return false
	}
	g.engine.log.Info("guest goes on: its host has room again", "machine", g.spec.ID)
	return true
}

// let closes all that this process holds of the machine but its directory.
func (g *guest) let() {
	if g.monitor != nil {
		g.monitor.close()
	}
	g.ports.Close()
	g.hush()
	if g.handle != nil {
		g.engine.claims.Remove(g.handle.Process)
		g.handle.Close()
	}
}

// hush ends the readers and waits for them.
func (g *guest) hush() {
	for _, c := range g.quiet {
		c.Close()
	}
	g.readers.Wait()
}

// Dial implements [machine.Machine].
func (g *guest) Dial(ctx context.Context, port string) (net.Conn, error) {
	return g.ports.Dial(ctx, port)
}

// PowerDown presses the ACPI power button. A QEMU that does not answer is given
// up soon.
func (g *guest) PowerDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.engine.wait)
	defer cancel()
	if err := g.monitor.do(ctx, "system_powerdown", nil, nil); err != nil {
		select {
		case <-g.stopped:
			return machine.Gone(g.dir.Path)
		default:
			return fmt.Errorf("power down machine: %w", err)
		}
	}
	return nil
}

// Kill implements [machine.Machine].
func (g *guest) Kill() error {
	if err := g.handle.Process.Kill(); err != nil {
		return err
	}
	<-g.stopped // ended, or released before
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

// isQEMU says whether a process runs a QEMU binary, also one that was replaced.
func isQEMU(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasPrefix(filepath.Base(exe), "qemu-system-")
}
