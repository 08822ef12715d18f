package workspace

import (
	"holt/internal/store/db"
)

// past holds the rows that a batch replaced: what was true from the version
// they were born in until the one they died in. A row that was born and died
// in one version is in no history. Extents and attributes that no checkpoint
// sees, being born in the generation that is open, are in none either, although
// two writers took turns: only states of checkpoints are ever read, and they
// hold room outside of any quota. Of inodes and names such rows tell who did what, up
// to [mostInterleaved] of them.
type past struct {
	inodes  []pastInode
	entries []pastEntry
	extents []pastExtent
	xattrs  []pastXattr
}

type pastInode struct {
	inodeRow
	died uint32
}

type pastEntry struct {
	parent Ino
	name   string
	dentry
	died uint32
}

type pastExtent struct {
	ino Ino
	extent
	died uint32
}

type pastXattr struct {
	ino  Ino
	name string
	xattr
	died uint32
}

func (p *past) rows() int {
	return len(p.inodes) + len(p.entries) + len(p.extents) + len(p.xattrs)
}

// before puts the rows of an earlier batch in front.
func (p *past) before(e *past) {
	p.inodes = append(e.inodes, p.inodes...)
	p.entries = append(e.entries, p.entries...)
	p.extents = append(e.extents, p.extents...)
	p.xattrs = append(e.xattrs, p.xattrs...)
}

// born returns the version of a change by a writer: (generation, writer) in
// one number.
func (t *memory) born(writer uint32) uint32 {
	v, ok := t.version[writer]
	if !ok {
		v = t.newVersion(writer)
	}
	t.count.Changed = max(t.count.Changed, uint64(v))
	return v
}

func (t *memory) newVersion(writer uint32) uint32 {
	t.count.Version++
	v := uint32(t.count.Version)
	t.version[writer] = v
	t.batch.versions = append(t.batch.versions, versionRow{v, writer, t.count.Generation})
	return v
}

// bornAfter is born for the change of a row that was born in another version:
// the result is not smaller. A writer who comes back to what another changed
// in between gets a new version, so that the lives of a row never overlap.
//
// With [mostInterleaved] behind it, the row stays what it was instead: another's.
func (t *memory) bornAfter(born, writer uint32) uint32 {
	v := t.born(writer)
	if v < born {
		if t.count.Interleaved >= t.opt.mostInterleaved {
			return born
		}
		v = t.newVersion(writer)
		t.count.Changed = uint64(v)
	}
	return v
}

// row copies what the index holds of an inode.
func (in *inode) row() inodeRow {
	row := inodeRow{node: in.node}
	if in.extra != nil {
		row.target = in.extra.target
	}
	if in.dir != nil {
		row.parent, row.cookie = in.dir.parent, in.dir.cookie
	}
	return row
}

// copyOnWrite comes before a change of an inode: it moves the old row to the past and
// gives the inode the version of the change.
func (t *memory) copyOnWrite(in *inode, v uint32) {
	if in.born < v {
		if t.remembered(in.born) {
			t.batch.past.inodes = append(t.batch.past.inodes, pastInode{in.row(), v})
		}
		in.born = v
	}
	t.batch.dirty(in)
}

// tombstone moves an entry that writer removes to the past. It returns the version in which the entry died.
func (t *memory) tombstone(d *inode, name string, e dentry, writer uint32) uint32 {
	v := t.bornAfter(e.born, writer)
	if e.born < v && t.remembered(e.born) {
		t.batch.past.entries = append(t.batch.past.entries, pastEntry{d.ino, name, e, v})
	}
	return v
}

// mostInterleaved is how many rows of inodes and names a generation may leave in the past
// that no checkpoint sees. They only record which of several writers did what. The
// bound keeps writers that alternate from filling the disk outside of any quota. Changes
// beyond it may be attributed to another of the writers, and the runs of that
// generation can no longer be undone.
const mostInterleaved = 1 << 18

// writerUnknown is the writer of a version that says that a generation had its mostTurns.
const writerUnknown = 1<<32 - 1

// remembered tells whether an inode or name that dies belongs to the past.
func (t *memory) remembered(born uint32) bool {
	if uint64(born) <= t.count.Sealed {
		return true
	}
	if t.count.Interleaved >= t.opt.mostInterleaved {
		return false
	}
	if t.count.Interleaved++; t.count.Interleaved == t.opt.mostInterleaved {
		t.newVersion(writerUnknown)
	}
	return true
}

// outlives tells whether an extent or attribute belongs to the past once it
// dies: it was born before, and in a generation that a checkpoint closed.
func (t *memory) outlives(born, died uint32) bool {
	return born < died && uint64(born) <= t.count.Sealed
}

// replaced moves an extent to the past and returns the version of what is left
// of it.
func (c *extentChange) replaced(e extent) uint32 {
	if c.t.outlives(e.born, c.in.born) {
		c.t.batch.past.extents = append(c.t.batch.past.extents, pastExtent{c.in.ino, e, c.in.born})
	}
	return c.in.born
}

// writePast adds what a batch replaced.
func (r *rows) writePast(tx *db.Tx) error {
	p := &r.batch.past
	if p.rows() == 0 {
		return nil
	}
	inode, err := prepare(tx, "INSERT OR REPLACE INTO past_inode("+inodeRowColumns+", died) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	for i := range p.inodes {
		n := inode.inode(&p.inodes[i].inodeRow)
		inode.ints(n, int64(p.inodes[i].died))
		if err := inode.run(); err != nil {
			return err
		}
	}
	entry, err := prepare(tx, "INSERT OR REPLACE INTO past_entry(parent, name, ino, cookie, born, died) VALUES (?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	for i := range p.entries {
		e := &p.entries[i]
		entry.BindInt64(1, int64(e.parent))
		entry.BindBytes(2, []byte(e.name))
		entry.ints(3, int64(e.ino), int64(e.cookie), int64(e.born), int64(e.died))
		if err := entry.run(); err != nil {
			return err
		}
	}
	ext, err := prepare(tx, "INSERT OR REPLACE INTO past_extent(ino, off, len, segment, place, whole, delta, born, died) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	for i := range p.extents {
		e := &p.extents[i]
		ext.ints(1, int64(e.ino), e.off, int64(e.n), int64(e.segment), int64(e.place), int64(e.whole), int64(e.delta), int64(e.born), int64(e.died))
		if err := ext.run(); err != nil {
			return err
		}
	}
	for _, x := range p.xattrs {
		err := tx.Exec("INSERT OR REPLACE INTO past_xattr(ino, name, value, born, died) VALUES (?, ?, ?, ?, ?)",
			int64(x.ino), []byte(x.name), x.value, int64(x.born), int64(x.died))
		if err != nil {
			return err
		}
	}
	return nil
}

// outlived tells whether something of an inode that is gone belongs to the past.
func (t *memory) outlived(in *inode) (yes bool) {
	if in.file != nil {
		in.file.each(0, maxSize, func(e extent) bool { yes = t.outlives(e.born, in.born); return !yes })
	}
	if in.extra != nil {
		for _, x := range in.extra.xattrs {
			yes = yes || !x.gone && t.outlives(x.born, in.born)
		}
	}
	return yes
}

// freedRow is an inode that is gone since a version.
type freedRow struct {
	ino  Ino
	died uint32
}

// writeFreed moves what belonged to inodes that are gone to the past; their
// own rows the batch moved there.
func (r *rows) writeFreed(tx *db.Tx) error {
	if len(r.freed) == 0 {
		return nil
	}
	for _, sql := range []string{
		"INSERT OR REPLACE INTO past_extent(ino, off, len, segment, place, whole, delta, born, died)" +
			" SELECT ino, off, len, segment, place, whole, delta, born, ?2 FROM extent WHERE ino = ?1 AND born < ?2 AND born <= ?3",
		"INSERT OR REPLACE INTO past_xattr(ino, name, value, born, died)" +
			" SELECT ino, name, value, born, ?2 FROM xattr WHERE ino = ?1 AND born < ?2 AND born <= ?3",
		"DELETE FROM inode WHERE ino = ?1", "DELETE FROM extent WHERE ino = ?1", "DELETE FROM xattr WHERE ino = ?1", "DELETE FROM orphan WHERE ino = ?1"} {
		s, err := prepare(tx, sql)
		if err != nil {
			return err
		}
		moves := s.BindParamCount() == 3
		for _, f := range r.freed {
			s.ints(1, int64(f.ino))
			if moves {
				s.ints(2, int64(f.died), int64(r.count.Sealed))
			}
			if err := s.run(); err != nil {
				return err
			}
		}
	}
	return nil
}
