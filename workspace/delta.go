package workspace

import (
	"cmp"
	"slices"
	"strings"
	"syscall"

	"holt/db"
)

// moment is a point in the history that two may be compared at.
type moment struct {
	version int64
	nextIno Ino // what was made later has this number or a higher one
}

// delta is what differs between two moments: names that are gone and that
// came, and the inodes that may differ. Finding it costs what changed:
//
//	an inode that changed has a row in the past that died in between;
//	one that was made in between has a number that was not given out before;
//	an entry that came has a cookie that its directory had not given out before;
//	an entry that is gone died in between;
//	an inode that came back has an entry that came.
type delta struct {
	before, after point
	inodes        map[Ino]*pair
	gone, came    []placedEntry
}

// pair is an inode at both moments; nil where it has no name.
type pair struct{ before, after *inodeRow }

// difference finds what differs between a and b, whichever is later.
func difference(tx *db.Tx, a, b moment) (*delta, error) {
	d := &delta{before: point{tx, a.version}, after: point{tx, b.version}, inodes: map[Ino]*pair{}}
	if a.version > b.version {
		d.before, d.after = d.after, d.before
		a, b = b, a
		defer d.turn()
	}
	if err := d.find(tx, a, b); err != nil {
		return nil, err
	}
	d.cancel()
	return d, nil
}

// turn swaps the sides.
func (d *delta) turn() {
	d.before, d.after = d.after, d.before
	d.gone, d.came = d.came, d.gone
	for _, p := range d.inodes {
		p.before, p.after = p.after, p.before
	}
}

func (d *delta) find(tx *db.Tx, a, b moment) error {
	var found []Ino
	err := tx.Query("SELECT ino FROM past_inode WHERE died > ?1 AND died <= ?2"+
		" UNION SELECT ino FROM past_inode WHERE ino >= ?3 AND ino < ?4 UNION SELECT ino FROM inode WHERE ino >= ?3 AND ino < ?4",
		[]any{a.version, b.version, int64(a.nextIno), int64(b.nextIno)}, func(r *db.Row) error { found = append(found, Ino(r.Int64(0))); return nil })
	if err != nil {
		return err
	}
	for _, ino := range found {
		if err := d.add(ino); err != nil {
			return err
		}
	}
	err = tx.Query("SELECT "+entryColumns+", died FROM past_entry WHERE died > ?1 AND died <= ?2 AND born <= ?1", []any{a.version, b.version}, func(r *db.Row) error {
		e := scanEntry(r)
		e.died = uint32(r.Int64(5))
		d.gone = append(d.gone, e)
		return nil
	})
	if err != nil {
		return err
	}
	for len(found) > 0 {
		p := d.inodes[found[0]]
		more, err := d.arrivals(p)
		if err != nil {
			return err
		}
		found = append(found[1:], more...)
	}
	return nil
}

// add looks at an inode on both sides.
func (d *delta) add(ino Ino) (err error) {
	p := &pair{}
	d.inodes[ino] = p
	if p.before, err = d.before.named(ino); err == nil {
		p.after, err = d.after.named(ino)
	}
	return err
}

// named returns an inode that has a name, or nil.
func (p point) named(ino Ino) (*inodeRow, error) {
	in, err := p.inode(ino)
	if in != nil && in.nlink == 0 {
		in = nil
	}
	return in, err
}

// arrivals notes the entries that came into a directory, and returns the
// inodes that came back with them.
func (d *delta) arrivals(p *pair) (back []Ino, err error) {
	if p.after == nil || !p.after.isDir() {
		return nil, nil
	}
	known := uint64(0)
	if p.before != nil {
		known = p.before.cookie
	}
	err = d.after.entries(p.after.ino, known, func(e placedEntry) error { d.came = append(d.came, e); back = append(back, e.ino); return nil })
	if err != nil {
		return nil, err
	}
	back = slices.DeleteFunc(back, func(ino Ino) bool { return d.inodes[ino] != nil })
	for _, ino := range back {
		if d.inodes[ino] == nil {
			if err := d.add(ino); err != nil {
				return nil, err
			}
		}
	}
	// One that was there all the while brings nothing with it.
	return slices.DeleteFunc(back, func(ino Ino) bool { return d.inodes[ino].before != nil }), nil
}

func (in *inodeRow) isDir() bool  { return in.mode&syscall.S_IFMT == syscall.S_IFDIR }
func (in *inodeRow) isFile() bool { return in.mode&syscall.S_IFMT == syscall.S_IFREG }

// cancel drops names that went and came back for the same inode.
func (d *delta) cancel() {
	type key struct {
		parent Ino
		name   string
		ino    Ino
	}
	keyOf := func(e placedEntry) key { return key{e.parent, e.name, e.ino} }
	gone := make(map[key]bool, len(d.gone))
	for _, e := range d.gone {
		gone[keyOf(e)] = true
	}
	both := map[key]bool{}
	for _, e := range d.came {
		if gone[keyOf(e)] {
			both[keyOf(e)] = true
		}
	}
	drop := func(e placedEntry) bool { return both[keyOf(e)] }
	d.gone, d.came = slices.DeleteFunc(d.gone, drop), slices.DeleteFunc(d.came, drop)
	byCookie := func(a, b placedEntry) int {
		return cmp.Or(cmp.Compare(a.parent, b.parent), cmp.Compare(a.cookie, b.cookie))
	}
	slices.SortFunc(d.gone, byCookie)
	slices.SortFunc(d.came, byCookie)
}

// content tells whether the bytes of an inode differ. What was put back is the
// same: it shares its bytes with what it was.
func (d *delta) content(p *pair) (bool, error) {
	a, b := p.before, p.after
	switch {
	case !a.isFile():
		return a.target != b.target, nil
	case a.data == b.data && a.ino == b.ino:
		return false, nil
	case a.size != b.size:
		return true, nil
	}
	before, err := d.before.extents(a.ino, 0, a.size)
	if err != nil {
		return false, err
	}
	after, err := d.after.extents(b.ino, 0, b.size)
	return !slices.EqualFunc(before, after, extent.same), err
}

// same tells whether two extents hold the same bytes at the same place.
func (e extent) same(o extent) bool {
	return e.off == o.off && e.n == o.n && e.segment == o.segment && e.place == o.place && e.delta == o.delta
}

// metadata tells whether the attributes of an inode differ that somebody sets.
// That of a directory's time and of a link count follows from other changes.
func (d *delta) metadata(p *pair) (bool, error) {
	a, b := p.before, p.after
	if a.mode != b.mode || a.uid != b.uid || a.gid != b.gid || a.rdev != b.rdev {
		return true, nil
	}
	if !a.isDir() && a.mtime != b.mtime {
		return true, nil
	}
	before, err := d.before.xattrs(a.ino)
	if err != nil {
		return false, err
	}
	after, err := d.after.xattrs(b.ino)
	if err != nil || len(before) != len(after) {
		return true, err
	}
	for k, v := range before {
		if w, ok := after[k]; !ok || v != w {
			return true, nil
		}
	}
	return false, nil
}

// within tells whether a path is one of paths or below one; all are if there
// are none.
func within(path string, paths []string) bool {
	for _, p := range paths {
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(p, "/")); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return len(paths) == 0
}
