package workspace

import "syscall"

// Rename moves a name, with the flags of renameat2(2).
func (t *Tree) Rename(c Caller, oldParent Ino, oldName string, newParent Ino, newName string, flags uint32) error {
	if flags&^(RenameNoReplace|RenameExchange) != 0 || flags == RenameNoReplace|RenameExchange {
		return syscall.EINVAL
	}
	for _, name := range []string{oldName, newName} {
		if err := validName(name); err != nil {
			return err
		}
	}
	return t.mutate(c, func() error {
		from, err := t.getDir(oldParent)
		if err != nil {
			return err
		}
		to, err := t.getDir(newParent)
		if err != nil {
			return err
		}
		in, err := t.victim(from, oldName)
		if err != nil {
			return err
		}
		if in == nil || to.nlink == 0 {
			return syscall.ENOENT
		}
		victim, err := t.victim(to, newName)
		if err != nil {
			return err
		}
		if err := t.allowRename(from, to, in, victim, flags); err != nil {
			return err
		}
		if in == victim {
			return nil // two names of one inode, or one name: nothing happens (rename(2))
		}
		if err := t.allowPaths(from, to, in, victim, oldName, newName, flags); err != nil {
			return err
		}
		o := op{kind: opRename, parent: oldParent, name: oldName, other: newParent, name2: newName, mask: flags}
		if victim != nil && flags&RenameExchange == 0 && t.lastName(victim) {
			o.mask |= opFlagFree
		}
		return t.perform(c, o)
	})
}

func (t *Tree) allowRename(from, to, in, victim *inode, flags uint32) error {
	exchange := flags&RenameExchange != 0
	switch {
	case exchange && victim == nil:
		return syscall.ENOENT
	case flags&RenameNoReplace != 0 && victim != nil:
		return syscall.EEXIST
	}
	if in.isDir() {
		if err := t.outside(to, in); err != nil {
			return err
		}
	}
	if victim == nil || victim == in {
		return nil
	}
	if exchange {
		if victim.isDir() {
			return t.outside(from, victim)
		}
		return nil
	}
	switch {
	case in.isDir() && !victim.isDir():
		return syscall.ENOTDIR
	case !in.isDir() && victim.isDir():
		return syscall.EISDIR
	case victim.isDir() && victim.size > 0:
		return syscall.ENOTEMPTY
	}
	return nil
}

// allowPaths refuses paths that would be too long, as [Tree.allowPath] does.
func (t *Tree) allowPaths(from, to, in, victim *inode, oldName, newName string, flags uint32) error {
	if in.isDir() {
		if err := t.allowPath(in, to, newName); err != nil {
			return err
		}
	}
	if flags&RenameExchange != 0 && victim.isDir() {
		return t.allowPath(victim, from, oldName)
	}
	return nil
}

// outside refuses a directory that would move into itself: EINVAL if d is in
// or below it.
func (t *Tree) outside(d, in *inode) error {
	for d != in {
		if d.ino == Root {
			return nil
		}
		up, err := t.getDir(d.dir.parent)
		if err != nil {
			return err
		}
		d = up
	}
	return syscall.EINVAL
}
