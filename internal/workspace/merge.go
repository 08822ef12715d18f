package workspace

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"holt/internal/store/db"
)

// MergeOptions say what to merge and how.
type MergeOptions struct {
	Paths  []string // only what is, or was, at or below these absolute paths of the other; none: everything
	DryRun bool     // change nothing, only say what would
	Text   bool     // merge text by lines where both changed a file, if that leaves no conflict
	Ours   []string // resolve conflicts at or below these paths of the other by keeping this workspace's side
	Theirs []string // resolve them by taking the other's side
	Name   string   // what the other workspace is called: for the checkpoint
	Into   string   // what this one is called: for the other's checkpoint
}

// MergeReport says what a merge did, or would do. The paths are the other
// workspace's.
type MergeReport struct {
	Report
	After  CheckpointID // of this workspace, right after the merge; 0 if there was nothing to do
	From   CheckpointID // of the other: what was merged; 0 after a dry run
	Base   CheckpointID // of the other: what came after it was looked at
	Merged []string     // files whose text was merged by lines
	Ours   []string     // conflicts resolved by keeping this workspace's side
	Theirs []string     // conflicts resolved by taking the other's side
}

// Merge brings what changed in another workspace of the family since both were
// the same to this one. It is a three-way merge of inodes and names: the base
// is what was merged last, or where they parted. What only the other changed is
// taken; what both changed, each differently, is a conflict: it stays here as
// it is, is reported, and is looked at again by the next merge. The other gets
// a checkpoint, and is not changed. The present is checkpointed first; it
// happens wholly or not at all.
//
// Bytes are shared where this workspace has their segments and else copied; who
// wrote them stays known, the change is the caller's. An inode that is new here
// gets a number of its own, and is known as the other's from then on.
//
// Errors: InvalidArgument if the two have nothing in common, Conflict if no
// checkpoint is left that both have, NotFound (a path that neither has, nor both had), TooMany as of [Workspace.Diff], OutOfSpace.
func (w *Workspace) Merge(ctx context.Context, c Caller, from *Workspace, opt MergeOptions) (MergeReport, error) {
	m := &merge{into: w.tree, from: from.tree, opt: opt, c: c, staged: map[sourceBytes]extent{}, compared: map[[2]contents]bool{}}
	err := m.prepare(from)
	if err != nil {
		return MergeReport{}, diskError("merge workspace", err)
	}
	end, err := acquireBoth(ctx, m.into, m.from, m.lineages[0], m.lineages[1])
	if err != nil {
		return MergeReport{}, err
	}
	defer end()
	if err := errors.Join(w.Flush(), from.Flush()); err != nil {
		return MergeReport{}, diskError("merge workspace", err)
	}
	build := func(tx *db.Tx) (g *plan, r Report, err error) {
		err = from.tree.index.db.ReadNow(ctx, func(other *db.Tx) error {
			g, err = m.build(other, tx)
			return err
		})
		return g, m.report.Report, err
	}
	for _, t := range []*Tree{w.tree, from.tree} {
		t.holdSegments(+1)
		defer t.holdSegments(-1)
	}
	m.dry = true
	reason := "before merge of " + cmp.Or(opt.Name, "a fork")
	if !opt.DryRun {
		// Bytes are compared and copied first, so that little is left to do with everything standing still.
		before, err := w.Checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Auto: true, Reason: reason}, IfChanged: true})
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			return MergeReport{}, diskError("merge workspace", err)
		}
		m.settled = before.version
		if err := w.tree.index.db.Read(ctx, func(tx *db.Tx) error { _, _, err := build(tx); return err }); err != nil {
			return MergeReport{}, diskError("merge workspace", err)
		}
		if err := m.stage(ctx); err != nil {
			return MergeReport{}, diskError("merge workspace", err)
		}
		m.dry = false
	}
	report, err := w.change(ctx, c, opt.DryRun, atomicChange{reason: reason, build: build})
	if err != nil {
		return MergeReport{}, err
	}
	m.report.Report.Before = report.Before
	return m.report, nil
}

// merge is one merge as it is worked out.
type merge struct {
	into, from *Tree
	opt        MergeOptions
	paths      []string
	sides      map[string]mergeSide
	c          Caller
	dry        bool // nothing can be written yet

	lineages    [2][]Ancestor  // into, from
	checkpoints checkpointList // of the other
	here        checkpointList
	past        [2]map[CheckpointID]bool // that into and from descend from
	point       Checkpoint               // of the other, that is merged; zero: its present
	common      CheckpointID

	settled  uint64                 // version of this workspace up to which bytes are what they were in the first build
	compared map[[2]contents]bool   // whether they are the same
	staged   map[sourceBytes]extent // bytes of the other that are here
	wanted   []extent               // and those that are not, of the other

	// Of one build.
	n, f       *side // this one now, the other as it is merged
	base       bases
	points     map[CheckpointID]point
	units      map[Ino]*mergeUnit
	replacedBy map[Ino]Ino     // which of the other's took the place of one that is gone
	taken      map[dirName]Ino // names here that units take away
	authors    map[uint32]uint32
	next       Ino
	values     valueBudget // what units take of the other
	report     MergeReport

	nextCheck CheckpointID
}

// prepare takes the other's checkpoint and finds what both have in common.
func (m *merge) prepare(from *Workspace) (err error) {
	if m.paths, err = cleanPaths(m.opt.Paths); err != nil {
		return err
	}
	if err := m.setSides(); err != nil {
		return err
	}
	m.lineages = [2][]Ancestor{{}, from.Lineage()}
	m.into.mu.RLock()
	m.lineages[0] = slices.Clone(m.into.lineage)
	m.into.mu.RUnlock()
	if m.common, err = common(m.lineages[1], m.lineages[0], from.Checkpoints()); err != nil {
		return err
	}
	if !m.opt.DryRun {
		if m.point, err = from.pinned("merge into " + cmp.Or(m.opt.Into, "a workspace")); err != nil {
			return err
		}
	}
	m.from.mu.RLock()
	defer m.from.mu.RUnlock()
	m.checkpoints, m.past[1] = slices.Clone(m.from.checkpoints), m.from.checkpoints.ancestors(CheckpointID(m.from.count.Head))
	return nil
}

// look notes what a build needs of the tree itself.
func (m *merge) look() {
	if m.dry { // else everything stands still, and the lock is held
		m.into.mu.RLock()
		defer m.into.mu.RUnlock()
	}
	m.here = slices.Clone(m.into.checkpoints)
	m.next, m.nextCheck, m.past[0] = Ino(m.into.count.NextIno), CheckpointID(m.into.count.NextCheck), m.into.checkpoints.ancestors(CheckpointID(m.into.count.Head))
}

// build works a merge out, on one state of either index.
func (m *merge) build(from, into *db.Tx) (g *plan, err error) {
	m.report, m.values = MergeReport{From: m.point.ID}, 0
	m.units, m.replacedBy, m.taken = map[Ino]*mergeUnit{}, map[Ino]Ino{}, map[dirName]Ino{}
	m.points, m.authors, m.wanted = map[CheckpointID]point{}, map[uint32]uint32{}, nil
	m.look()
	if m.n, err = newSide(m.into, into, m.lineages[0]); err != nil {
		return nil, err
	}
	if m.f, err = newSide(m.from, from, m.lineages[1]); err != nil {
		return nil, err
	}
	if m.point.ID != 0 {
		m.f.p.version = int64(m.point.version)
	}
	if err := m.findBases(); err != nil {
		return nil, err
	}
	d, err := m.delta()
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{func() error { return m.gather(d) }, m.requirePaths, m.filter, m.classify, m.propagate, m.fill} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return m.plan()
}

// delta finds what may have changed since the oldest base that something has.
func (m *merge) delta() (*delta, error) {
	oldest, _ := m.checkpoint(m.base.oldest)
	now := snapshot{nowVersion, 1 << 62}
	if m.point.ID != 0 {
		now = snapshot{int64(m.point.version), m.point.nextIno}
	}
	m.report.Base = m.base.of(0)
	return difference(m.f.p.tx, snapshot{int64(oldest.version), oldest.nextIno}, now, m.from.opt.mostDifferent)
}

// checkpoint returns one of the other's.
func (m *merge) checkpoint(id CheckpointID) (Checkpoint, bool) {
	return m.checkpoints.byID(id)
}

// at returns the point of one of the other's checkpoints.
func (m *merge) at(id CheckpointID) point {
	p, ok := m.points[id]
	if !ok {
		c, _ := m.checkpoint(id)
		p = point{m.f.p.tx, int64(c.version)}
		m.points[id] = p
	}
	return p
}

// reportChanges says what is taken, in the order of a diff.
func (m *merge) reportChanges() error {
	for _, u := range m.units {
		if u.conflict != "" || !u.does() {
			continue
		}
		all := u.changes()
		if u.f.row != nil {
			by, err := m.f.p.writerOf(u.f.row.born)
			if err != nil {
				return err
			}
			for i := range all {
				all[i].By = by
			}
		}
		for _, c := range all {
			if within(c.Path, m.paths) || c.From != "" && within(c.From, m.paths) {
				m.report.Changes = append(m.report.Changes, c)
			}
		}
	}
	m.report.Changes = sortChanges(m.report.Changes)
	return nil
}

// take adds a unit to the plan. One that is kept only is the other's from now on.
func (m *merge) take(g *plan, u *mergeUnit, kept bool) error {
	if u.twin && !(kept && u.n.row == nil) {
		origins, err := m.f.origins(u.ino)
		if err != nil {
			return err
		}
		for _, o := range origins {
			g.extra = append(g.extra, op{kind: opTwin, ino: u.ours, other: o.theirs, blob: o.origin[:]})
		}
	}
	if kept {
		m.report.Ours = append(m.report.Ours, u.path)
		return nil
	}
	g.erase, g.enter = append(g.erase, u.erase...), append(g.enter, u.enter...)
	if u.result != nil {
		g.inodes[u.ours] = *u.result
	}
	if u.merged {
		m.report.Merged = append(m.report.Merged, u.path)
	}
	if u.resolved {
		m.report.Theirs = append(m.report.Theirs, u.path)
	}
	return nil
}

// plan says what to do, what was done, and what to remember of it.
func (m *merge) plan() (*plan, error) {
	g := &plan{now: m.n.p, inodes: map[Ino]wantedInode{}}
	mine := m.nextCheck
	remember := func(mine, theirs CheckpointID, ino Ino) {
		id := m.f.id()
		g.extra = append(g.extra, op{kind: opMerged, ino: ino, n: int64(mine), from: int64(theirs), blob: id[:]})
	}
	whole := len(m.paths) == 0
	moves := whole && m.base.of(0) != m.point.ID
	if moves {
		remember(mine, m.point.ID, 0)
	}
	for _, u := range m.sorted() {
		kept := u.conflict != "" && m.side(u) == ours
		switch {
		case u.conflict != "" && !kept:
			m.report.Conflicts = append(m.report.Conflicts, u.toConflict())
			for _, ino := range u.numbers() {
				if moves {
					remember(0, m.base.of(ino), ino)
				}
			}
			continue
		case !moves && m.base.of(u.ino) != m.point.ID:
			for _, ino := range u.numbers() {
				remember(mine, m.point.ID, ino)
			}
		}
		if err := m.take(g, u, kept); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(m.report.Conflicts, func(a, b Conflict) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Reason, b.Reason)) })
	for _, list := range [][]string{m.report.Merged, m.report.Ours, m.report.Theirs} {
		slices.Sort(list)
	}
	err := m.reportChanges()
	if err == nil && len(g.extra) > 0 {
		m.report.After = mine
		g.after = func() error {
			_, err := m.into.checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Reason: "merge of " + cmp.Or(m.opt.Name, "a fork")}})
			return err
		}
	}
	if m.opt.DryRun {
		m.report.After = 0
	}
	return g, err
}
