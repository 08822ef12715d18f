package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// monitorWait is the timeout of a monitor command without another deadline.
// QEMU answers in milliseconds unless it serves another client.
const monitorWait = 10 * time.Second

// Adopt implements [machine.Engine].
func (e *Engine) Adopt(ctx context.Context, path string) (machine.Machine, error) {
	dir, err := machine.OpenDir(path)
	if err != nil {
		return nil, err
	}
	handle, record, err := dir.Find(e.Strays)
	if err == nil && !strings.HasPrefix(record.Engine, "qemu-") {
		handle.Close()
		err = holt.Errorf(holt.Conflict, "the machine in %s runs on engine %s, not on QEMU", path, clip(record.Engine))
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	g := newGuest(e, dir, record.Spec, Hardware{})
	g.Handle = handle
	if len(record.Hardware) > 0 {
		err = json.Unmarshal(record.Hardware, &g.hardware)
	}
	if err == nil {
		err = g.take(ctx)
	}
	if err != nil {
		g.let()
		dir.Close()
		return nil, fmt.Errorf("adopt machine in %s: %w", path, err)
	}
	e.claims.Add(handle.Process)
	g.bound(g.hardware.shape()) // another version of holt, or one in another group, may have started it
	g.watch()
	return g, nil
}

// take connects to a machine that another process started.
func (g *guest) take(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, g.engine.wait)
	defer cancel()
	if err := g.connect(within, "taken over; what it wrote while no daemon ran is lost,"); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return holt.Errorf(holt.Conflict, "QEMU does not answer: %w", err).
				WithHint("it serves one daemon at a time: check whether another daemon is running")
		}
		return err
	}
	status, err := g.status(within)
	if err != nil {
		return err
	}
	switch status {
	case "prelaunch", "inmigrate": // the daemon died before it started the guest
		if err := g.Handle.Kill(); err != nil {
			return err
		}
		return machine.Gone(g.Dir.Path)
	case "io-error":
		g.paused = true
	}
	// The previous daemon may have died at any point of a snapshot.
	if err := g.settle(within); err != nil {
		return err
	}
	disk, err := g.root(within)
	if err != nil {
		return err
	}
	g.setDisk(disk.File)
	if err := g.grown(within); err != nil {
		return err
	}
	if !isThere(g.Dir.File(machine.InitrdFile)) { // started by an older holt, which did not keep it
		if _, err := g.holdInitrd(); err != nil {
			g.engine.log.Warn("the machine cannot be snapshot until it is restarted", "machine", g.spec.ID, "err", err)
		}
	}
	return g.closeUnused(within)
}
