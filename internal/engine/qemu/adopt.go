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

// monitorWait bounds an answer of QEMU's monitor that nobody else bounds. It
// answers in milliseconds unless it serves someone else.
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
	g.bound(g.hardware.shape()) // an earlier holt, or one with another group of its own, may have started it
	g.watch()
	return g, nil
}

// take connects to a machine that somebody else started.
func (g *guest) take(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, g.engine.wait)
	defer cancel()
	if err := g.connect(within, "taken over; what it wrote while no daemon ran is lost,"); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return holt.Errorf(holt.Conflict, "QEMU does not answer: %w", err).
				WithHint("it serves one daemon at a time; is another one running?")
		}
		return err
	}
	status, err := g.status(within)
	if err != nil {
		return err
	}
	switch status {
	case "prelaunch", "inmigrate": // the daemon that started it died before the guest ran
		if err := g.Handle.Kill(); err != nil {
			return err
		}
		return machine.Gone(g.Dir.Path)
	case "io-error":
		g.paused = true
	}
	// One that took a snapshot may have died at any point of it.
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
	if !isThere(g.Dir.File(machine.InitrdFile)) { // it was started by a program that did not hold it
		if _, err := g.holdInitrd(); err != nil {
			g.engine.log.Warn("no snapshot can be taken of a machine before it is started again", "machine", g.spec.ID, "err", err)
		}
	}
	return g.closeUnused(within)
}
