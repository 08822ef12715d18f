package workspace

import "holt/internal/store/journal"

// batch gathers what changed since the last cut: not values but where they
// are, so that what changes often is written once.
type batch struct {
	stage    stage
	ops      int
	bytes    int // the most that xattrs and symlink targets take which only a flush lets go
	inodes   []*inode
	entries  []entryKey
	extents  map[extentKey]struct{}
	xattrs   []xattrKey
	dirs     []dirMove
	writers  []namedWriter
	versions []versionRow
	past     past

	named       []Ino // they had no name, and have one again
	checkpoints []newCheckpoint
	dropped     []droppedCheckpoint
	lineage     []Ancestor // nil: as it was
	twins       []twin
	merged      []merged
	adopted     []journal.Segment
	epochs      map[Epoch]struct{}
}

type entryKey struct {
	dir  *inode
	name string
}

type extentKey struct {
	ino Ino
	off int64
}

type xattrKey struct {
	in   *inode
	name string
}

// dirMove is a step for table dir. Steps are done in order, so that paths come
// out right without knowing any in memory.
type dirMove struct {
	ino     Ino
	parent  Ino // 0: the directory is gone
	name    string
	version uint32
	aside   bool // to a place no path can have, until it gets another
}

// moveDir says that a directory has another path since its version.
func (t *memory) moveDir(in *inode, parent Ino, name string) {
	in.dir.named = uint8(len(name))
	t.batch.dirs = append(t.batch.dirs, dirMove{ino: in.ino, parent: parent, name: name, version: in.born})
}

type namedWriter struct {
	id uint32
	Writer
}

type versionRow struct {
	id, writer uint32
	generation uint64
}

func newBatch(s stage) *batch {
	return &batch{stage: s, extents: map[extentKey]struct{}{}, epochs: map[Epoch]struct{}{}}
}

// rows is how much there is to write: each KiB of values counts as a row, so
// that what bounds rows bounds memory.
func (b *batch) rows() int {
	return b.bytes>>10 + len(b.inodes) + len(b.entries) + len(b.extents) + len(b.xattrs) + len(b.dirs) + b.past.rows()
}

// dirty says that an inode's row changed.
func (b *batch) dirty(in *inode) {
	if in.stage != b.stage {
		in.stage = b.stage
		b.inodes = append(b.inodes, in)
		if in.extra != nil {
			b.bytes += in.extra.held
		}
	}
}

// setEntry changes what a directory holds under a name; e.ino 0: nothing.
func (t *memory) setEntry(d *inode, name string, e dentry) {
	old, known := d.dir.entries[name]
	if !known {
		t.inodes.entries++
		old.indexed = !d.dir.complete
	}
	if old.stage == clean {
		d.dir.dirty++
	}
	if old.stage != t.batch.stage {
		t.batch.entries = append(t.batch.entries, entryKey{d, name})
	}
	e.stage, e.indexed = t.batch.stage, old.indexed
	d.dir.put(name, e)
}

// extentChange tells the batch which extents of in change.
type extentChange struct {
	t  *memory
	in *inode
}

func (c *extentChange) row(off int64) {
	c.t.batch.extents[extentKey{c.in.ino, off}] = struct{}{}
}

func (c *extentChange) bytes(delta int64) {
	c.in.alloc += delta
	c.t.count.Allocated += uint64(delta)
}

func (c *extentChange) extents(delta int) { c.t.inodes.extents += delta }

// changing returns the listener for changes of in's extents.
func (t *memory) changing(in *inode) changes {
	t.change = extentChange{t, in}
	return &t.change
}

// setXattr changes an extended attribute; they must have been looked at ([Tree.xattrs]).
func (t *memory) setXattr(in *inode, name string, x xattr) {
	if in.extra == nil {
		in.extra = &extra{}
	}
	t.countValues(in, x.held(name))
	if in.extra.xattrs == nil {
		in.extra.xattrs = map[string]xattr{}
	}
	in.plain = false
	old, ok := in.extra.xattrs[name]
	if ok {
		t.countValues(in, -old.held(name))
	}
	if ok && !old.gone && t.outlives(old.born, x.born) {
		t.batch.past.xattrs = append(t.batch.past.xattrs, pastXattr{in.ino, name, old, x.born})
	}
	if old.stage != t.batch.stage {
		t.batch.xattrs = append(t.batch.xattrs, xattrKey{in, name})
	}
	x.stage = t.batch.stage
	in.extra.xattrs[name] = x
}
