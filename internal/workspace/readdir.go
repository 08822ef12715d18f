package workspace

import (
	"math"
	"syscall"
)

// Cookies 1 and 2 are . and .., so the entries' own begin above them.
const (
	cookieDot    = 1
	cookieDotDot = 2
)

// ReadDir calls fn for the entries after cookie (0: from the start, with . and
// ..), until fn returns false: that entry counts as not taken. With plus the
// attributes are filled and, through a mount, each taken entry but . and ..
// counts one lookup. fn must not call the Tree.
//
// An entry that is there all the while is seen once, whatever changes beside
// it: cookies only grow, and are never given twice. Through a mount, a reading
// ends however many entries its reader makes: of those that came since it began
// it shows only the ones that replaced another under its name, up to where it
// had shown all the rest.
func (t *Tree) ReadDir(c Caller, ino Ino, cookie uint64, plus bool, fn func(DirEntry) bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.getDir(ino)
	if err != nil {
		return err
	}
	if cookie == 0 && c.Epoch != 0 {
		d.dir.readBelow, d.dir.readAgain = d.dir.cookie+1, 0
	}
	if cookie < cookieDot && !fn(DirEntry{Name: ".", Ino: ino, Mode: syscall.S_IFDIR, Cookie: cookieDot, Attr: d.attr()}) {
		return nil
	}
	if cookie < cookieDotDot {
		up, err := t.getDir(d.dir.parent)
		if err != nil {
			up = d // a removed directory whose parent is gone too
		}
		if !fn(DirEntry{Name: "..", Ino: up.ino, Mode: syscall.S_IFDIR, Cookie: cookieDotDot, Attr: up.attr()}) {
			return nil
		}
	}
	if d.nlink == 0 || d.size == 0 {
		return nil
	}
	if !d.dir.complete && d.size <= smallDir {
		if err := t.loadDir(d); err != nil {
			return err
		}
	}
	l := listing{t: t, c: c, d: d, plus: plus, fn: fn, below: math.MaxUint64}
	if c.Epoch != 0 && d.dir.readBelow != 0 {
		l.below = d.dir.readBelow
	}
	err = l.run(max(cookie, cookieDotDot) - cookieDotDot)
	t.inodes.tidy()
	return err
}

// listing is one ReadDir over entries.
type listing struct {
	t    *Tree
	c    Caller
	d    *inode
	plus bool
	fn   func(DirEntry) bool
	err  error

	below uint64 // only entries with lower cookies
}

// run lists the entries after a cookie, then those that replaced others.
func (l *listing) run(after uint64) error {
	dir := l.d.dir
	if after+1 < l.below {
		if more, err := l.entries(after); !more || err != nil {
			return err
		}
	}
	if l.below == math.MaxUint64 {
		return nil
	}
	if dir.readAgain == 0 {
		dir.readAgain = dir.cookie + 1
	}
	cached := dir.sorted()
	i, _ := dir.place(max(after+1, l.below))
	for ; i < len(cached) && cached[i].cookie < dir.readAgain; i++ {
		e := dir.entries[cached[i].name]
		if e.replaced && e.ino != 0 && e.cookie == cached[i].cookie && !l.emit(cached[i].name, e) {
			break
		}
	}
	return l.err
}

// entries merges what is cached, which counts, with the rows of the index.
func (l *listing) entries(after uint64) (more bool, err error) {
	cached := l.d.dir.sorted()
	i, _ := l.d.dir.place(after + 1)
	// upTo emits the cached entries up to a cookie.
	upTo := func(cookie uint64) bool {
		for ; i < len(cached) && cached[i].cookie <= cookie && cached[i].cookie < l.below; i++ {
			e := l.d.dir.entries[cached[i].name]
			if e.ino != 0 && e.cookie == cached[i].cookie && !l.emit(cached[i].name, e) {
				return false
			}
		}
		return true
	}
	if !l.d.dir.complete {
		more := true
		err := l.t.index.entries(l.d.ino, after, func(name string, e dentry) bool {
			if _, known := l.d.dir.entries[name]; known {
				return true
			}
			if e.cookie >= l.below {
				return false
			}
			more = upTo(e.cookie) && l.emit(name, e)
			return more
		})
		if err != nil {
			return false, l.t.errno("read directory", err)
		}
		if !more {
			return false, l.err
		}
	}
	return upTo(math.MaxUint64), l.err
}

// emit passes one entry on; false ends the listing.
func (l *listing) emit(name string, e dentry) bool {
	if l.t.hides(l.d.ino, name, e.ino) {
		return true
	}
	de := DirEntry{Name: name, Ino: e.ino, Mode: uint32(e.kind) << 12, Cookie: e.cookie + cookieDotDot}
	if l.plus {
		in, err := l.t.get(e.ino)
		if err != nil {
			l.err = l.t.missingInode(l.d, name, err)
			return false
		}
		de.Attr = in.attr()
		de.Mode = in.mode
	}
	if !l.fn(de) {
		return false
	}
	if l.plus && l.c.Epoch != 0 {
		l.t.inodes.setLookups(e.ino, min(l.t.inodes.lookups(e.ino), mostLookups-1)+1)
	}
	return true
}
