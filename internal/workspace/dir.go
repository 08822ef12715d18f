package workspace

import (
	"cmp"
	"slices"
)

// dentry is a cached directory entry. ino 0 says that the name does not exist,
// whatever the index holds.
type dentry struct {
	ino    Ino
	cookie uint64
	born   uint32
	kind   uint8 // S_IFMT of the inode >> 12
	stage  stage

	indexed  bool // the index may have a row for the name
	replaced bool // the name was another entry's before; the index does not know
}

// dir is the directory part of an inode: the entries that are cached. What is
// in entries counts; a name that is not is looked up in the index, unless
// complete.
type dir struct {
	parent   Ino
	cookie   uint64 // the last one given out
	entries  map[string]dentry
	complete bool
	named    uint8 // length of the name it has; 0: not known, and in the index
	dirty    int   // entries not clean

	// What a mount reads of the directory ends: entries with cookies below
	// readBelow, then those with lower ones than readAgain that replaced another.
	// 0: not known, and no bound.
	readBelow, readAgain uint64

	// order lists cached names by cookie, for ReadDir; nil until the first.
	// Since new cookies are the highest it only grows at the end; a pair whose
	// entry has another cookie is stale.
	order []orderedName
}

type orderedName struct {
	cookie uint64
	name   string
}

func newDir(parent Ino, cookie uint64, complete bool) *dir {
	return &dir{parent: parent, cookie: cookie, complete: complete}
}

// put sets a cached entry.
func (d *dir) put(name string, e dentry) {
	if d.entries == nil {
		d.entries = make(map[string]dentry)
	}
	d.entries[name] = e
	if d.order == nil || e.ino == 0 {
		return
	}
	if n := len(d.order); n > 0 && d.order[n-1].cookie >= e.cookie {
		if i, ok := d.place(e.cookie); !ok || d.order[i].name != name {
			d.order = nil // loaded from the index, or exchanged: sort again when asked
		}
		return
	}
	d.order = append(d.order, orderedName{e.cookie, name})
}

// place finds a cookie in order.
func (d *dir) place(cookie uint64) (int, bool) {
	return slices.BinarySearchFunc(d.order, cookie, func(o orderedName, c uint64) int { return cmp.Compare(o.cookie, c) })
}

// sorted returns the order, made or cleaned when needed.
func (d *dir) sorted() []orderedName {
	if d.order != nil && len(d.order) <= 2*len(d.entries)+64 {
		return d.order
	}
	d.order = make([]orderedName, 0, len(d.entries))
	for name, e := range d.entries {
		if e.ino != 0 {
			d.order = append(d.order, orderedName{e.cookie, name})
		}
	}
	slices.SortFunc(d.order, func(a, b orderedName) int { return cmp.Compare(a.cookie, b.cookie) })
	return d.order
}

// evict drops the clean entries and returns how many.
func (d *dir) evict() int {
	n := len(d.entries) - d.dirty
	if n == 0 {
		return 0
	}
	kept := make(map[string]dentry, d.dirty)
	if d.dirty > 0 {
		for name, e := range d.entries {
			if e.stage != clean {
				kept[name] = e
			}
		}
	}
	d.entries, d.order, d.complete = kept, nil, false
	return n
}
