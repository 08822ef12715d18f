package workspace

// inodeCache holds inodes by number, with a clock over them, and bounds what they hold.
type inodeCache struct {
	m      map[Ino]*inode
	ring   []*inode
	hand   int
	counts map[Ino]uint32 // lookups of inodes that were evicted

	entries int // cached directory entries
	extents int // loaded extents
	values  int // bytes of cached xattrs and symlink targets

	mostInodes, mostEntries, mostExtents, mostValues int
	inodesMark, entriesMark, extentsMark, valuesMark mark
}

func newInodeCache(opt Options) inodeCache {
	return inodeCache{m: map[Ino]*inode{}, counts: map[Ino]uint32{},
		mostInodes: opt.CacheInodes, mostEntries: opt.CacheEntries, mostExtents: opt.CacheExtents, mostValues: opt.CacheValues}
}

func (c *inodeCache) add(in *inode) {
	if n, ok := c.counts[in.ino]; ok {
		in.lookups.Store(n)
		delete(c.counts, in.ino)
	}
	c.m[in.ino] = in
	in.slot = uint32(len(c.ring))
	c.ring = append(c.ring, in)
}

// evict drops clean inodes that were not used since the clock last passed,
// until only most are left or it went round twice. A directory goes only
// without cached entries: the pages of a directory go first.
func (c *inodeCache) evict(most int) {
	for steps := 2 * len(c.ring); len(c.ring) > most && steps > 0; steps-- {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		in := c.ring[c.hand]
		if in.stage != clean || in.ino == Root || in.used.Swap(false) || in.dir != nil && len(in.dir.entries) > 0 {
			c.hand++
			continue
		}
		c.dropCached(in)
		c.evicted(in)
	}
}

// evicted takes out an inode that the index has, and keeps its lookups.
func (c *inodeCache) evicted(in *inode) {
	if n := in.lookups.Load(); n > 0 && !in.freed {
		c.counts[in.ino] = n
	}
	c.drop(in)
}

// drop takes an inode out.
func (c *inodeCache) drop(in *inode) {
	delete(c.m, in.ino)
	last := len(c.ring) - 1
	moved := c.ring[last]
	c.ring[in.slot], moved.slot = moved, in.slot
	c.ring[last] = nil
	c.ring = c.ring[:last]
}

// tidy keeps the caches within their bounds. It runs at the end of an
// operation, when nothing is being looked at.
func (c *inodeCache) tidy() {
	if m := c.mostInodes; c.inodesMark.over(len(c.ring), m) {
		c.tidyDirs(c.mostEntries / 2) // a directory goes only without entries
		c.evict(m)
		c.inodesMark.set(len(c.ring), m)
	}
	if m := c.mostEntries; c.entriesMark.over(c.entries, m) {
		c.tidyDirs(m)
		c.entriesMark.set(c.entries, m)
	}
	if m := c.mostExtents; c.extentsMark.over(c.extents, m) {
		c.tidyExtents()
		c.extentsMark.set(c.extents, m)
	}
	if m := c.mostValues; c.valuesMark.over(c.values, m) {
		c.tidyValues()
		c.valuesMark.set(c.values, m)
	}
}

// tidyAgain is tidy once dirty values have become clean.
func (c *inodeCache) tidyAgain() {
	c.inodesMark, c.entriesMark, c.extentsMark, c.valuesMark = 0, 0, 0, 0
	c.tidy()
}

// mark is the size at which a cache is looked through again. What is dirty
// cannot go, so without it a cache full of dirty values would be looked
// through by every operation.
type mark int

func (m mark) over(n, most int) bool { return n > max(int(m), most+most/16) }
func (m *mark) set(n, most int)      { *m = mark(n + most/16 + 1) }

// tidyDirs drops clean directory entries until about most are left, those of
// directories that were not used lately first.
func (c *inodeCache) tidyDirs(most int) {
	for _, all := range []bool{false, true} {
		for _, in := range c.ring {
			if c.entries <= most {
				return
			}
			if in.dir != nil && (all || !in.used.Load()) {
				c.entries -= in.dir.evict()
			}
		}
	}
}

// tidyExtents forgets the extents of clean files, until half is left.
func (c *inodeCache) tidyExtents() {
	for _, in := range c.ring {
		if c.extents <= c.mostExtents/2 {
			return
		}
		if in.stage == clean {
			c.dropExtents(in)
		}
	}
}

// dropExtents forgets the extents of a file that is clean, or gone.
func (c *inodeCache) dropExtents(in *inode) {
	if in.file != nil {
		c.extents -= in.file.count()
		in.file = nil
	}
}

// tidyValues forgets extended attributes that the index has, and evicts clean
// symlinks, those that were not used since it last ran first, until half of
// what may be is left.
func (c *inodeCache) tidyValues() {
	for range 2 {
		ring := c.ring // from the end: an evicted inode's place is taken by the last
		for i := len(ring) - 1; i >= 0 && c.values > c.mostValues/2; i-- {
			if in := ring[i]; in.extra != nil && !in.used.Swap(false) {
				c.dropValues(in)
			}
		}
	}
}

// dropValues lets go of what of in's extra is clean.
func (c *inodeCache) dropValues(in *inode) {
	if in.extra.target != "" && in.stage == clean {
		c.dropCached(in)
		c.evicted(in)
		return
	}
	for _, x := range in.extra.xattrs {
		if x.stage != clean {
			return // they are there together or not at all
		}
	}
	for name, x := range in.extra.xattrs {
		in.extra.held -= x.held(name)
		c.values -= x.held(name)
	}
	if in.extra.xattrs = nil; in.extra.target == "" {
		in.extra = nil
	}
}

// dropCached forgets what is counted of an inode that leaves the cache.
func (c *inodeCache) dropCached(in *inode) {
	c.dropExtents(in)
	if in.extra != nil {
		c.values -= in.extra.held
		in.extra = nil
	}
}
