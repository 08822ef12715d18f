package workspace

// What a guest may make as long as it likes, extended attributes and symlink
// targets, is counted in bytes: cached in inodeCache.values, dirty in batch.bytes.

// xattrCost is what the map takes for an attribute beside its name and value, bytes.
const xattrCost = 128

// held is what an attribute takes, bytes.
func (x *xattr) held(name string) int { return xattrCost + len(name) + len(x.value) }

// countValues counts n bytes (less, if negative) of an inode's extra. What comes to
// an inode that is dirty may stay until the next flush.
func (t *memory) countValues(in *inode, n int) {
	in.extra.held += n
	t.inodes.values += n
	if n > 0 && in.stage != clean {
		t.batch.bytes += n
	}
}

// setTarget makes a new inode a symlink's.
func (t *memory) setTarget(in *inode, target []byte) {
	in.extra = &extra{target: string(target)}
	t.countValues(in, len(target))
}
