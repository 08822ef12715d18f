package workspace

import (
	"encoding/binary"
	"math"
	"slices"
	"syscall"
)

// The extended attributes that hold POSIX ACLs. The value is the kernel's
// (linux/posix_acl_xattr.h): version u32, then for each entry tag u16, perm
// u16, id u32, little-endian.
//
// What an access ACL says of the owner, of others and of the mask is what the
// permission bits of the mode say. Only the mode has it: those entries are
// stored as zero and filled in when the attribute is read. So a chmod, an undo
// or a merge, which know nothing of ACLs, cannot make the two disagree. An ACL
// that says no more than the mode is not stored.
const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default" // of a directory: what new names in it get

	aclVersion   = 2
	aclHeader    = 4
	aclEntrySize = 8
	aclMost      = 4096 // bytes; a kernel reads one page
)

// Tags of entries, in the order in which they stand.
const (
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

// XattrKillSetGID is a flag of SetXattr: an access ACL also clears the
// set-group-id bit, because its caller is not in the file's group.
const XattrKillSetGID uint32 = 1 << 31

type aclEntry struct {
	tag  uint16
	perm uint16
	id   uint32
}

// acl is a valid ACL.
type acl []aclEntry

// parseACL decodes an ACL and checks what the kernel's posix_acl_valid checks:
// the order of the entries, one of each that must be there, a mask if a user or
// a group is named. It returns EINVAL, E2BIG beyond aclMost, EOPNOTSUPP for
// another version.
func parseACL(b []byte) (acl, error) {
	switch {
	case len(b) > aclMost:
		return nil, syscall.E2BIG
	case len(b) < aclHeader || (len(b)-aclHeader)%aclEntrySize != 0:
		return nil, syscall.EINVAL
	case binary.LittleEndian.Uint32(b) != aclVersion:
		return nil, syscall.EOPNOTSUPP
	}
	var a acl
	var count [aclOther + 1]int
	for b := b[aclHeader:]; len(b) > 0; b = b[aclEntrySize:] {
		e := aclEntry{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])}
		named := e.tag == aclUser || e.tag == aclGroup
		switch e.tag {
		case aclUserObj, aclUser, aclGroupObj, aclGroup, aclMask, aclOther:
		default:
			return nil, syscall.EINVAL
		}
		if e.perm > 7 || named && e.id == math.MaxUint32 || len(a) > 0 && e.tag < a[len(a)-1].tag {
			return nil, syscall.EINVAL
		}
		if !named {
			e.id = math.MaxUint32 // it has no meaning
		}
		count[e.tag]++
		a = append(a, e)
	}
	if count[aclUserObj] != 1 || count[aclGroupObj] != 1 || count[aclOther] != 1 || count[aclMask] > 1 ||
		count[aclUser]+count[aclGroup] > 0 && count[aclMask] == 0 {
		return nil, syscall.EINVAL
	}
	return a, nil
}

func (a acl) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, aclHeader+len(a)*aclEntrySize), aclVersion)
	for _, e := range a {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// class returns how far an entry's permissions are shifted in a mode; false for
// one that the mode does not have. With a mask the group's bits are the mask's.
func (a acl) class(tag uint16) (shift int, ok bool) {
	switch tag {
	case aclUserObj:
		return 6, true
	case aclOther:
		return 0, true
	case aclMask:
		return 3, true
	case aclGroupObj:
		return 3, !a.masked()
	}
	return 0, false
}

func (a acl) masked() bool {
	return slices.ContainsFunc(a, func(e aclEntry) bool { return e.tag == aclMask })
}

// mode returns the permission bits that an access ACL stands for.
func (a acl) mode() (mode uint32) {
	for _, e := range a {
		if shift, ok := a.class(e.tag); ok {
			mode |= uint32(e.perm) << shift
		}
	}
	return mode
}

// with returns an ACL with the permissions that a mode has.
func (a acl) with(mode uint32) acl {
	a = slices.Clone(a)
	for i, e := range a {
		if shift, ok := a.class(e.tag); ok {
			a[i].perm = uint16(mode >> shift & 7)
		}
	}
	return a
}

// stored returns what is kept of an access ACL; nil if the mode says it all.
func (a acl) stored() []byte {
	if !a.masked() {
		return nil
	}
	return a.with(0).encode()
}

// shownACL returns the value of an attribute as it is read: the stored one, and
// for an access ACL what the mode says.
func shownACL(name string, value []byte, mode uint32) []byte {
	if name != aclAccess {
		return slices.Clone(value)
	}
	a, err := parseACL(value)
	if err != nil {
		return slices.Clone(value)
	}
	return a.with(mode).encode()
}

// IsACL tells whether an extended attribute is a POSIX ACL.
func IsACL(name string) bool { return name == aclAccess || name == aclDefault }

// inherit gives a new inode what directory d's default ACL says. Without one
// the caller's umask counts, as in posix_acl_create of the kernel.
func (t *Tree) inherit(o *op, d *inode, c Caller) error {
	if o.mode&syscall.S_IFMT == syscall.S_IFLNK {
		return nil
	}
	all, err := t.xattrs(d)
	if err != nil {
		return err
	}
	x, ok := all[aclDefault]
	if !ok || x.gone {
		o.mode &^= c.Umask & 0777
		return nil
	}
	a, err := parseACL(x.value)
	if err != nil {
		return syscall.EIO
	}
	mode := o.mode & a.mode() & 0777
	o.mode = o.mode&^0777 | mode
	o.blob = a.stored()
	if o.mode&syscall.S_IFMT == syscall.S_IFDIR {
		o.blob2 = slices.Clone(x.value)
	}
	return nil
}

// inherited gives a new inode the ACLs that its record has.
func (t *memory) inherited(in *inode, o *op) {
	if in.kind() == syscall.S_IFLNK {
		return // the blob is its target
	}
	if len(o.blob) > 0 {
		t.setXattr(in, aclAccess, xattr{value: slices.Clone(o.blob), born: in.born})
	}
	if len(o.blob2) > 0 {
		t.setXattr(in, aclDefault, xattr{value: slices.Clone(o.blob2), born: in.born})
	}
}

// setACL sets an ACL, as ext4 does.
func (t *Tree) setACL(c Caller, ino Ino, name string, value []byte, flags uint32) error {
	a, err := parseACL(value)
	if err != nil {
		return err
	}
	return t.changeACL(c, ino, name, func(o *op, in *inode, had bool) error {
		switch {
		case in.kind() == syscall.S_IFLNK:
			return syscall.EOPNOTSUPP
		case name == aclDefault && !in.isDir():
			return syscall.EACCES
		case name == aclDefault:
			o.kind, o.blob = opSetXattr, a.encode()
			return nil
		}
		o.mask, o.mode = uint32(SetMode), in.mode&07000|a.mode()
		if flags&XattrKillSetGID != 0 {
			o.mode &^= syscall.S_ISGID
		}
		if o.blob = a.stored(); o.blob != nil {
			o.kind = opSetXattr
		} else if had {
			o.kind = opDelXattr
		}
		return nil
	})
}

// removeACL removes an ACL. One that is not there is no error: an access ACL
// always is, as the mode.
func (t *Tree) removeACL(c Caller, ino Ino, name string) error {
	return t.changeACL(c, ino, name, func(o *op, _ *inode, had bool) error {
		if had {
			o.kind = opDelXattr
		}
		return nil
	})
}

// changeACL appends the record that decide makes of one that changes no more
// than the time of the inode; had tells whether there is such an ACL.
func (t *Tree) changeACL(c Caller, ino Ino, name string, decide func(o *op, in *inode, had bool) error) error {
	return t.mutate(c, func() error {
		in, err := t.get(ino)
		if err != nil {
			return err
		}
		all, err := t.xattrs(in)
		if err != nil {
			return err
		}
		x, had := all[name]
		o := op{kind: opSetAttr, ino: ino}
		if err := decide(&o, in, had && !x.gone); err != nil {
			return err
		}
		if o.kind != opSetAttr {
			o.name = name
		}
		return t.perform(c, o)
	})
}
