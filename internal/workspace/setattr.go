package workspace

import "syscall"

// setMaskStored are the fields that a record holds.
const setMaskStored = SetMode | SetUID | SetGID | SetSize | SetAtime | SetMtime | SetCtime

// SetAttr changes attributes: chmod, chown, truncate, utimensat. Permission is
// the caller's business. A new owner clears set-id bits of what is not a
// directory, and so does a new size that is not set by root.
func (t *Tree) SetAttr(c Caller, ino Ino, set SetAttrs) (Attr, error) {
	if set.Mask&SetSize != 0 && set.Size < 0 {
		return Attr{}, syscall.EINVAL
	}
	if set.Mask&SetSize != 0 && set.Size > maxSize {
		return Attr{}, syscall.EFBIG
	}
	if set.Mask&SetSize != 0 {
		if err := t.punchAhead(c, ino, set.Size, maxSize); err != nil {
			return Attr{}, err
		}
	}
	return t.mutateInode(c, func() (*inode, error) {
		in, err := t.get(ino)
		if err != nil {
			return nil, err
		}
		if set.Mask&SetSize != 0 {
			// What is cut off must be known.
			if in, err = t.getFile(ino, min(set.Size, in.size), in.size); err != nil {
				return nil, err
			}
		}
		o, err := t.record(opSetAttr, c)
		if err != nil {
			return nil, err
		}
		o.ino = ino
		fillSet(&o, in, set, c)
		return in, t.commit(&o, nil, nil)
	})
}

// fillSet decides what a SetAttr does, so that the record says it all.
func fillSet(o *op, in *inode, set SetAttrs, c Caller) {
	mask := set.Mask
	o.mode, o.uid, o.gid, o.n = set.Mode, set.UID, set.GID, set.Size
	o.atime, o.mtime, o.ctime = set.Atime, set.Mtime, set.Ctime
	if mask&SetAtimeNow != 0 {
		mask, o.atime = mask|SetAtime, o.time
	}
	if mask&SetMtimeNow != 0 || mask&(SetSize|SetMtime) == SetSize {
		mask, o.mtime = mask|SetMtime, o.time
	}
	kills := mask&(SetUID|SetGID) != 0 || mask&SetSize != 0 && c.UID != 0 || mask&SetKillPriv != 0
	if mode, changed := withoutSetID(in, c); kills && changed && mask&SetMode == 0 {
		mask, o.mode = mask|SetMode, mode
	}
	o.mask = uint32(mask & setMaskStored)
	for _, f := range []struct {
		bit SetMask
		v   *uint32
	}{{SetMode, &o.mode}, {SetUID, &o.uid}, {SetGID, &o.gid}} {
		if mask&f.bit == 0 {
			*f.v = 0
		}
	}
	if mask&SetSize == 0 {
		o.n = 0
	}
	if mask&SetAtime == 0 {
		o.atime = 0
	}
	if mask&SetMtime == 0 {
		o.mtime = 0
	}
	if mask&SetCtime == 0 {
		o.ctime = 0
	}
}

// withoutSetID returns a file's permission bits as a write or a change of
// owner leaves them, as setattr_should_drop_suidgid of the kernel has it.
// Set-group-id without group execute is not a privilege, and stays if the
// caller is root or in the group. Of a caller only one group is known: who is in
// it by another of his groups loses the bit.
func withoutSetID(in *inode, c Caller) (mode uint32, changed bool) {
	mode = in.mode & 07777 &^ syscall.S_ISUID
	if mode&syscall.S_IXGRP != 0 || c.UID != 0 && c.GID != in.gid {
		mode &^= syscall.S_ISGID
	}
	return mode, !in.isDir() && mode != in.mode&07777
}
