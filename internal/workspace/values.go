package workspace

// What a guest may make as long as it likes, extended attributes and symlink
// targets, is counted in bytes: cached in Tree.values, dirty in batch.bytes.

// xattrCost is what the map takes for an attribute beside its name and value, bytes.
const xattrCost = 128

// held is what an attribute takes, bytes.
func (x *xattr) held(name string) int { return xattrCost + len(name) + len(x.value) }

// hoard counts n bytes (less, if negative) of an inode's extra. What comes to
// an inode that is dirty may stay until the next flush.
func (t *memory) hoard(in *inode, n int) {
	in.extra.held += n
	t.values += n
	if n > 0 && in.stage != clean {
		t.batch.bytes += n
	}
}

// setTarget makes a new inode a symlink's.
func (t *memory) setTarget(in *inode, target []byte) {
	in.extra = &extra{target: string(target)}
	t.hoard(in, len(target))
}

// tidyValues forgets extended attributes that the index has, and evicts clean
// symlinks, those that were not used since it last ran first, until half of
// what may be is left.
func (t *memory) tidyValues() {
	for range 2 {
		ring := t.inodes.ring // from the end: an evicted inode's place is taken by the last
		for i := len(ring) - 1; i >= 0 && t.values > t.opt.CacheValues/2; i-- {
			if in := ring[i]; in.extra != nil && !in.used.Swap(false) {
				t.dropValues(in)
			}
		}
	}
}

// dropValues lets go of what of in's extra is clean.
func (t *memory) dropValues(in *inode) {
	if in.extra.target != "" && in.stage == clean {
		t.dropCached(in)
		t.inodes.evicted(in)
		return
	}
	for _, x := range in.extra.xattrs {
		if x.stage != clean {
			return // they are there together or not at all
		}
	}
	for name, x := range in.extra.xattrs {
		t.hoard(in, -x.held(name))
	}
	if in.extra.xattrs = nil; in.extra.target == "" {
		in.extra = nil
	}
}

// dropCached forgets what is counted of an inode that leaves the cache.
func (t *memory) dropCached(in *inode) {
	t.dropExtents(in)
	if in.extra != nil {
		t.values -= in.extra.held
		in.extra = nil
	}
}
