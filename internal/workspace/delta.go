package workspace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"holt"
	"holt/internal/store/db"
)

// snapshot is a point in the history that two may be compared at.
type snapshot struct {
	version int64
	nextIno Ino // what was made later has this number or a higher one
}

// delta is what differs between two snapshots: names that are gone and that
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
	dirs          [2]map[Ino]string // paths of directories, as far as they are known: before, after
	most          int               // see mostDifferent; 0: no bound
}

// pair is an inode at both snapshots; nil where it has no name.
type pair struct {
	before, after *inodeRow
	compared      bool // then the rest is known
	bytes, attrs  bool // its content, or what somebody sets of its attributes, differs
}

// mostDifferent bounds how many inodes may differ between two states, and how
// many names are gone or came, before what differs is put together: it is
// sorted, so all of it is in memory, up to a KiB for each.
const mostDifferent = 2_000_000

// difference finds what differs between a and b, whichever is later. TooMany if
// that is more than most, unless most is 0.
func difference(tx *db.Tx, a, b snapshot, most int) (*delta, error) {
	d := &delta{most: most, before: point{tx, a.version}, after: point{tx, b.version}, inodes: map[Ino]*pair{}, dirs: [2]map[Ino]string{{}, {}}}
	if a.version > b.version {
		d.before, d.after = d.after, d.before
		a, b = b, a
		defer d.swap()
	}
	if err := d.find(tx, a, b); err != nil {
		return nil, err
	}
	d.cancel()
	return d, nil
}

// swap swaps the sides.
func (d *delta) swap() {
	d.before, d.after = d.after, d.before
	d.gone, d.came = d.came, d.gone
	d.dirs[0], d.dirs[1] = d.dirs[1], d.dirs[0]
	for _, p := range d.inodes {
		p.before, p.after = p.after, p.before
	}
}

func (d *delta) find(tx *db.Tx, a, b snapshot) error {
	if err := d.bounded(tx, a, b); err != nil {
		return err
	}
	var found, look []Ino
	note := func(ino Ino) *pair {
		p := d.inodes[ino]
		if p == nil {
			p = &pair{}
			d.inodes[ino], found = p, append(found, ino)
		}
		return p
	}
	died, err := d.died(tx, "past_inode", a, b)
	if err != nil {
		return err
	}
	err = tx.Query("SELECT "+inodeRowColumns+" FROM past_inode WHERE "+died, []any{a.version, b.version}, func(r *db.Row) error {
		ino := Ino(r.Int64(0))
		if d.inodes[ino] == nil && ino < a.nextIno {
			look = append(look, ino)
		}
		if p := note(ino); r.Int64(bornColumn) <= a.version {
			p.before = named(scanInodeRow(r))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = d.after.in("inode", inodeRowColumns, "ino >= ?2 AND ino < ?3", "", []any{int64(a.nextIno), int64(b.nextIno)}, func(r *db.Row) error {
		note(Ino(r.Int64(0))).after = named(scanInodeRow(r))
		return nil
	})
	if err != nil {
		return err
	}
	after, err := d.after.inodesOf(look)
	if err != nil {
		return err
	}
	for ino, in := range after {
		d.inodes[ino].after = named(in)
	}
	if err := d.findGone(tx, a, b); err != nil {
		return err
	}
	for len(found) > 0 {
		if found, err = d.findCame(found); err != nil {
			return err
		}
	}
	return nil
}

// bounded looks whether there is too much to be put together, before any of it is:
// what a guest makes is rows. Entries that came are counted as they come.
func (d *delta) bounded(tx *db.Tx, a, b snapshot) error {
	if d.most == 0 {
		return nil
	}
	within := func(query string, args ...any) error {
		var n int
		err := tx.Query("SELECT count(*) FROM ("+query+" LIMIT ?1)", append([]any{d.most + 1}, args...), func(r *db.Row) error { n = int(r.Int64(0)); return nil })
		if err == nil && n > d.most {
			err = d.tooMany()
		}
		return err
	}
	const made, died = " WHERE ino >= ?2 AND ino < ?3", " WHERE died > ?2 AND died <= ?3"
	err := within("SELECT 1 FROM inode"+made, int64(a.nextIno), int64(b.nextIno))
	if err == nil && b.version != nowVersion { // of what was made some may be gone
		err = within("SELECT 1 FROM past_inode"+made+" AND born <= ?4 AND died > ?4", int64(a.nextIno), int64(b.nextIno), b.version)
	}
	if err == nil {
		err = within("SELECT 1 FROM past_entry"+died+" AND born <= ?2", a.version, b.version)
	}
	if err == nil {
		if err = within("SELECT 1 FROM past_inode"+died, a.version, b.version); holt.CodeOf(err) == holt.TooMany {
			err = within("SELECT DISTINCT ino FROM past_inode"+died, a.version, b.version) // an inode may have many
		}
	}
	return err
}

func (d *delta) tooMany() error {
	return holt.Errorf(holt.TooMany, "more than %d files differ, which is too many to compare", d.most).
		WithHint("compare with a more recent checkpoint, query files_at for the paths you need with holt workspace query, or fork the checkpoint")
}

// died is the condition that a row of a table of the past died in between. Where
// these are most of the table it is read from end to end: to look for each row
// that an index names costs several times as much.
func (d *delta) died(tx *db.Tx, table string, a, b snapshot) (condition string, err error) {
	condition = "died > ?1 AND died <= ?2"
	var n, all int64
	err = tx.Query("SELECT count(*) FROM "+table+" WHERE "+condition, []any{a.version, b.version}, func(r *db.Row) error { n = r.Int64(0); return nil })
	if err != nil {
		return "", err
	}
	err = tx.Query("SELECT count(*) FROM (SELECT 1 FROM "+table+" LIMIT ?1)", []any{3*n + 1}, func(r *db.Row) error { all = r.Int64(0); return nil })
	if all <= 3*n {
		condition = "+died > ?1 AND +died <= ?2"
	}
	return condition, err
}

// findGone notes the entries that are gone.
func (d *delta) findGone(tx *db.Tx, a, b snapshot) error {
	died, err := d.died(tx, "past_entry", a, b)
	if err != nil {
		return err
	}
	err = tx.Query("SELECT "+entryColumns+", died FROM past_entry WHERE "+died+" AND born <= ?1", []any{a.version, b.version}, func(r *db.Row) error {
		e := scanEntry(r)
		e.died = uint32(r.Int64(5))
		d.gone = append(d.gone, e)
		return nil
	})
	if err != nil {
		return err
	}
	var kept []Ino // of which only a name went
	for _, e := range d.gone {
		if d.inodes[e.ino] == nil {
			kept = append(kept, e.ino)
		}
	}
	return d.add(kept)
}

// add looks at inodes on both sides.
func (d *delta) add(inos []Ino) error {
	before, err := d.before.inodesOf(inos)
	if err != nil {
		return err
	}
	after, err := d.after.inodesOf(inos)
	for _, ino := range inos {
		d.inodes[ino] = &pair{before: named(before[ino]), after: named(after[ino])}
	}
	return err
}

// named returns an inode that has a name, or nil.
func (p point) named(ino Ino) (*inodeRow, error) {
	in, err := p.inode(ino)
	return named(in), err
}

func named(in *inodeRow) *inodeRow {
	if in != nil && in.nlink == 0 {
		return nil
	}
	return in
}

// findCame notes the entries that came into directories, and returns the
// inodes that came back with them.
func (d *delta) findCame(dirs []Ino) (back []Ino, err error) {
	known := map[Ino]uint64{} // the last cookie before
	for _, ino := range dirs {
		p := d.inodes[ino]
		if p.after == nil || !p.after.isDir() {
			continue
		}
		known[ino] = 0
		if p.before != nil {
			known[ino] = p.before.cookie
		}
	}
	err = d.after.entriesOf(known, func(e placedEntry) error {
		if d.most > 0 && len(d.came) >= d.most {
			return d.tooMany()
		}
		if d.came = append(d.came, e); d.inodes[e.ino] == nil {
			back = append(back, e.ino)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := d.add(back); err != nil {
		return nil, err
	}
	slices.Sort(back)
	// One that was there all the while brings nothing with it.
	return slices.DeleteFunc(slices.Compact(back), func(ino Ino) bool { return d.inodes[ino].before != nil }), nil
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
	few, many := d.gone, d.came
	if len(few) > len(many) {
		few, many = many, few
	}
	one := make(map[key]bool, len(few))
	for _, e := range few {
		one[keyOf(e)] = true
	}
	both := map[key]bool{}
	if len(one) > 0 {
		for _, e := range many {
			if one[keyOf(e)] {
				both[keyOf(e)] = true
			}
		}
	}
	drop := func(e placedEntry) bool { return both[keyOf(e)] }
	if len(both) > 0 {
		d.gone, d.came = slices.DeleteFunc(d.gone, drop), slices.DeleteFunc(d.came, drop)
	}
	byCookie := func(a, b placedEntry) int {
		return cmp.Or(cmp.Compare(a.parent, b.parent), cmp.Compare(a.cookie, b.cookie))
	}
	slices.SortFunc(d.gone, byCookie)
	slices.SortFunc(d.came, byCookie)
}

// side returns one of the two, and the paths that are known there.
func (d *delta) side(after bool) (point, map[Ino]string) {
	if after {
		return d.after, d.dirs[1]
	}
	return d.before, d.dirs[0]
}

// learn looks the paths of the directories of entries up, on both sides.
func (d *delta) learn(lists ...[]placedEntry) error {
	for _, after := range []bool{false, true} {
		p, dirs := d.side(after)
		wanted := map[Ino]bool{}
		for _, list := range lists {
			for _, e := range list {
				if _, ok := dirs[e.parent]; !ok {
					wanted[e.parent] = true
				}
			}
		}
		paths, err := p.pathsOf(slices.Collect(maps.Keys(wanted)))
		if err != nil {
			return err
		}
		maps.Copy(dirs, paths)
	}
	return nil
}

// path returns the path of an entry on one side.
func (d *delta) path(e placedEntry, after bool) (string, error) {
	p, dirs := d.side(after)
	dir, ok := dirs[e.parent]
	if !ok {
		var err error
		if dir, err = p.dirPath(e.parent); err != nil {
			return "", err
		}
		dirs[e.parent] = dir
	}
	if dir == "" {
		return "", fmt.Errorf("directory %d has no path at version %d", e.parent, p.version)
	}
	return strings.TrimSuffix(dir, "/") + "/" + e.name, nil
}

// compare works out what differs of all inodes that are there on both sides.
func (d *delta) compare() error {
	var pairs []*pair
	for _, p := range d.inodes {
		if p.before != nil && p.after != nil && !p.compared {
			pairs = append(pairs, p)
		}
	}
	slices.SortFunc(pairs, func(a, b *pair) int { return cmp.Compare(a.before.ino, b.before.ino) }) // neighbours are asked for together
	for some := range slices.Chunk(pairs, setSize) {
		if err := d.settle(some); err != nil {
			return err
		}
	}
	return nil
}

// settle compares the inodes of pairs. What was put back is the same as it
// was: it shares its bytes. What the rows do not tell is asked in sets.
func (d *delta) settle(pairs []*pair) error {
	var bytes, attrs sides
	for _, p := range pairs {
		a, b := p.before, p.after
		switch {
		case !a.isFile():
			p.bytes = a.target != b.target
		case a.data == b.data && a.ino == b.ino:
		case a.size != b.size:
			p.bytes = true
		case a.size <= smallFile && a.ino == b.ino:
			bytes.add(p)
		default: // it may have any number of extents
			var err error
			if p.bytes, err = d.rewritten(a, b); err != nil {
				return err
			}
		}
		// A directory's time and a link count follow from other changes.
		if p.attrs = a.mode != b.mode || a.uid != b.uid || a.gid != b.gid || a.rdev != b.rdev || !a.isDir() && a.mtime != b.mtime; !p.attrs {
			attrs.add(p)
		}
		p.compared = true
	}
	before, err := d.before.extentsOf(bytes.before)
	if err != nil {
		return err
	}
	after, err := d.after.extentsOf(bytes.after)
	if err != nil {
		return err
	}
	for _, p := range bytes.pairs {
		p.bytes = !slices.EqualFunc(before[p.before.ino], after[p.after.ino], extent.same)
	}
	inos := make([]inoPair, len(attrs.pairs))
	for i, p := range attrs.pairs {
		inos[i] = inoPair{p.before.ino, p.after.ino}
	}
	return eachXattrs(d.before, d.after, inos, func(i int, then, now map[string]string) error {
		attrs.pairs[i].attrs = !maps.Equal(then, now)
		return nil
	})
}

// smallFile is the size, bytes, up to which files are asked for their extents
// many at a time.
const smallFile = 256 << 10

// rewritten compares the extents of one file.
func (d *delta) rewritten(a, b *inodeRow) (bool, error) {
	before, err := d.before.extents(a.ino, 0, a.size)
	if err != nil {
		return false, err
	}
	after, err := d.after.extents(b.ino, 0, b.size)
	return !slices.EqualFunc(before, after, extent.same), err
}

// sides are pairs and what they are of.
type sides struct {
	pairs         []*pair
	before, after []Ino
}

func (s *sides) add(p *pair) {
	s.pairs, s.before, s.after = append(s.pairs, p), append(s.before, p.before.ino), append(s.after, p.after.ino)
}

// same tells whether two extents hold the same bytes at the same place.
func (e extent) same(o extent) bool {
	return e.off == o.off && e.n == o.n && e.segment == o.segment && e.place == o.place && e.delta == o.delta
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
