package workspace

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"holt"
	"holt/db"
)

// Undo takes back what one run changed and keeps what came later. Where both
// met nothing is changed, and the report says why. The present is checkpointed
// first; it happens wholly or not at all. NotFound if the run changed nothing,
// Conflict if the checkpoints around it are gone.
func (w *Workspace) Undo(ctx context.Context, c Caller, run string, opt RestoreOptions) (Report, error) {
	paths, err := cleanPaths(opt.Paths)
	if err != nil {
		return Report{}, err
	}
	// The checkpoint that is taken first may be the one after the run.
	if err := w.window(ctx, run, func(*runWindow) error { return nil }); errors.Is(err, errNoChanges) {
		return Report{}, holt.Errorf(holt.NotFound, "run %q changed nothing here", run).WithHint("the column run of files names runs that did")
	} else if err != nil {
		return Report{}, err
	}
	now := func() ([]Checkpoint, uint64) { return w.tree.checkpoints, w.tree.count.Generation } // mu is held
	if opt.DryRun {
		checkpoints, generation := w.tree.generations()
		now = func() ([]Checkpoint, uint64) { return checkpoints, generation }
	}
	build := func(tx *db.Tx) (*goal, Report, error) {
		checkpoints, generation := now()
		win, err := findWindow(tx, run, checkpoints, generation)
		if err != nil {
			return nil, Report{}, err
		}
		u := &undo{win: win, now: point{tx, nowVersion}, units: map[Ino]*undoUnit{}}
		return u.build(paths)
	}
	return w.change(ctx, c, opt.DryRun, "before undo of run "+run, 0, build)
}

// undo is one undo as it is worked out. What a run did to one inode is a unit:
// it is undone as a whole or not at all.
type undo struct {
	win   *runWindow
	now   point
	units map[Ino]*undoUnit
	taken map[dirName]Ino // names that units take away
}

type undoUnit struct {
	ino         Ino
	gone, came  []placedEntry // names that the run took and gave
	was         *inodeRow     // before the run; nil: it made it
	wanted      bool          // what it was is to be restored
	path        string
	conflict    string
	alreadyGone []placedEntry
}

func (u *undo) unit(ino Ino) *undoUnit {
	x := u.units[ino]
	if x == nil {
		x = &undoUnit{ino: ino}
		if p := u.win.delta.inodes[ino]; p != nil {
			x.was = p.before
		}
		u.units[ino] = x
	}
	return x
}

func (u *undo) build(paths []string) (*goal, Report, error) {
	for _, step := range []func() error{u.gather, func() error { return u.narrow(paths) }, u.judge, u.spread} {
		if err := step(); err != nil {
			return nil, Report{}, err
		}
	}
	g := &goal{now: u.now, inodes: map[Ino]was{}}
	var report Report
	for _, x := range u.sorted() {
		if x.conflict != "" {
			report.Conflicts = append(report.Conflicts, Conflict{x.path, x.conflict})
			continue
		}
		g.erase, g.enter = append(g.erase, x.came...), append(g.enter, x.gone...)
		if x.wanted {
			g.inodes[x.ino] = was{row: x.was, at: u.win.delta.before}
		}
	}
	slices.SortFunc(report.Conflicts, func(a, b Conflict) int { return cmp.Compare(a.Path, b.Path) })
	u.win.delta.turn()
	all, err := u.win.delta.changes(paths)
	report.Changes = slices.DeleteFunc(all, func(c Change) bool { x := u.units[c.Ino]; return x == nil || x.conflict != "" })
	return g, report, err
}

func (u *undo) sorted() []*undoUnit {
	all := make([]*undoUnit, 0, len(u.units))
	for _, x := range u.units {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *undoUnit) int { return cmp.Compare(a.ino, b.ino) })
	return all
}

// gather collects what the run did.
func (u *undo) gather() error {
	d := u.win.delta
	if err := d.compare(); err != nil {
		return err
	}
	for _, e := range d.gone {
		if u.win.versions[e.died] {
			u.unit(e.ino).gone = append(u.unit(e.ino).gone, e)
		}
	}
	for _, e := range d.came {
		if u.win.versions[e.born] {
			u.unit(e.ino).came = append(u.unit(e.ino).came, e)
		}
	}
	for ino, p := range d.inodes {
		if p.before == nil || p.after == nil {
			continue
		}
		if !u.win.versions[p.after.born] {
			if err := u.beside(p); err != nil {
				return err
			}
			continue
		}
		if p.bytes || p.attrs {
			u.unit(ino).wanted = true
		}
	}
	for _, x := range u.units {
		if x.was != nil && len(x.gone) > 0 && !x.was.isDir() {
			x.wanted = true // its times went with its names
		}
		if x.was != nil && d.inodes[x.ino].after == nil {
			x.wanted = true
		}
	}
	return nil
}

// beside notes an inode that the run changed before another did in the same
// window: judgeInode will find that it cannot be undone.
func (u *undo) beside(p *pair) error {
	if p.after.isDir() {
		return nil // its entries tell
	}
	return u.now.tx.Query("SELECT born FROM past_inode WHERE ino = ?1 AND died > ?2 AND died <= ?3",
		[]any{int64(p.after.ino), u.win.delta.before.version, u.win.delta.after.version}, func(r *db.Row) error {
			if u.win.versions[uint32(r.Int64(0))] {
				u.unit(p.after.ino).wanted = true
			}
			return nil
		})
}

// narrow names the units, and drops those out of paths.
func (u *undo) narrow(paths []string) error {
	for ino, x := range u.units {
		in := false
		for i, list := range [][]placedEntry{x.gone, x.came} {
			for _, e := range list {
				path, err := []point{u.win.delta.before, u.win.delta.after}[i].path(e)
				if err != nil {
					return err
				}
				x.path, in = cmp.Or(x.path, path), in || within(path, paths)
			}
		}
		if x.path == "" {
			names, err := u.win.delta.after.names(ino)
			if err != nil {
				return err
			}
			for _, e := range names {
				if x.path, err = u.win.delta.after.path(e); err != nil {
					return err
				}
				in = in || within(x.path, paths)
			}
			if ino == Root {
				x.path, in = "/", len(paths) == 0 || within("/", paths)
			}
		}
		if !in {
			delete(u.units, ino)
		}
	}
	return nil
}

// judge finds the units that what came later, or at the same time, has met.
func (u *undo) judge() error {
	u.taken = map[dirName]Ino{}
	for _, x := range u.units {
		if err := u.judgeInode(x); err != nil {
			return err
		}
		kept := x.came[:0:0]
		for _, e := range x.came {
			now, err := u.now.entry(e.parent, e.name)
			switch {
			case err != nil:
				return err
			case now.ino == e.ino && now.cookie == e.cookie:
				kept = append(kept, now)
				u.taken[dirName{e.parent, e.name}] = x.ino
			case now.ino != 0:
				x.conflict = "something else has this name since"
			default:
				x.alreadyGone = append(x.alreadyGone, e)
			}
		}
		x.came = kept
	}
	for _, x := range u.units {
		if len(x.alreadyGone) > 0 && len(x.gone) > 0 && x.conflict == "" {
			x.conflict = "it was moved or removed since"
		}
	}
	return nil
}

// judgeInode compares an inode with what the run left of it.
func (u *undo) judgeInode(x *undoUnit) error {
	now, err := u.now.named(x.ino)
	if err != nil {
		return err
	}
	p := u.win.delta.inodes[x.ino]
	switch left := p.after; {
	case left == nil && now != nil:
		x.conflict = "it came back since"
	case left == nil:
	case now == nil:
		if x.was != nil {
			x.conflict = "it was removed since"
		}
	case now.isDir():
		if x.wanted && (now.mode != left.mode || now.uid != left.uid || now.gid != left.gid) {
			x.conflict = "its attributes were changed since"
		}
	case !u.win.versions[now.born]:
		x.conflict = "it was changed since"
	}
	if x.conflict != "" || x.was == nil || x.was.isDir() {
		return nil
	}
	// What has no name is freed when a kernel forgets it: nobody did that.
	return u.now.tx.Query("SELECT died FROM past_inode WHERE ino = ?1 AND died > ?2 AND died <= ?3 AND nlink > 0",
		[]any{int64(x.ino), u.win.delta.before.version, u.win.delta.after.version}, func(r *db.Row) error {
			if !u.win.versions[uint32(r.Int64(0))] {
				x.conflict = "another changed it at the same time"
			}
			return nil
		})
}

// spread finds the units that cannot be undone because others are not: names
// that are taken, directories that are not there or not empty. It goes on
// until nothing more is found.
func (u *undo) spread() error {
	for again := true; again; {
		again = false
		for _, x := range u.sorted() {
			if x.conflict != "" {
				continue
			}
			why, err := u.stuck(x)
			if err != nil {
				return err
			}
			if why != "" {
				x.conflict, again = why, true
			}
		}
	}
	return nil
}

func (u *undo) stuck(x *undoUnit) (why string, err error) {
	for _, e := range x.gone {
		d, err := u.now.named(e.parent)
		if err != nil {
			return "", err
		}
		if d == nil {
			if up := u.units[e.parent]; up == nil || up.conflict != "" || len(up.gone) == 0 {
				return "its directory is not there now", nil
			}
			continue
		}
		now, err := u.now.entry(e.parent, e.name)
		if err != nil {
			return "", err
		}
		if now.ino != 0 && !u.takes(now) {
			return "something else has its name now", nil
		}
	}
	if x.was != nil || len(x.came) == 0 {
		return "", nil
	}
	// The run made it: a directory must be empty by then.
	err = u.now.entries(x.ino, 0, func(e placedEntry) error {
		if !u.takes(e) {
			why = "it holds what came later"
		}
		return nil
	})
	return why, err
}

// takes tells whether an entry of the present is taken away.
func (u *undo) takes(e placedEntry) bool {
	x := u.units[u.taken[dirName{e.parent, e.name}]]
	return x != nil && x.conflict == ""
}
