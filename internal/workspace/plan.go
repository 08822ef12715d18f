package workspace

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"syscall"

	"holt"
)

// plan says how a restore, an undo or a merge changes the present: names to
// remove, names to add, and inodes to make as they were.
type plan struct {
	now    point
	erase  []placedEntry
	enter  []placedEntry
	inodes map[Ino]wantedInode // what they shall be; one that is not there is made
	extra  []op                // more parts, which change nothing that can be seen
	after  func() error        // called once it is reached, with mu held
}

// wantedInode is an inode as it was at a version, or as a merge makes it.
type wantedInode struct {
	row  *inodeRow
	at   point
	made *mergedContents // nil: what is at the point
}

// planEncoder turns a plan into parts. It runs with mu held and an index that says
// what memory does, and loads all that the parts touch.
type planEncoder struct {
	t      *Tree
	plan   *plan
	parts  parts
	order  []Ino // of plan.inodes
	absent map[Ino]bool
	links  map[Ino]int // names taken (-) and given (+)
	seen   map[dirName]bool
	stale  []Stale
	freed  []*inode
	known  map[point]*known
	values valueBudget
}

// known is what was asked in sets of the inodes of a plan, at one point.
type known struct {
	small   []Ino
	extents map[Ino][]extent // of small files
}

// Stale names what a kernel that has the workspace mounted may no longer
// believe: with a Name that entry of directory Ino, else the attributes and
// the bytes of Ino.
type Stale struct {
	Ino  Ino
	Name string
}

func newPlanEncoder(t *Tree, g *plan) (*planEncoder, error) {
	p := &planEncoder{t: t, plan: g, order: slices.Sorted(maps.Keys(g.inodes)), links: map[Ino]int{}, seen: map[dirName]bool{}, known: map[point]*known{}}
	for _, o := range g.extra {
		p.add(o)
	}
	for _, step := range []func() error{p.look, p.revive, p.eraseNames, p.enterNames, p.fill, p.attributes, p.images, p.drop, p.quota} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// look loads the inodes that are touched, and asks for what is to be compared:
// what they have now, and had.
func (p *planEncoder) look() (err error) {
	touched := slices.Clone(p.order)
	for _, list := range [][]placedEntry{p.plan.erase, p.plan.enter} {
		for _, e := range list {
			touched = append(touched, e.parent, e.ino)
		}
	}
	if p.absent, err = p.t.preload(p.plan.now, touched); err != nil {
		return err
	}
	note := func(at point, ino Ino, row *inodeRow) {
		k := p.known[at]
		if k == nil {
			k = &known{}
			p.known[at] = k
		}
		if row.isFile() && row.size <= smallFile {
			k.small = append(k.small, ino)
		}
	}
	for ino, w := range p.plan.inodes {
		if w.made == nil {
			note(w.at, w.row.ino, w.row)
		}
		if !p.absent[ino] {
			note(p.plan.now, ino, w.row)
		}
	}
	for at, k := range p.known {
		if k.extents, err = at.extentsOf(k.small); err != nil {
			return err
		}
	}
	return nil
}

// extents returns all extents of a file of some size at a point.
func (p *planEncoder) extents(at point, ino Ino, size int64) ([]extent, error) {
	if all, ok := p.known[at].extents[ino]; ok && size <= smallFile {
		return all, nil
	}
	return at.extents(ino, 0, size)
}

// wanted returns the extents that a file shall have.
func (p *planEncoder) wanted(w wantedInode) ([]extent, error) {
	if w.made != nil {
		return w.made.all, nil
	}
	return p.extents(w.at, w.row.ino, w.row.size)
}

func (p *planEncoder) add(o op) { p.parts.add(&o) }

// get is Tree.get of an inode that look loaded.
func (p *planEncoder) get(ino Ino) (*inode, error) {
	if p.absent[ino] {
		return nil, syscall.ENOENT
	}
	return p.t.get(ino)
}

// revive makes the inodes that are not there.
func (p *planEncoder) revive() error {
	for _, ino := range p.order {
		w := p.plan.inodes[ino]
		_, err := p.get(ino)
		if err == nil {
			continue
		}
		if err != syscall.ENOENT {
			return err
		}
		o := op{kind: opRevive, ino: ino, mode: w.row.mode, rdev: w.row.rdev, btime: w.row.btime}
		if w.row.target != "" {
			o.blob = []byte(w.row.target)
		}
		if w.row.isDir() {
			if o.off, err = p.plan.now.lastCookie(ino); err != nil {
				return err
			}
		}
		p.add(o)
	}
	return nil
}

// depth orders names so that what is in a directory comes after it.
func (p *planEncoder) depth(at point, entries []placedEntry) (map[Ino]int, error) {
	var parents []Ino
	for _, e := range entries {
		parents = append(parents, e.parent)
	}
	paths, err := at.pathsOf(parents)
	depth := make(map[Ino]int, len(paths))
	for ino, path := range paths {
		depth[ino] = strings.Count(strings.TrimSuffix(path, "/"), "/")
	}
	return depth, err
}

// eraseNames takes names away, the deepest first.
func (p *planEncoder) eraseNames() error {
	depth, err := p.depth(p.plan.now, p.plan.erase)
	if err != nil {
		return err
	}
	slices.SortStableFunc(p.plan.erase, func(a, b placedEntry) int { return cmp.Compare(depth[b.parent], depth[a.parent]) })
	for _, e := range p.plan.erase {
		if p.seen[dirName{e.parent, e.name}] {
			continue
		}
		p.seen[dirName{e.parent, e.name}] = true
		d, err := p.t.getDir(e.parent)
		if err != nil {
			return err
		}
		if _, err := p.t.entry(d, e.name); err != nil {
			return err
		}
		in, err := p.get(e.ino)
		if err != nil {
			return err
		}
		p.links[e.ino] -= in.link()
		p.add(op{kind: opErase, parent: e.parent, name: e.name})
		p.stale = append(p.stale, Stale{Ino: e.parent, Name: e.name}, Stale{Ino: e.parent}, Stale{Ino: e.ino})
	}
	return nil
}

// link is what one name adds to the link count.
func (in *node) link() int {
	if in.mode&syscall.S_IFMT == syscall.S_IFDIR {
		return 2
	}
	return 1
}

// enterNames gives names: those of directories that are there first, then what
// is in the directories that came so.
func (p *planEncoder) enterNames() error {
	waiting := map[Ino][]placedEntry{}
	coming := map[Ino]bool{}
	for _, e := range p.plan.enter {
		coming[e.ino] = true
	}
	var ready []placedEntry
	for _, e := range p.plan.enter {
		if coming[e.parent] {
			waiting[e.parent] = append(waiting[e.parent], e)
		} else {
			ready = append(ready, e)
		}
	}
	for len(ready) > 0 {
		e := ready[0]
		ready = append(ready[1:], waiting[e.ino]...)
		delete(waiting, e.ino)
		if err := p.loadName(e); err != nil {
			return err
		}
		in, err := p.get(e.ino)
		n := p.plan.inodes[e.ino].row
		switch {
		case err == nil:
			p.links[e.ino] += in.link()
		case err == syscall.ENOENT && n != nil:
			p.links[e.ino] += n.link()
		default:
			return err
		}
		p.add(op{kind: opEnter, parent: e.parent, name: e.name, ino: e.ino})
		p.stale = append(p.stale, Stale{Ino: e.parent, Name: e.name}, Stale{Ino: e.parent}, Stale{Ino: e.ino})
	}
	for _, e := range waiting {
		return holt.Errorf(holt.Conflict, "directory %q would be inside itself", e[0].name).WithHint("restore fewer paths")
	}
	return nil
}

// loadName loads what a directory has under a name that it is given.
func (p *planEncoder) loadName(e placedEntry) error {
	if p.absent[e.parent] && p.plan.inodes[e.parent].row != nil {
		return nil // it is revived
	}
	d, err := p.t.getDir(e.parent)
	if err == nil {
		_, err = p.t.entry(d, e.name)
	}
	if err == syscall.ENOENT && d != nil {
		err = nil
	}
	return err
}

// fill gives files their bytes back, where they differ.
func (p *planEncoder) fill() error {
	for _, ino := range p.order {
		w := p.plan.inodes[ino]
		if !w.row.isFile() {
			continue
		}
		in, err := p.get(ino)
		if err != nil && err != syscall.ENOENT {
			return err
		}
		if err := p.bytes(ino, in, w); err != nil {
			return err
		}
	}
	return nil
}

// mostExtents bounds what one part says.
const mostExtents = 4000

func (p *planEncoder) bytes(ino Ino, in *inode, w wantedInode) error {
	var have []extent
	var err error
	size := w.row.size
	if in != nil {
		if in.data == w.row.data && in.size == w.row.size && ino == w.row.ino {
			return nil
		}
		size = max(size, in.size)
		if have, err = p.extents(p.plan.now, ino, in.size); err != nil {
			return err
		}
		if _, err := p.t.getFile(ino, 0, size); err != nil {
			return err
		}
	}
	want, err := p.wanted(w)
	if err != nil {
		return err
	}
	for _, r := range replacements(have, want) {
		for first := true; first || len(r.extents) > 0; first = false {
			n, end := len(r.extents), r.hi
			if n > mostExtents {
				n = mostExtents
				end = r.extents[n].off
			}
			p.add(op{kind: opExtents, ino: ino, off: r.lo, n: end - r.lo, blob: packExtents(r.lo, r.extents[:n])})
			r.lo, r.extents = end, r.extents[n:]
		}
	}
	return nil
}

// replacement is a range of a file whose extents shall be others.
type replacement struct {
	lo, hi  int64
	extents []extent
}

// replacements returns the ranges that make have into want, and leaves alone
// what is the same in both.
func replacements(have, want []extent) (all []replacement) {
	if len(have)+len(want) == 0 {
		return nil
	}
	key := func(e extent) extent { e.born = 0; return e }
	in := func(list []extent) map[extent]bool {
		m := make(map[extent]bool, len(list))
		for _, e := range list {
			m[key(e)] = true
		}
		return m
	}
	had, wanted := in(have), in(want)
	var changed []extent
	for _, e := range have {
		if !wanted[key(e)] {
			changed = append(changed, e)
		}
	}
	fresh := slices.DeleteFunc(slices.Clone(want), func(e extent) bool { return had[key(e)] })
	changed = append(changed, fresh...)
	slices.SortFunc(changed, func(a, b extent) int { return cmp.Compare(a.off, b.off) })
	for _, e := range changed {
		if n := len(all); n > 0 && e.off <= all[n-1].hi {
			all[n-1].hi = max(all[n-1].hi, e.end())
		} else {
			all = append(all, replacement{lo: e.off, hi: e.end()})
		}
	}
	i := 0
	for k := range all {
		for ; i < len(fresh) && fresh[i].off < all[k].hi; i++ {
			all[k].extents = append(all[k].extents, fresh[i])
		}
	}
	return all
}

// images sets attributes, after all that stamps times.
func (p *planEncoder) images() error {
	for _, ino := range p.order {
		row := p.plan.inodes[ino].row
		p.add(op{kind: opImage, ino: ino, mode: row.mode & 07777, uid: row.uid, gid: row.gid, n: row.size, atime: row.atime,
			mtime: row.mtime, ctime: row.ctime, author: row.writer, data: row.data})
		p.stale = append(p.stale, staleInode(ino)...)
	}
	return nil
}

// drop ends the inodes that lost their last name, unless a mount holds them.
func (p *planEncoder) drop() error {
	for _, ino := range slices.Sorted(maps.Keys(p.links)) {
		in, err := p.get(ino)
		if err == syscall.ENOENT {
			continue // revived, and named
		}
		if err != nil {
			return err
		}
		if p.named(in) == 0 && p.t.freeNow(in) {
			p.add(op{kind: opFree, ino: ino})
			p.freed = append(p.freed, in)
		}
	}
	return nil
}

// named counts the names an inode will have.
func (p *planEncoder) named(in *inode) int {
	names := int(in.nlink)
	if in.isDir() {
		names = 2 * min(1, names) // the others are its subdirectories
	}
	return names + p.links[in.ino]
}
