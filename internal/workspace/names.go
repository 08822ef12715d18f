package workspace

import (
	"cmp"
	"slices"
)

// names returns the first entries of a directory after a name ("": from the
// start), in the order of names, with attributes and without . and ..; at most
// so many. It takes memory for these alone, however large the directory is.
func (t *Tree) names(ino Ino, after string, most int) ([]DirEntry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.getDir(ino)
	if err != nil || d.size == 0 {
		return nil, err
	}
	if !d.dir.complete && d.size <= smallDir {
		if err := t.loadDir(d); err != nil {
			return nil, err
		}
	}
	least := leastNames{most: most}
	for name, e := range d.dir.entries {
		if e.ino != 0 && name > after && !t.hides(ino, name, e.ino) {
			least.add(name, e)
		}
	}
	if !d.dir.complete {
		least.cut()
		n := 0
		err := t.index.entriesByName(d.ino, after, func(name string, e dentry) bool {
			if least.full(name) {
				return false
			}
			if _, known := d.dir.entries[name]; known || t.hides(ino, name, e.ino) { // what is cached counts
				return true
			}
			least.add(name, e)
			n++
			return n < most
		})
		if err != nil {
			return nil, t.errno("read directory", err)
		}
	}
	least.cut()
	all, err := t.describeNames(d, least.kept)
	t.inodes.tidy()
	return all, err
}

// describeNames reads the attributes of entries.
func (t *Tree) describeNames(d *inode, entries []namedEntry) ([]DirEntry, error) {
	all := make([]DirEntry, 0, len(entries))
	for _, e := range entries {
		in, err := t.get(e.ino)
		if err != nil {
			return nil, t.missingInode(d, e.name, err)
		}
		all = append(all, DirEntry{Name: e.name, Ino: e.ino, Mode: in.mode, Cookie: e.cookie + cookieDotDot, Attr: in.attr()})
	}
	return all, nil
}

type namedEntry struct {
	name string
	dentry
}

// leastNames keeps the first most of the names it is given, in memory for
// twice as many.
type leastNames struct {
	most int
	kept []namedEntry
	last string // no name behind it counts; "": not known yet
}

// full says that a name comes behind all that are wanted.
func (l *leastNames) full(name string) bool { return l.last != "" && name > l.last }

func (l *leastNames) add(name string, e dentry) {
	if l.full(name) {
		return
	}
	if l.kept = append(l.kept, namedEntry{name, e}); len(l.kept) >= 2*l.most {
		l.cut()
	}
}

// cut sorts what is kept and drops what is too much.
func (l *leastNames) cut() {
	slices.SortFunc(l.kept, func(a, b namedEntry) int { return cmp.Compare(a.name, b.name) })
	if len(l.kept) >= l.most {
		l.kept = l.kept[:l.most]
		l.last = l.kept[l.most-1].name
	}
}
