package workspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"holt"
	"holt/internal/store/db"
)

// Undo takes back what one run, or one stretch of work in a terminal, changed and keeps what came later. Where both
// met nothing is changed, and the report says why. The present is checkpointed
// first; it happens wholly or not at all. NotFound if the run changed nothing,
// Conflict if the checkpoints around it are gone, or who did what was not kept ([mostInterleaved]); TooMany as of [Workspace.Diff].
func (w *Workspace) Undo(ctx context.Context, c Caller, run string, opt RestoreOptions) (Report, error) {
	paths, err := cleanPaths(opt.Paths)
	if err != nil {
		return Report{}, err
	}
	var win *runWindow
	look := func(tx *db.Tx) (err error) {
		checkpoints, generation := w.tree.checkpoints, w.tree.count.Generation // mu is held
		if opt.DryRun {
			checkpoints, generation = w.tree.generations()
		}
		if win, err = findWindow(tx, run, checkpoints, generation); errors.Is(err, errNoChanges) {
			return holt.Errorf(holt.NotFound, "%q changed nothing in this workspace", run).WithHint("holt workspace checkpoints lists the runs that changed files")
		}
		if err != nil {
			return err
		}
		return win.requireKnownWriters(tx)
	}
	build := func(tx *db.Tx) (*plan, Report, error) {
		if err := win.compare(tx, w.tree.opt.mostDifferent); err != nil {
			return nil, Report{}, err
		}
		u := &undo{win: win, now: point{tx, nowVersion}, units: map[Ino]*undoUnit{}}
		return u.build(paths)
	}
	return w.change(ctx, c, opt.DryRun, atomicChange{reason: "before undo of " + run, look: look, build: build})
}

// undo is one undo as it is worked out. What a run did to one inode is a unit:
// it is undone as a whole or not at all.
type undo struct {
	win   *runWindow
	now   point
	units map[Ino]*undoUnit
	taken map[dirName]Ino // names that units take away

	rows   map[Ino]*inodeRow       // of units and of directories that they need, now
	since  map[dirName]placedEntry // entries of the present that came since the window began, where units look
	inside map[Ino][]placedEntry   // the same, by directory
	others map[Ino]bool            // that another changed in the window
}

type undoUnit struct {
	ino        Ino
	gone, came []placedEntry // names that the run took and gave
	was        *inodeRow     // before the run; nil: it made it
	wanted     bool          // what it was is to be restored
	other      bool          // a directory: its extended attributes are not those of before the run
	touched    bool          // a directory: they are not those that the run left
	path       string
	conflict   holt.ConflictCode
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

func (u *undo) build(paths []string) (*plan, Report, error) {
	for _, step := range []func() error{u.gather, func() error { return u.filter(paths) }, u.look} {
		if err := step(); err != nil {
			return nil, Report{}, err
		}
	}
	maps.DeleteFunc(u.units, func(_ Ino, x *undoUnit) bool { return u.done(x) })
	u.classify()
	u.propagate()
	g := &plan{now: u.now, inodes: map[Ino]wantedInode{}}
	var report Report
	for _, x := range u.sorted() {
		if x.conflict != "" {
			report.Conflicts = append(report.Conflicts, Conflict{x.path, x.conflict, x.conflict.Sentence()})
			continue
		}
		g.erase, g.enter = append(g.erase, x.came...), append(g.enter, x.gone...)
		if x.wanted {
			g.inodes[x.ino] = wantedInode{row: x.was, at: u.win.delta.before}
		}
	}
	slices.SortFunc(report.Conflicts, func(a, b Conflict) int { return cmp.Compare(a.Path, b.Path) })
	u.win.delta.swap()
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
	var beside []Ino
	for ino, p := range d.inodes {
		switch {
		case p.before == nil || p.after == nil:
		case u.win.versions[p.after.born]:
			if p.bytes || p.attrs {
				u.unit(ino).wanted = true
			}
		case !p.after.isDir(): // of a directory its entries tell
			beside = append(beside, ino)
		}
	}
	if err := u.addOverwritten(beside); err != nil {
		return err
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

// addOverwritten notes inodes that the run changed before another did in the same
// window: classifyInode will find that they cannot be undone.
func (u *undo) addOverwritten(inos []Ino) error {
	if len(inos) == 0 {
		return nil
	}
	mine, err := u.changed("born IN")
	for _, ino := range inos {
		if mine[ino] {
			u.unit(ino).wanted = true
		}
	}
	return err
}

// changed returns the inodes with a row that ended in the window, and that a
// condition on the run's versions holds for.
func (u *undo) changed(condition string) (map[Ino]bool, error) {
	versions, err := json.Marshal(slices.Collect(maps.Keys(u.win.versions)))
	if err != nil {
		return nil, err
	}
	all := map[Ino]bool{}
	return all, u.now.tx.Query("SELECT ino FROM past_inode WHERE died > ?1 AND died <= ?2 AND "+condition+" (SELECT value FROM json_each(?3))",
		[]any{u.win.delta.before.version, u.win.delta.after.version, string(versions)}, func(r *db.Row) error { all[Ino(r.Int64(0))] = true; return nil })
}

// filter names the units, and drops those out of paths.
func (u *undo) filter(paths []string) error {
	d := u.win.delta
	var still []Ino // whose names the run left alone
	for ino, x := range u.units {
		if len(x.gone)+len(x.came) == 0 {
			still = append(still, ino)
		}
	}
	names, err := d.after.namesOf(still)
	if err != nil {
		return err
	}
	if err := d.learn(append(slices.Collect(maps.Values(names)), d.gone, d.came)...); err != nil {
		return err
	}
	for ino, x := range u.units {
		in := false
		for i, list := range [][]placedEntry{x.gone, x.came, names[ino]} {
			for _, e := range list {
				path, err := d.path(e, i > 0)
				if err != nil {
					return err
				}
				x.path, in = cmp.Or(x.path, path), in || within(path, paths)
			}
		}
		if ino == Root {
			x.path, in = "/", len(paths) == 0 || within("/", paths)
		}
		if !in {
			delete(u.units, ino)
		}
	}
	return nil
}

// look asks for all of the present that decides.
func (u *undo) look() (err error) {
	inos := slices.Collect(maps.Keys(u.units))
	after := map[Ino]uint64{}
	for _, x := range u.units {
		for _, e := range x.gone {
			inos = append(inos, e.parent)
			after[e.parent] = u.lastCookie(e.parent)
		}
		for _, e := range x.came {
			after[e.parent] = u.lastCookie(e.parent)
		}
		if p := u.win.delta.inodes[x.ino].after; x.was == nil && p != nil && p.isDir() {
			after[x.ino] = 0
		}
	}
	if u.rows, err = u.now.inodesOf(inos); err != nil {
		return err
	}
	if err := u.lookAtDirs(); err != nil {
		return err
	}
	// A name that something else has by now was given after the window began.
	u.since, u.inside = map[dirName]placedEntry{}, map[Ino][]placedEntry{}
	err = u.now.entriesOf(after, func(e placedEntry) error {
		if len(u.since) >= u.win.delta.most {
			return u.win.delta.tooMany()
		}
		u.since[dirName{e.parent, e.name}] = e
		u.inside[e.parent] = append(u.inside[e.parent], e)
		return nil
	})
	if err != nil {
		return err
	}
	// What has no name is freed when a kernel forgets it: no writer did that.
	u.others, err = u.changed("nlink > 0 AND died NOT IN")
	return err
}

// lookAtDirs compares the extended attributes that directories have, had before
// the run and had after it: of a file its ctime tells, but that of a directory
// follows its entries too.
func (u *undo) lookAtDirs() error {
	var dirs []*undoUnit
	var pairs []inoPair
	for _, x := range u.sorted() {
		if x.wanted && x.was.isDir() {
			dirs, pairs = append(dirs, x), append(pairs, inoPair{x.ino, x.ino})
		}
	}
	d := u.win.delta
	err := eachXattrs(d.before, u.now, pairs, func(i int, was, now map[string]string) error {
		dirs[i].other = !maps.Equal(was, now)
		return nil
	})
	if err != nil {
		return err
	}
	return eachXattrs(d.after, u.now, pairs, func(i int, left, now map[string]string) error {
		dirs[i].touched = !maps.Equal(left, now)
		return nil
	})
}

// lastCookie is the last that a directory had given out when the window began.
func (u *undo) lastCookie(dir Ino) uint64 {
	if p := u.win.delta.inodes[dir]; p != nil && p.before != nil {
		return p.before.cookie
	}
	return 0
}

// done tells whether something stands as it did before the run, as after an
// undo or a restore: then nothing of it is left to take back.
func (u *undo) done(x *undoUnit) bool {
	for _, e := range x.gone {
		if u.since[dirName{e.parent, e.name}].ino != x.ino {
			return false
		}
	}
	for _, e := range x.came {
		if _, ok := u.since[dirName{e.parent, e.name}]; ok {
			return false
		}
	}
	now := named(u.rows[x.ino])
	if x.was == nil || now == nil {
		return x.was == nil && now == nil
	}
	if now.mode != x.was.mode || now.uid != x.was.uid || now.gid != x.was.gid {
		return false
	}
	if now.isDir() {
		return !x.other
	}
	return now.size == x.was.size && now.data == x.was.data && now.mtime == x.was.mtime && now.ctime == x.was.ctime && now.target == x.was.target
}

// classify finds the units that what came later, or at the same time, has met.
func (u *undo) classify() {
	u.taken = map[dirName]Ino{}
	for _, x := range u.units {
		x.conflict = u.classifyInode(x)
		kept, gone := x.came[:0:0], false
		for _, e := range x.came {
			now, ok := u.since[dirName{e.parent, e.name}]
			switch {
			case !ok:
				gone = true
			case now.ino == e.ino && now.cookie == e.cookie:
				kept = append(kept, now)
				u.taken[dirName{e.parent, e.name}] = x.ino
			default:
				x.conflict = holt.NameTaken
			}
		}
		x.came = kept
		if gone && len(x.gone) > 0 && x.conflict == "" {
			x.conflict = holt.MovedSince
		}
	}
}

// classifyInode compares an inode with what the run left of it.
func (u *undo) classifyInode(x *undoUnit) (conflict holt.ConflictCode) {
	now := named(u.rows[x.ino])
	switch left := u.win.delta.inodes[x.ino].after; {
	case left == nil && now != nil:
		return holt.ReturnedSince
	case left == nil:
	case now == nil:
		if x.was != nil {
			return holt.RemovedSince
		}
	case now.isDir():
		if x.wanted && (now.mode != left.mode || now.uid != left.uid || now.gid != left.gid || x.touched) {
			return holt.AttributesChangedSince
		}
	case !u.win.versions[now.born]:
		return holt.ChangedSince
	}
	if x.was != nil && !x.was.isDir() && u.others[x.ino] {
		return holt.ChangedMeanwhile
	}
	return ""
}

// propagate finds the units that cannot be undone because others are not: names
// that are taken, directories that are not there or not empty. It goes on
// until nothing more is found.
func (u *undo) propagate() {
	sorted := u.sorted()
	for again := true; again; {
		again = false
		for _, x := range sorted {
			if x.conflict != "" {
				continue
			}
			if x.conflict = u.blocked(x); x.conflict != "" {
				again = true
			}
		}
	}
}

func (u *undo) blocked(x *undoUnit) (why holt.ConflictCode) {
	for _, e := range x.gone {
		if named(u.rows[e.parent]) == nil {
			if up := u.units[e.parent]; up == nil || up.conflict != "" || len(up.gone) == 0 {
				return holt.DirectoryMissing
			}
			continue
		}
		if now, ok := u.since[dirName{e.parent, e.name}]; ok && !u.takes(now) {
			return holt.NameTaken
		}
	}
	if x.was != nil || len(x.came) == 0 {
		return ""
	}
	// The run made it: a directory must be empty by then.
	for _, e := range u.inside[x.ino] {
		if !u.takes(e) {
			return holt.DirectoryNotEmpty
		}
	}
	return ""
}

// takes tells whether an entry of the present is taken away.
func (u *undo) takes(e placedEntry) bool {
	x := u.units[u.taken[dirName{e.parent, e.name}]]
	return x != nil && x.conflict == ""
}
