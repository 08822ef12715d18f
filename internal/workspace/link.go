package workspace

import "syscall"

// mostLinks is the most names an inode can have.
const mostLinks = 1 << 31

// Readlink returns a symbolic link's target.
func (t *Tree) Readlink(ino Ino) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in, err := t.get(ino)
	if err != nil {
		return "", err
	}
	if in.kind() != syscall.S_IFLNK || in.extra == nil {
		return "", syscall.EINVAL
	}
	target := in.extra.target
	t.inodes.tidy() // which may let go of it
	return target, nil
}

// Link gives ino another name. Through a mount it counts one lookup. One that
// has none may get one too: whether that is so only for what O_TMPFILE made is
// the kernel's to say.
func (t *Tree) Link(c Caller, ino, parent Ino, name string) (Attr, error) {
	if err := validName(name); err != nil {
		return Attr{}, err
	}
	return t.mutateInode(c, func() (*inode, error) {
		in, err := t.get(ino)
		if err != nil {
			return nil, err
		}
		if in.isDir() {
			return nil, syscall.EPERM
		}
		if in.nlink >= mostLinks {
			return nil, syscall.EMLINK
		}
		if _, err := t.room(parent, name); err != nil {
			return nil, err
		}
		if err := t.perform(c, op{kind: opLink, ino: ino, parent: parent, name: name}); err != nil {
			return nil, err
		}
		t.countLookup(c, in)
		return in, nil
	})
}

// Unlink removes a name of anything but a directory.
func (t *Tree) Unlink(c Caller, parent Ino, name string) error {
	return t.unlink(c, parent, name, func(in *inode) error {
		if in.isDir() {
			return syscall.EISDIR
		}
		return nil
	})
}

// Rmdir removes an empty directory.
func (t *Tree) Rmdir(c Caller, parent Ino, name string) error {
	switch name {
	case ".":
		return syscall.EINVAL
	case "..":
		return syscall.ENOTEMPTY
	}
	return t.unlink(c, parent, name, func(in *inode) error {
		if !in.isDir() {
			return syscall.ENOTDIR
		}
		if in.size > 0 {
			return syscall.ENOTEMPTY
		}
		return nil
	})
}

func (t *Tree) unlink(c Caller, parent Ino, name string, allow func(*inode) error) error {
	if err := validName(name); err != nil {
		return err
	}
	return t.mutate(c, func() error {
		d, err := t.getDir(parent)
		if err != nil {
			return err
		}
		e, err := t.entry(d, name)
		if err != nil {
			return err
		}
		in, err := t.get(e.ino)
		if err != nil {
			return t.missingInode(d, name, err)
		}
		if err := allow(in); err != nil {
			return err
		}
		o := op{kind: opUnlink, parent: parent, name: name}
		if t.lastName(in) {
			o.mask = opFlagFree
		}
		return t.perform(c, o)
	})
}

// lastName tells whether taking one name away from in frees it.
func (t *Tree) lastName(in *inode) bool {
	return (in.nlink == 1 || in.isDir()) && t.freeNow(in)
}
