package qemu

import (
	"context"
	"errors"

	"holt"
	"holt/internal/engine/jail"
)

// Reopen implements [machine.Machine]: QEMU opens the chain of base disks
// again, by the names in their headers, and switches to it between two requests
// of the guest.
func (g *guest) Reopen(ctx context.Context) error {
	if !g.taking.TryLock() {
		return holt.Errorf(holt.Conflict, "a snapshot of this machine is being taken")
	}
	defer g.taking.Unlock()
	disk, err := g.root(ctx)
	if err != nil || disk.Node == "" {
		return err
	}
	if err := g.checkOwnDisk(disk); err != nil {
		return err
	}
	beneath, err := g.engine.beneath(ctx, disk.File)
	if err != nil || len(beneath) == 0 || beneath[0].Format != "qcow2" {
		return err // an image's root is never replaced
	}
	under, err := g.newNode(ctx)
	if err == nil {
		err = jail.Show(g.Handle.PID, forReading(beneath)...)
	}
	if err != nil {
		return err
	}
	for _, one := range []struct {
		command string
		options map[string]any
	}{
		{"blockdev-add", with(fileNode(fileOf(under), beneath[0].Path), "read-only", true)},
		{"blockdev-add", with(diskNode(under), "read-only", true)},
		{"blockdev-reopen", map[string]any{"options": []any{with(diskNode(disk.Node), "backing", under)}}},
	} {
		if err = g.monitor.do(ctx, one.command, one.options, nil); err != nil {
			break
		}
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.engine.wait)
	defer cancel()
	return errors.Join(err, g.closeUnused(late), g.tidy())
}
