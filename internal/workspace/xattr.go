package workspace

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
)

// Limits of extended attributes, as Linux has them (limits.h).
const (
	xattrNameMax = 255
	xattrSizeMax = 64 << 10
	xattrListMax = 64 << 10

	xattrTotal = 1 << 20 // of names and values of one inode: they are loaded together
)

// xattrs returns an inode's attributes, for reading only. Those that never had
// one, nearly all, cost neither memory nor a look at the index: a kernel asks
// each new file for security.capability.
func (t *memory) xattrs(in *inode) (map[string]xattr, error) {
	if in.plain {
		return nil, nil
	}
	if in.extra != nil && in.extra.xattrs != nil {
		return in.extra.xattrs, nil
	}
	m, err := t.index.xattrs(in.ino)
	if err != nil {
		return nil, t.errno("read xattrs", err)
	}
	if len(m) == 0 {
		in.plain = true
		return nil, nil
	}
	if in.extra == nil {
		in.extra = &extra{}
	}
	in.extra.xattrs = m
	for name, x := range m {
		t.countValues(in, x.held(name))
	}
	return m, nil
}

// getXattrs is xattrs by number.
func (t *memory) getXattrs(ino Ino) (map[string]xattr, error) {
	in, err := t.get(ino)
	if err != nil {
		return nil, err
	}
	return t.xattrs(in)
}

// isPlain tells whether it is known, without a look at the index, that an
// inode has no attributes.
func (t *Tree) isPlain(ino Ino) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	in := t.inodes.m[ino]
	return in != nil && in.plain && !in.freed
}

// GetXattr returns the value; ENODATA if there is none.
func (t *Tree) GetXattr(ino Ino, name string) ([]byte, error) {
	if t.isPlain(ino) {
		return nil, syscall.ENODATA
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	in, err := t.get(ino)
	if err != nil {
		return nil, err
	}
	all, err := t.xattrs(in)
	if err != nil {
		return nil, err
	}
	t.inodes.tidy()
	if x, ok := all[name]; ok && !x.gone {
		return shownACL(name, x.value, in.mode), nil
	}
	return nil, syscall.ENODATA
}

// ListXattr returns the names, sorted.
func (t *Tree) ListXattr(ino Ino) ([]string, error) {
	if t.isPlain(ino) {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all, err := t.getXattrs(ino)
	if err != nil {
		return nil, err
	}
	t.inodes.tidy()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !all[name].gone {
			names = append(names, name)
		}
	}
	return names, nil
}

// SetXattr sets an extended attribute. A POSIX ACL (system.posix_acl_access,
// system.posix_acl_default) must be a valid one: EINVAL.
func (t *Tree) SetXattr(c Caller, ino Ino, name string, value []byte, flags uint32) error {
	if flags&^(XattrCreate|XattrReplace|XattrKillSetGID) != 0 || flags == XattrCreate|XattrReplace || name == "" {
		return syscall.EINVAL
	}
	if len(name) > xattrNameMax {
		return syscall.ERANGE
	}
	if len(value) > xattrSizeMax {
		return syscall.E2BIG
	}
	if IsACL(name) {
		return t.setACL(c, ino, name, value, flags)
	}
	return t.changeXattr(c, ino, opSetXattr, name, value, func(all map[string]xattr) error {
		x, ok := all[name]
		exists := ok && !x.gone
		if exists && flags == XattrCreate {
			return syscall.EEXIST
		}
		if !exists && flags == XattrReplace {
			return syscall.ENODATA
		}
		list, total := len(name)+1, len(value)
		for n, x := range all {
			if n != name && !x.gone {
				list += len(n) + 1
				total += len(x.value)
			}
		}
		if list > xattrListMax || list+total > xattrTotal {
			return syscall.ENOSPC
		}
		return nil
	})
}

// RemoveXattr removes one; ENODATA if there is none.
func (t *Tree) RemoveXattr(c Caller, ino Ino, name string) error {
	if IsACL(name) {
		return t.removeACL(c, ino, name)
	}
	return t.changeXattr(c, ino, opDelXattr, name, nil, func(all map[string]xattr) error {
		if x, ok := all[name]; !ok || x.gone {
			return syscall.ENODATA
		}
		return nil
	})
}

func (t *Tree) changeXattr(c Caller, ino Ino, kind opKind, name string, value []byte, allow func(map[string]xattr) error) error {
	return t.mutate(c, func() error {
		all, err := t.getXattrs(ino)
		if err != nil {
			return err
		}
		if err := allow(all); err != nil {
			return err
		}
		return t.perform(c, op{kind: kind, ino: ino, name: name, blob: value})
	})
}

func (t *memory) applyXattr(o *op) error {
	in, err := t.get(o.ino)
	if err != nil {
		return err
	}
	all, err := t.xattrs(in)
	if err != nil {
		return err
	}
	x, ok := all[o.name]
	if o.kind == opDelXattr && (!ok || x.gone) {
		return fmt.Errorf("%w: no such attribute", errApply)
	}
	t.alter(in, o)
	if o.mask&uint32(SetMode) != 0 { // of an ACL
		in.mode = in.kind() | o.mode&07777
	}
	t.setXattr(in, o.name, xattr{value: slices.Clone(o.blob), born: in.born, gone: o.kind == opDelXattr})
	return nil
}
