package workspace

import "syscall"

// Mknod makes a file, fifo, socket or device node; mode holds the type bits.
// Through a mount the new inode counts one lookup, as with the other makers.
func (t *Tree) Mknod(c Caller, parent Ino, name string, mode, rdev uint32) (Attr, error) {
	switch mode & syscall.S_IFMT {
	case 0:
		mode |= syscall.S_IFREG
	case syscall.S_IFREG, syscall.S_IFIFO, syscall.S_IFSOCK, syscall.S_IFCHR, syscall.S_IFBLK:
	default:
		return Attr{}, syscall.EINVAL
	}
	return t.make(c, parent, name, mode, rdev, "")
}

// Create makes a regular file; EEXIST if the name exists.
func (t *Tree) Create(c Caller, parent Ino, name string, mode uint32) (Attr, error) {
	return t.make(c, parent, name, syscall.S_IFREG|mode&07777, 0, "")
}

// Mkdir makes a directory.
func (t *Tree) Mkdir(c Caller, parent Ino, name string, mode uint32) (Attr, error) {
	return t.make(c, parent, name, syscall.S_IFDIR|mode&07777, 0, "")
}

// Symlink makes a symbolic link to target.
func (t *Tree) Symlink(c Caller, parent Ino, name, target string) (Attr, error) {
	const pathMax = 4096
	if target == "" {
		return Attr{}, syscall.ENOENT
	}
	if len(target) >= pathMax {
		return Attr{}, syscall.ENAMETOOLONG
	}
	return t.make(c, parent, name, syscall.S_IFLNK|0777, 0, target)
}

// make gives a new inode a name. In a directory with the set-group-id bit it
// gets the directory's group, and a directory the bit too. See also Tree.inherit.
func (t *Tree) make(c Caller, parent Ino, name string, mode, rdev uint32, target string) (Attr, error) {
	if err := validName(name); err != nil {
		return Attr{}, err
	}
	return t.mutateInode(c, func() (*inode, error) {
		d, err := t.room(parent, name)
		if err != nil {
			return nil, err
		}
		if mode&syscall.S_IFMT == syscall.S_IFDIR {
			if err := t.allowPath(nil, d, name); err != nil {
				return nil, err
			}
		}
		o := op{kind: opMake, parent: parent, name: name, mode: mode, rdev: rdev}
		if target != "" {
			o.blob = []byte(target)
		}
		return t.makeIn(c, d, o)
	})
}

// makeIn commits o, which makes an inode of the caller's in or near directory d.
func (t *Tree) makeIn(c Caller, d *inode, o op) (*inode, error) {
	o.ino, o.uid, o.gid = Ino(t.count.NextIno), c.UID, c.GID
	if err := t.inherit(&o, d, c); err != nil {
		return nil, err
	}
	if d.mode&syscall.S_ISGID != 0 {
		o.gid = d.gid
		if o.mode&syscall.S_IFMT == syscall.S_IFDIR {
			o.mode |= syscall.S_ISGID
		}
	}
	if err := t.perform(c, o); err != nil {
		return nil, err
	}
	in := t.inodes.m[o.ino]
	t.countLookup(c, in)
	return in, nil
}

// Tmpfile makes a regular file without a name (O_TMPFILE), with the group that
// it would have in directory parent. [Tree.Link] can give it one; else it goes
// when the caller's mount forgets it. Only mounts can hold such a file: others
// get EOPNOTSUPP.
func (t *Tree) Tmpfile(c Caller, parent Ino, mode uint32) (Attr, error) {
	return t.mutateInode(c, func() (*inode, error) {
		if c.Epoch == 0 {
			return nil, syscall.EOPNOTSUPP
		}
		d, err := t.getDir(parent)
		if err != nil {
			return nil, err
		}
		if d.nlink == 0 {
			return nil, syscall.ENOENT
		}
		return t.makeIn(c, d, op{kind: opMake, mode: syscall.S_IFREG | mode&07777})
	})
}

// room returns a directory that can take a new name.
func (t *Tree) room(parent Ino, name string) (*inode, error) {
	d, err := t.getDir(parent)
	if err != nil {
		return nil, err
	}
	if d.nlink == 0 {
		return nil, syscall.ENOENT // removed, but somebody's working directory
	}
	_, err = t.entry(d, name)
	if err == nil {
		return nil, syscall.EEXIST
	}
	if err != syscall.ENOENT {
		return nil, err
	}
	return d, nil
}
