package workspace

import (
	"bytes"
	"errors"
	"maps"
	"sort"
	"syscall"

	"holt"
	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// side is a workspace in a merge: one state of its index, and what it needs to
// be compared with another's.
type side struct {
	t        *Tree
	p        point
	lineage  []Ancestor
	segments map[uint32]journal.ID
}

func newSide(t *Tree, tx *db.Tx, lineage []Ancestor) (*side, error) {
	s := &side{t: t, p: point{tx, nowVersion}, lineage: lineage, segments: map[uint32]journal.ID{}}
	return s, tx.Query("SELECT num, id FROM segment", nil, func(r *db.Row) error {
		s.segments[uint32(r.Int64(0))] = journal.ID(r.Bytes(1))
		return nil
	})
}

// id is that of the workspace.
func (s *side) id() ID { return s.lineage[len(s.lineage)-1].ID }

// find returns the inode that a workspace of the family made under a number; 0
// if it never was here.
func (s *side) find(origin ID, theirs Ino) (ours Ino, err error) {
	// A row comes first: a file from before the fork may have been replaced.
	err = s.p.tx.Query("SELECT ours FROM twin WHERE origin = ?1 AND theirs = ?2", []any{origin[:], int64(theirs)},
		func(r *db.Row) error { ours = Ino(r.Int64(0)); return nil })
	for i, a := range s.lineage {
		if ours == 0 && a.ID == origin && (i == len(s.lineage)-1 || theirs < a.nextIno) {
			ours = theirs
		}
	}
	return ours, err
}

// maker returns the workspace of the lineage that made an inode.
func (s *side) maker(ino Ino) ID {
	for _, a := range s.lineage[:len(s.lineage)-1] {
		if ino < a.nextIno {
			return a.ID
		}
	}
	return s.id()
}

// replaced tells whether another inode here goes by the number of one that is
// gone: it came back from another side.
func (s *side) replaced(ino Ino) (bool, error) {
	now, err := s.find(s.maker(ino), ino)
	return now != 0 && now != ino, err
}

// twinOf returns the inode here that is one of another side; 0 if there never
// was one.
func (s *side) twinOf(o *side, ino Ino) (ours Ino, err error) {
	all, err := o.origins(ino)
	for _, x := range all {
		if err == nil && ours == 0 {
			ours, err = s.find(x.origin, x.theirs)
		}
	}
	return ours, err
}

// origins returns all that an inode goes by in the family: where another
// replaced the file again and again, what it made last comes first.
func (s *side) origins(ino Ino) (all []twin, err error) {
	err = s.p.tx.Query("SELECT origin, theirs FROM twin WHERE ours = ?1 ORDER BY theirs DESC", []any{int64(ino)}, func(r *db.Row) error {
		all = append(all, twin{ID(r.Bytes(0)), Ino(r.Int64(1)), ino})
		return nil
	})
	return append(all, twin{s.maker(ino), ino, ino}), err
}

// common finds the newest checkpoint that is in the past of both: of the first
// workspace that both come from, not later than where either left it.
func common(from, into []Ancestor, checkpoints []Checkpoint) (c CheckpointID, err error) {
	last := -1
	for i := 0; i < min(len(from), len(into)) && from[i].ID == into[i].ID; i++ {
		last = i
	}
	switch {
	case last < 0:
		return 0, holt.Errorf(holt.InvalidArgument, "the workspaces have nothing in common").
			WithHint("a workspace can be merged only with its forks, its ancestors, and forks of those")
	case last == len(from)-1 && last == len(into)-1:
		return 0, holt.Errorf(holt.InvalidArgument, "a workspace cannot be merged into itself")
	}
	bound := CheckpointID(1 << 62)
	for _, l := range [][]Ancestor{from, into} {
		if last < len(l)-1 {
			bound = min(bound, l[last].Checkpoint)
		}
	}
	for _, x := range checkpoints {
		if x.ID <= bound {
			c = x.ID
		}
	}
	return c, nil
}

// state is an inode at a point of a side's history.
type state struct {
	s   *side
	p   point
	row *inodeRow // nil: it is not there
}

func (x state) extents() ([]extent, error) { return x.p.extents(x.row.ino, 0, x.row.size) }

// sameBytes tells whether two files, or links, hold the same.
func (x state) sameBytes(y state) (bool, error) {
	a, b := x.row, y.row
	if a.target != b.target || a.isFile() != b.isFile() || !a.isFile() {
		return a.target == b.target && a.mode&syscall.S_IFMT == b.mode&syscall.S_IFMT && a.rdev == b.rdev, nil
	}
	if a.size != b.size {
		return false, nil
	}
	if x.s == y.s && a.ino == b.ino && a.data == b.data {
		return true, nil
	}
	ea, err := x.extents()
	if err != nil {
		return false, err
	}
	eb, err := y.extents()
	if err != nil || x.samePlaces(ea, y, eb) {
		return err == nil, err
	}
	pa, pb := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < a.size; off += int64(len(pa)) {
		n := min(int64(len(pa)), a.size-off)
		if err := errors.Join(x.read(ea, off, pa[:n]), y.read(eb, off, pb[:n])); err != nil {
			return false, err
		}
		if !bytes.Equal(pa[:n], pb[:n]) {
			return false, nil
		}
	}
	return true, nil
}

// samePlaces tells whether extents are the same bytes of the same segments.
func (x state) samePlaces(ea []extent, y state, eb []extent) bool {
	if len(ea) != len(eb) {
		return false
	}
	for i, e := range ea {
		o := eb[i]
		if x.s.segments[e.segment] != y.s.segments[o.segment] {
			return false
		}
		if e.segment = o.segment; !e.same(o) {
			return false
		}
	}
	return true
}

// read fills p from off; extents are all of the file's.
func (x state) read(all []extent, off int64, p []byte) error {
	var parts []extent
	first := sort.Search(len(all), func(i int) bool { return all[i].end() > off })
	for _, e := range all[first:] {
		if e.off >= off+int64(len(p)) {
			break
		}
		parts = append(parts, e.cut(off, off+int64(len(p))))
	}
	return x.s.t.fill(p, off, parts)
}

// text returns the content of a file that is text; false if it is none.
func (x state) text() ([]byte, bool, error) {
	if x.row.size > mostText {
		return nil, false, nil
	}
	all, err := x.extents()
	if err != nil {
		return nil, false, err
	}
	b := make([]byte, x.row.size)
	if err := x.read(all, 0, b); err != nil {
		return nil, false, err
	}
	return b, isText(b), nil
}

// sameAttrs tells whether what people set is the same.
func (x state) sameAttrs(y state) (bool, error) {
	a, b := x.row, y.row
	if a.mode != b.mode || a.uid != b.uid || a.gid != b.gid || a.rdev != b.rdev {
		return false, nil
	}
	xa, err := x.p.xattrs(a.ino)
	if err != nil {
		return false, err
	}
	xb, err := y.p.xattrs(b.ino)
	return err == nil && maps.Equal(xa, xb), err
}

// contents names what a file holds, until it is written to.
type contents struct {
	t    *Tree
	ino  Ino
	data uint32
	size int64
}

func (x state) contents() contents { return contents{x.s.t, x.row.ino, x.row.data, x.row.size} }

// sameBytes is [state.sameBytes], which may read both files to their ends: what
// the first build has found holds in the second, while everything waits, for
// what was not written since.
func (m *merge) sameBytes(x, y state) (bool, error) {
	key := [2]contents{x.contents(), y.contents()}
	if same, ok := m.compared[key]; ok {
		return same, nil
	}
	same, err := x.sameBytes(y)
	for _, c := range key {
		if err != nil || c.t == m.into && uint64(c.data) > m.settled {
			return same, err
		}
	}
	m.compared[key] = same
	return same, nil
}

// same is sameBytes and sameAttrs.
func (m *merge) same(x, y state) (bool, error) {
	ok, err := x.sameAttrs(y)
	if err == nil && ok {
		ok, err = m.sameBytes(x, y)
	}
	return ok, err
}
