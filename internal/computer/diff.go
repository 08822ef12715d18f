package computer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/hosterror"
	"holt/internal/workspace"
)

// mostDifferent bounds each list of differences. The rest is counted.
const mostDifferent = 1000

// What a guest is waited for that is asked what is installed and what runs: by
// a comparison, and before a snapshot is taken.
const (
	inventoryLimit = 15 * time.Second
	listedLimit    = 5 * time.Second
)

// inventoryFile is the inventory in a snapshot's directory.
const inventoryFile = "inventory.json"

// Diff returns what must change in one computer or snapshot to make it the other: files of the
// workspace and of the root disk, packages, processes and listening ports. Each side is a computer,
// a snapshot, or COMPUTER@SNAPSHOT. For a computer all but the workspace comes from its guest; a
// snapshot has an inventory that was taken just before it, or for a fork just after.
//
// Errors: NotFound, Conflict (several snapshots have that name), Timeout.
func (m *Snapshots) Diff(ctx context.Context, from, to string) (d holt.ComputerDiff, err error) {
	var sides [2]diffSide
	for i, ref := range []string{from, to} {
		if sides[i], err = m.diffSide(ctx, ref); err != nil {
			return d, err
		}
	}
	var savedInventory [2]holt.Inventory
	for i := range sides {
		if savedInventory[i], err = m.inventory(ctx, &sides[i]); err != nil {
			return d, err
		}
	}
	d.From, d.To = sides[0].DiffSide, sides[1].DiffSide
	if d.Files, err = m.diffFiles(ctx, sides[0], sides[1]); err != nil {
		return d, err
	}
	if d.From.Unlisted+d.To.Unlisted != "" {
		savedInventory, d.Unlisted = [2]holt.Inventory{}, true
	}
	diffInventories(&d, savedInventory[0], savedInventory[1])
	diffRootFiles(&d, savedInventory[0], savedInventory[1])
	return d, nil
}

// diffSide is one side of a comparison.
type diffSide struct {
	holt.DiffSide
	r        record
	in       holt.WorkspaceID
	snapshot *snapshot // nil: the computer as it is now
}

// diffSide resolves one side.
func (m *Snapshots) diffSide(ctx context.Context, ref string) (side diffSide, err error) {
	var of snapshot
	if side.r, err = m.s.table.find(ctx, ref); holt.CodeOf(err) == holt.NotFound {
		notHere := err
		of, err = m.s.snapshots.find(ctx, ref)
		if err == nil {
			side.r, err = m.s.table.find(ctx, string(of.ComputerID))
		} else if holt.CodeOf(err) == holt.NotFound && !strings.HasPrefix(ref, "snap_") && !strings.Contains(ref, "@") {
			err = notHere
		}
		side.snapshot = &of
	}
	if err != nil {
		return side, err
	}
	side.Computer, side.Workspace, side.in = side.r.Name, side.r.Workspace, side.r.workspaceID
	if side.snapshot != nil {
		side.Snapshot, side.Name, side.in = of.ID, of.Name, of.workspace
		of.Snapshot, err = m.shown(ctx, of)
		side.Workspace = of.Workspace
	}
	return side, err
}

// at is the checkpoint of the workspace to compare.
func (d diffSide) at() string {
	if d.snapshot != nil {
		return d.snapshot.checkpoint()
	}
	return holt.Live
}

// inventory returns the inventory of a side, or sets the side's Unlisted to why there is none.
func (m *Snapshots) inventory(ctx context.Context, side *diffSide) (inv holt.Inventory, err error) {
	id := side.r.snapshot
	if side.snapshot != nil {
		id = side.snapshot.ID
	} else if side.r.State != holt.ComputerPaused {
		l := m.s.machines.live(side.r.ID)
		if l == nil || side.r.State != holt.ComputerRunning {
			side.Unlisted = fmt.Sprintf("%s is %s", side.r.Name, side.r.State)
			return inv, nil
		}
		if inv, err = l.inventory(ctx); err != nil {
			if ctx.Err() != nil {
				return inv, gone(ctx)
			}
			side.Unlisted = "the guest did not answer: " + err.Error()
			return holt.Inventory{}, nil
		}
		side.At = &inv.At
		return inv, nil
	}
	b, err := os.ReadFile(filepath.Join(m.s.snapshots.path(id), inventoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		side.Unlisted = "the snapshot has no inventory"
		if side.snapshot != nil && side.snapshot.Stopped {
			side.Unlisted = side.r.Name + " was stopped"
		} else if side.snapshot != nil && side.snapshot.Kind == holt.SnapshotOfFork {
			side.Unlisted = "the snapshot was taken for a fork, and its inventory is not there yet or could not be taken"
		}
		return inv, nil
	}
	if err != nil {
		return inv, hosterror.Full(fmt.Errorf("read inventory of snapshot: %w", err))
	}
	if err := json.Unmarshal(b, &inv); err != nil {
		side.Unlisted = "the inventory of the snapshot cannot be read: " + err.Error()
		return holt.Inventory{}, nil
	}
	side.At = &inv.At
	return inv, nil
}

// inventory asks the guest what is installed and running.
func (l *live) inventory(ctx context.Context) (holt.Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, inventoryLimit)
	defer cancel()
	c, err := l.agent(ctx, l.limits.Reconnect)
	if err != nil {
		return holt.Inventory{}, err
	}
	return c.Inventory(ctx)
}

// savedInventory is the inventory for a snapshot, encoded; nil if the guest does not answer.
func (l *live) savedInventory(ctx context.Context) []byte {
	c, _, err := l.state()
	if c != nil {
		ctx, cancel := context.WithTimeout(ctx, listedLimit)
		defer cancel()
		var inv holt.Inventory
		if inv, err = c.Inventory(ctx); err == nil {
			var b []byte
			if b, err = json.Marshal(inv); err == nil {
				return b
			}
		}
	}
	if ctx.Err() == nil {
		l.log.WarnContext(ctx, "take inventory for a snapshot", "computer", l.id, "err", err)
	}
	return nil
}

// saveInventoryLater takes the inventory of a computer just after a snapshot for a fork, in the
// background. A guest that does not answer, a deleted snapshot and a crash leave the snapshot
// without one.
func (s *snapshotter) saveInventoryLater(l *live, id holt.SnapshotID) {
	l.spawn(func() {
		savedInventory := l.savedInventory(l.ctx)
		if savedInventory == nil {
			return
		}
		unlock, err := s.machines.lock(l.ctx, l.id) // a removal of the snapshot holds it
		if err != nil {
			return
		}
		defer unlock()
		path := filepath.Join(s.snapshots.path(id), inventoryFile)
		if err = os.WriteFile(path+archive.Fetching, savedInventory, 0o600); err == nil {
			err = os.Rename(path+archive.Fetching, path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.log.Warn("save inventory of snapshot", "computer", l.id, "snapshot", id, "err", err)
		}
	})
}

func (m *Snapshots) diffFiles(ctx context.Context, from, to diffSide) (out holt.FilesDiff, err error) {
	out.Changes = []holt.Change{}
	var ws [2]*workspace.Workspace
	for i, side := range []diffSide{from, to} {
		if l := m.s.machines.live(side.r.ID); l != nil && side.snapshot == nil {
			if err := l.flush(ctx); err != nil {
				l.log.Debug("flush guest", "computer", l.id, "err", err)
			}
		}
		w, release, err := m.s.cfg.Workspaces.View(ctx, side.in)
		if err != nil {
			return out, err
		}
		defer release()
		ws[i] = w
	}
	d, err := workspace.History{W: ws[0]}.Across(ctx, from.at(), ws[1], to.at())
	switch holt.CodeOf(err) {
	case holt.InvalidArgument, holt.Conflict:
		out.Unrelated = err.Error()
		return out, nil
	}
	return d, err
}

func diffInventories(d *holt.ComputerDiff, a, b holt.Inventory) {
	d.Omitted = a.Omitted + b.Omitted
	type name struct{ name, arch string }
	versions := func(all []holt.Package) map[name]string {
		of := map[name]string{}
		for _, p := range all {
			of[name{p.Name, p.Arch}] = p.Version
		}
		return of
	}
	before, after := versions(a.Packages), versions(b.Packages)
	d.Packages.Changes = []holt.PackageChange{}
	for n, v := range before {
		if after[n] != v {
			d.Packages.Changes = append(d.Packages.Changes, holt.PackageChange{Name: n.name, Arch: n.arch, Before: v, After: after[n]})
		}
	}
	for n, v := range after {
		if _, was := before[n]; !was {
			d.Packages.Changes = append(d.Packages.Changes, holt.PackageChange{Name: n.name, Arch: n.arch, After: v})
		}
	}
	slices.SortFunc(d.Packages.Changes, func(x, y holt.PackageChange) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Arch, y.Arch))
	})
	d.Packages.Changes, d.Packages.Omitted = firstOf(d.Packages.Changes)

	p := &d.Processes
	p.Gone, p.Came, p.Same = apart(a.Processes, b.Processes, func(x holt.Process) any { return [3]any{x.PID, x.Start, x.Command} })
	var more [4]int
	p.Gone, more[0] = firstOf(p.Gone)
	p.Came, more[1] = firstOf(p.Came)
	o := &d.Ports
	o.Gone, o.Came, o.Same = apart(a.Ports, b.Ports, func(x holt.Port) any { return [3]any{x.Protocol, x.Address, x.Port} })
	o.Gone, more[2] = firstOf(o.Gone)
	o.Came, more[3] = firstOf(o.Came)
	p.Omitted, o.Omitted = more[0]+more[1], more[2]+more[3]
}

// apart returns what only a has, what only b has, and how many both have.
func apart[T any](a, b []T, key func(T) any) (gone, came []T, same int) {
	gone, came = []T{}, []T{}
	in := map[any]bool{}
	for _, x := range a {
		in[key(x)] = false
	}
	for _, x := range b {
		if _, both := in[key(x)]; both {
			in[key(x)] = true
			same++
		} else {
			came = append(came, x)
		}
	}
	for _, x := range a {
		if !in[key(x)] {
			gone = append(gone, x)
		}
	}
	return gone, came, same
}

// firstOf bounds a list, and counts the rest.
func firstOf[T any](all []T) ([]T, int) {
	n := min(len(all), mostDifferent)
	return all[:n], len(all) - n
}
