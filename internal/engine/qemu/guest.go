package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holt/internal/engine/machine"
)

// spaceCheck is how often a guest paused for lack of host disk space is checked.
const spaceCheck = 2 * time.Second

// sockets are a machine's listening sockets, in the order of the fd constants.
var sockets = [...]string{monitorSocket, machine.PortControl + ".sock", machine.PortFiles + ".sock", consoleSocket, networkSocket}

// guest is a running machine. It is a [machine.Machine].
type guest struct {
	machine.Hold
	engine  *Engine
	spec    machine.Spec
	beneath []machine.Base // the disks below its disk, at the start
	monitor *qmp

	hardware Hardware               // changed by Grow, which holds taking
	unsure   bool                   // more may have been added than hardware has, see [guest.refreshAdded]
	disk     atomic.Pointer[string] // the root disk that it writes to; empty: none

	taking  sync.Mutex      // held during a snapshot or Grow
	holding context.Context // ends with Release, which ends a running snapshot
	letGo   context.CancelFunc
	moved   chan struct{} // signalled when a migration may have progressed
	pauses  pauses

	paused bool // paused for lack of disk space when adopted; read by supervise

	child  *os.Process    // if this process started it
	reaped sync.WaitGroup // of the goroutine that waits for the child; outlasts Release

	readers sync.WaitGroup // of the console and of QEMU's output
	quiet   []io.Closer    // closing these ends the readers
}

// newGuest returns a machine that is not running yet.
func newGuest(e *Engine, dir *machine.Dir, spec machine.Spec, hw Hardware) *guest {
	g := &guest{engine: e, spec: spec, hardware: hw, Hold: machine.Hold{Dir: dir, Ports: machine.Ports{Dir: dir}}, moved: make(chan struct{}, 1)}
	g.holding, g.letGo = context.WithCancel(context.Background())
	g.setDisk(spec.Disk)
	return g
}

// Disk implements [machine.Machine].
func (g *guest) Disk() string { return *g.disk.Load() }

func (g *guest) setDisk(path string) { g.disk.Store(&path) }

// Release implements [machine.Machine]. It abandons a running snapshot.
func (g *guest) Release() {
	g.letGo()
	g.taking.Lock()
	defer g.taking.Unlock()
	g.Hold.Release()
}

// connect opens the monitor and the console, and writes mark to the console log.
func (g *guest) connect(ctx context.Context, mark string) error {
	conn, err := g.Dir.Dial(ctx, monitorSocket)
	if err != nil {
		return err
	}
	if g.monitor, err = openQMP(ctx, conn); err != nil {
		return err
	}
	console, err := g.Dir.Dial(ctx, consoleSocket)
	if err != nil {
		return err
	}
	log, err := openLog(g.Console())
	if err != nil {
		console.Close()
		return err
	}
	fmt.Fprintf(log, consoleMark+"%s at %s]\n", mark, time.Now().UTC().Format(time.RFC3339))
	g.quiet = append(g.quiet, console)
	g.readers.Go(func() { log.drain(console) })
	return nil
}

// watch watches the machine until its end or Release.
func (g *guest) watch() {
	events := g.monitor.events
	g.Watch(func(released <-chan struct{}) bool { return g.supervise(events, released) })
}

func (g *guest) supervise(events <-chan event, released <-chan struct{}) (ended bool) {
	var full <-chan time.Time // set while the guest is paused for lack of disk space
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
		case <-g.Handle.Done():
			g.readers.Wait() // read its output to the end
			g.last(events)
			g.let()
			g.removeGroup()
			g.Dir.Close()
			return true
		case <-released:
			g.let()
			g.last(events)
			g.Dir.Close()
			return false
		}
	}
}

// last handles the events up to the end of the process, which closes the monitor.
func (g *guest) last(events <-chan event) {
	if events == nil {
		return
	}
	for e := range events {
		g.note(e)
	}
}

// note logs an event and reports whether the host's disk is full.
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
	case "MIGRATION", "MIGRATION_PASS", "STOP", "RESUME":
		g.pauses.see(e)
		if e.name == "RESUME" {
			g.trimEnd()
		}
		select {
		case g.moved <- struct{}{}:
		default:
		}
	case "SHUTDOWN", "GUEST_PANICKED", "RESET":
		log.Info("guest event", "data", clip(string(e.data)))
		var d struct {
			Guest bool `json:"guest"`
		}
		if e.name == "SHUTDOWN" && json.Unmarshal(e.data, &d) == nil && !d.Guest {
			// A signal leaves the same trace as a reset.
			if err := g.Dir.Remove(endFile); err != nil {
				log.Warn("remove trace", "err", err)
			}
		}
	}
	return false
}

// resume continues a paused guest if there is room again, and reports whether
// it did. QEMU then repeats the failed write.
func (g *guest) resume() bool {
	if machine.Room(filepath.Dir(g.Disk()), machine.MinFreeMB) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.engine.wait)
	defer cancel()
	if err := g.monitor.do(ctx, "cont", nil, nil); err != nil {
		g.engine.log.Warn("resume guest", "machine", g.spec.ID, "err", err)
		return false
	}
	g.engine.log.Info("guest is resumed: the host's disk has room again", "machine", g.spec.ID)
	return true
}

// let closes everything that this process has of the machine except its directory.
func (g *guest) let() {
	if g.monitor != nil {
		g.monitor.close()
	}
	g.Ports.Close()
	g.stopReaders()
	if g.Handle != nil {
		g.engine.claims.Remove(g.Handle.Process)
		g.Handle.Close()
	}
}

// stopReaders ends the readers and waits for them.
func (g *guest) stopReaders() {
	for _, c := range g.quiet {
		c.Close()
	}
	g.readers.Wait()
}

// PowerDown presses the ACPI power button. It soon gives up on a QEMU that does not answer.
func (g *guest) PowerDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.engine.wait)
	defer cancel()
	if err := g.monitor.do(ctx, "system_powerdown", nil, nil); err != nil {
		select {
		case <-g.Over():
			return machine.Gone(g.Dir.Path)
		default:
			return fmt.Errorf("power down machine: %w", err)
		}
	}
	return nil
}

// Kill implements [machine.Machine].
func (g *guest) Kill() error {
	if err := g.Handle.Process.Kill(); err != nil {
		return err
	}
	<-g.Over() // ended, or released before
	return machine.Clear(g.Dir.Path, append([]string{machine.InitrdFile}, sockets[:]...)...)
}

// isQEMU reports whether a process runs a QEMU binary, even one that was replaced on disk.
func isQEMU(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasPrefix(filepath.Base(exe), "qemu-system-")
}
