package computer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/image"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// undoLimit bounds an undo, which runs even when the caller has left.
const undoLimit = 2 * time.Minute

// step is one named part of a change of a computer. undo must be harmless when do was never called,
// failed, or was undone before.
type step struct {
	name     string
	do, undo func(context.Context) error
}

// transition is a computer whose state is being changed, step by step. After a crash its live is
// nil.
type transition struct {
	s     *Store
	r     *record
	img   image.Image
	claim *idempotency.Claim
	live  *live

	from    *snapshot        // what it is resumed from; nil: its template's snapshot, or it boots
	kept    string           // directory of that snapshot; "": it boots
	of      template         // whose snapshot that is
	source  holt.WorkspaceID // of which its workspace is a fork; "": of none
	repeats bool             // it was resumed from the same snapshot before: a restore
	before  holt.DiskID      // the disk of a computer that is being resumed
	stuck   error            // why undoing stopped half-way
}

// steps are all parts of a computer, in the order in which they are made.
func (m *transition) steps() []step {
	return append([]step{
		{"row", m.makeRow, m.dropRow},
		{"workspace", m.makeWorkspace, m.dropWorkspace},
		{"snapshots", nothing, m.dropSnapshots},
		{"disk", m.makeDisk, m.dropDisk},
	}, m.boot()...)
}

// boot are the parts of a running machine.
func (m *transition) boot() []step {
	return []step{
		{"open", m.openWorkspace, m.closeWorkspace},
		{"machine", m.startMachine, m.killMachine},
		{"agent", m.awaitAgent, m.disconnect},
	}
}

// forward does steps. If one fails, it undoes that one and those before it.
func (m *transition) forward(ctx context.Context, verb string, steps []step) error {
	for i, st := range steps {
		err := m.s.cfg.failpoint(verb + "/" + st.name)
		if err == nil {
			err = st.do(ctx)
		}
		if err != nil {
			m.s.log.WarnContext(ctx, "undo", "verb", verb, "step", st.name, "computer", m.r.ID, "err", err)
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
			defer cancel()
			if lost := m.back(late, "undo-"+verb, steps[:i+1]); lost != nil {
				m.s.log.ErrorContext(ctx, "undo failed step", "verb", verb, "computer", m.r.ID, "err", lost)
				m.stuck = lost
			}
			return err
		}
	}
	return nil
}

// back undoes steps in reverse. It stops at one that cannot be undone.
func (m *transition) back(ctx context.Context, verb string, steps []step) error {
	for i := len(steps) - 1; i >= 0; i-- {
		if err := m.s.cfg.failpoint(verb + "/" + steps[i].name); err != nil {
			return err
		}
		if err := steps[i].undo(ctx); err != nil {
			return fmt.Errorf("undo %s: %w", steps[i].name, err)
		}
	}
	return nil
}

// failpoint is where a test can make a step fail, or kill the process.
func (c *Config) failpoint(name string) error {
	if c.Fail == nil {
		return nil
	}
	return c.Fail(name)
}

func (c *Config) dir(id holt.ComputerID) string { return filepath.Join(c.Dir, string(id)) }

// taken reports whether a workspace has a name.
func (c *Config) taken(ctx context.Context, name string) bool {
	_, _, err := c.Workspaces.Find(ctx, name)
	return err == nil
}

func (m *transition) makeRow(ctx context.Context) error {
	name, space := m.r.Name, m.r.Workspace
	return m.s.idler.withRoom(ctx, func() error {
		m.r.Name, m.r.Workspace = name, space // it gets one when there is room
		return m.insertRow(ctx)
	})
}

func (m *transition) insertRow(ctx context.Context) error {
	return m.s.table.insert(ctx, m.r, m.claim, func(name string) bool { return m.s.cfg.taken(ctx, name) }, func(tx *db.Tx) error {
		if err := insertPolicy(tx, m.r); err != nil {
			return err
		}
		if err := inheritSecrets(tx, m.r); err != nil || m.r.disk == "" {
			return err
		}
		return m.s.disks.insert(tx, m.r.disk, m.under(), m.r)
	})
}

// under is the disk beneath the computer's; "": the image.
func (m *transition) under() holt.DiskID {
	if m.from == nil {
		return ""
	}
	return m.from.disk
}

// dropRow removes the computer from the record, and its disk unless another disk needs it.
func (m *transition) dropRow(ctx context.Context) error {
	var also []func(*db.Tx, holt.ComputerID) error
	if m.s.cfg.Schedules != nil {
		also = append(also, m.s.cfg.Schedules.Forget)
	}
	if err := m.s.table.erase(ctx, m.r.ID, also...); err != nil {
		return err
	}
	_, err := m.s.disks.collect(ctx)
	return err
}

func (m *transition) makeWorkspace(ctx context.Context) error {
	if !m.r.owned {
		return nil
	}
	if m.source != "" {
		return m.s.cfg.Workspaces.Fork(ctx, m.r.workspaceID, m.r.Workspace, m.source, m.from.checkpoint(), !m.from.Stopped)
	}
	return m.s.cfg.Workspaces.Make(ctx, m.r.workspaceID, m.r.Workspace, WorkspaceQuota(m.r.WorkspaceSizeMB))
}

// dropSnapshots removes the computer's snapshots, before its workspace, which they need.
func (m *transition) dropSnapshots(ctx context.Context) error {
	all, err := m.s.snapshots.list(ctx, `WHERE computer = ?`, m.r.ID)
	if err != nil || len(all) == 0 {
		return err
	}
	if err := m.s.snapshots.leave(ctx, m.r.ID); err != nil {
		return err
	}
	for _, one := range all {
		if _, err := m.s.snapshotter.removeSnapshot(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (m *transition) dropWorkspace(ctx context.Context) error {
	if !m.r.owned {
		return nil
	}
	return m.s.cfg.Workspaces.Remove(ctx, m.r.workspaceID)
}

func (m *transition) makeDisk(ctx context.Context) error {
	dir := m.s.cfg.dir(m.r.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return hosterror.Full(fmt.Errorf("make computer directory: %w", err))
	}
	if m.r.disk == "" {
		return nil
	}
	err := m.s.cfg.Images.Hold(ctx, m.r.image, dir)
	if err == nil && m.from == nil {
		m.of = m.ancestry()
		m.kept, err = m.of.snapshot(ctx)
	}
	if err != nil {
		return err
	}
	return m.makeOverlay(ctx)
}

func (m *transition) template() template {
	return template{Templates: m.s.templates, engine: m.engine(), img: m.img, r: *m.r}
}

// restored reports whether the machine is resumed instead of booted.
func (m *transition) restored() bool { return m.memory() || m.kept != "" }

// memory reports whether it is resumed from a snapshot with memory.
func (m *transition) memory() bool { return m.from != nil && !m.from.Stopped }

// makeOverlay makes the computer's disk over the snapshot's, the template snapshot's or the image.
func (m *transition) makeOverlay(ctx context.Context) error {
	return m.overlay(ctx, m.r.disk, m.r.DiskSizeMB)
}

func (m *transition) overlay(ctx context.Context, id holt.DiskID, sizeMB int) error {
	if id == "" {
		return nil
	}
	base := machine.Base{Path: m.img.Root}
	if m.kept != "" {
		base = machine.Base{Path: filepath.Join(m.kept, image.SnapshotDisk), Format: "qcow2"}
	}
	if under := m.under(); under != "" {
		base = machine.Base{Path: m.s.disks.path(under), Format: "qcow2"}
	}
	return hosterror.Full(m.engine().CreateDisk(ctx, m.s.disks.path(id), base, sizeMB))
}

func (m *transition) dropDisk(context.Context) error {
	if err := os.RemoveAll(m.s.cfg.dir(m.r.ID)); err != nil {
		return fmt.Errorf("remove computer directory: %w", err)
	}
	return nil
}

// openWorkspace opens the workspace for this computer. Its machine is not running, so mounts of
// guests that are still on record have ended, unless the guest is resumed. The kernel of a resumed
// guest caches the files of the snapshot, so it is told what has changed.
func (m *transition) openWorkspace(ctx context.Context) error {
	ws, release, err := m.s.cfg.Workspaces.Take(ctx, m.r.workspaceID)
	if err != nil {
		return err
	}
	m.live = newLive(m.s, *m.r, ws, release)
	if !m.memory() {
		return endMounts(ws) // if this fails closeWorkspace releases it
	}
	if m.source != "" {
		return nil
	}
	return m.s.cfg.Workspaces.Announce(ctx, m.r.workspaceID, m.from.checkpoint())
}

// closeWorkspace releases the workspace. A failed sync, for instance on a full disk, does not
// prevent that: the journal has everything that was acknowledged.
func (m *transition) closeWorkspace(context.Context) error {
	if m.live == nil {
		return nil
	}
	err := m.live.ws.Tree().Sync()
	if !m.memory() {
		err = errors.Join(endMounts(m.live.ws), err)
	}
	if err != nil {
		m.s.log.Warn("close workspace", "computer", m.r.ID, "workspace", m.r.workspaceID, "err", err)
	}
	m.live.release()
	m.live = nil
	return nil
}

// endMounts ends the mounts of a guest that has ended, which frees unlinked open files.
func endMounts(ws *workspace.Workspace) error {
	for _, e := range ws.Epochs() {
		if e.Kind != workspace.GuestMount {
			continue
		}
		if err := ws.EndEpoch(e.Epoch); err != nil {
			return fmt.Errorf("end mount of workspace: %w", err)
		}
	}
	return nil
}

func (m *transition) startMachine(ctx context.Context) error {
	if err := m.s.shutdown.mayStart(); err != nil {
		return err
	}
	spec := machine.Spec{
		ID: string(m.r.ID), Dir: m.s.cfg.dir(m.r.ID), Kernel: m.img.Kernel, Initrd: m.img.Initrd, Args: m.img.Args,
		CPUs: m.r.CPUs, MemoryMB: m.r.MemoryMB, MaxCPUs: maxCPUs(), MaxMemoryMB: hostMemoryMB(), Network: true,
	}
	if m.kept != "" {
		spec = machine.Spec{ID: spec.ID, Dir: spec.Dir, Restore: m.kept}
	}
	if m.memory() {
		done, err := m.s.archiver.use(ctx, *m.from)
		if err != nil {
			return err
		}
		defer done()
		spec = machine.Spec{ID: spec.ID, Dir: spec.Dir, Restore: m.s.snapshots.path(m.from.ID)}
	}
	if m.r.disk != "" {
		spec.Disk = m.s.disks.path(m.r.disk)
		if !m.restored() { // it may have been resized since it was made
			if err := m.engine().GrowDisk(ctx, spec.Disk, m.r.DiskSizeMB); err != nil {
				return hosterror.Full(err)
			}
		}
	}
	m.live.launched = time.Now()
	vm, err := m.engine().Start(ctx, spec)
	if err = hosterror.Full(err); err != nil && m.kept != "" && ctx.Err() == nil && holt.CodeOf(err) != holt.OutOfSpace {
		if err := m.bootInstead(ctx, err); err != nil {
			return err
		}
		return m.startMachine(ctx)
	}
	m.live.m = vm
	if err != nil {
		return err
	}
	m.inheritNames()
	return m.live.plug(ctx, m.s, false)
}

// killMachine ends the machine, whether this daemon started it or not.
func (m *transition) killMachine(ctx context.Context) error {
	if m.live != nil && m.live.m != nil {
		err := m.live.m.Kill()
		m.live.m.Release()
		return errors.Join(err, m.live.unplug(true))
	}
	if m.live != nil {
		return nil
	}
	return m.s.cfg.killIn(ctx, m.s.cfg.dir(m.r.ID), m.engine())
}

// bootInstead switches a computer from the template's snapshot to a boot: it gets a new disk. If
// why is not nil the snapshot is broken and removed. Its machine must have ended.
func (m *transition) bootInstead(ctx context.Context, why error) error {
	if why != nil {
		m.of.drop(ctx, why)
	}
	m.kept = ""
	if err := os.Remove(m.s.disks.path(m.r.disk)); err != nil {
		return fmt.Errorf("remove root disk: %w", err)
	}
	return m.makeOverlay(ctx)
}

// killIn ends the machine in a directory, whichever daemon started it. It is one of these engines';
// each of the others says that it is not its own.
func (c *Config) killIn(ctx context.Context, dir string, engines ...machine.Engine) error {
	var errs []error
	for _, e := range engines {
		ran, err := killOf(ctx, e, dir)
		if ran {
			errs = nil
		}
		if errs = append(errs, err); ran {
			break
		}
	}
	if slices.ContainsFunc(engines, c.ownNetworks) {
		errs = append(errs, c.Networks.End(dir))
	}
	return errors.Join(errs...)
}

// killOf is killIn for one engine. ran reports whether a machine of it was there.
func killOf(ctx context.Context, e machine.Engine, dir string) (ran bool, err error) {
	vm, err := e.Adopt(ctx, dir)
	switch {
	case err == nil:
		defer vm.Release()
		return true, vm.Kill()
	case errors.Is(err, machine.ErrGone):
		return false, nil
	}
	strays, err2 := e.Strays(dir)
	if err2 != nil || len(strays) == 0 {
		return false, errors.Join(err, err2)
	}
	for _, stray := range strays {
		err2 = errors.Join(err2, stray.Kill())
	}
	return true, err2
}

func (m *transition) disconnect(context.Context) error {
	m.s.machines.put(m.r.ID, nil)
	if m.live != nil && m.live.cancel != nil {
		m.live.close()
	}
	return nil
}
