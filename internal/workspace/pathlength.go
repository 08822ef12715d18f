package workspace

import "syscall"

// mostPath is the longest path of a directory, from the top, in bytes: whatever
// directory can be named in one call (PATH_MAX without its NUL, 4,095), and below
// it whatever can be named from there. ext4 has no bound; here the index holds
// each directory's path, so that without one a chain of n directories would take
// room, and its renaming time, by the square of n.
//
// A restore, an undo or a merge puts together paths of two states, and may go
// beyond it.
const mostPath = 4095 + 1 + 4095

// pathLength returns the length of a directory's path; 0 is the top's.
func (t *memory) pathLength(d *inode) (n int, err error) {
	for d.ino != Root {
		if d.dir.named == 0 {
			name, err := t.index.nameLength(d.ino)
			if err != nil {
				return 0, t.errno("read entry", err)
			}
			d.dir.named = uint8(name)
		}
		n += 1 + int(d.dir.named)
		if d, err = t.getDir(d.dir.parent); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// allowPath refuses a name for a directory, ENAMETOOLONG, if its path or one
// below it would be too long; in is nil for a new directory.
//
// What is below a directory that moves is not looked at, but bounded: no path
// of the workspace is longer than memory.longest.
func (t *Tree) allowPath(in, to *inode, name string) error {
	n, err := t.pathLength(to)
	if err != nil {
		return err
	}
	n += 1 + len(name)
	if n > mostPath {
		return syscall.ENAMETOOLONG
	}
	grows := 0
	if in != nil && in.nlink > 2 { // it has directories
		was, err := t.pathLength(in)
		if err != nil {
			return err
		}
		grows = max(0, n-was)
	}
	if grows > 0 && (t.longest == 0 || t.longest+grows > mostPath) {
		if t.longest, err = t.longestPath(); err != nil {
			return err
		}
		if t.longest+grows > mostPath {
			return syscall.ENAMETOOLONG
		}
	}
	t.grown += int64(grows)
	if t.longest > 0 || grows > 0 {
		t.longest = max(t.longest+grows, n)
	}
	return nil
}

// longestPath returns a length that no directory's path exceeds: what the index
// has, lengthened by all that grew since, and what is not in it yet.
func (t *Tree) longestPath() (int, error) {
	longest, err := t.index.longestPath()
	if err != nil {
		return 0, t.errno("read paths", err)
	}
	longest += int(t.grown - t.grownStored)
	var fresh []*inode // looking for their parents may add to the cache
	for _, in := range t.inodes.m {
		if in.isDir() && in.stage != clean && in.nlink > 0 && !in.freed {
			fresh = append(fresh, in)
		}
	}
	for _, in := range fresh {
		n, err := t.pathLength(in)
		if err != nil {
			return 0, err
		}
		longest = max(longest, n)
	}
	return longest, nil
}
