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

// getXattrs returns an inode with all its attributes loaded.
func (t *Tree) getXattrs(ino Ino) (*inode, error) {
	in, err := t.get(ino)
	if err != nil {
		return nil, err
	}
	if in.extra == nil {
		in.extra = &extra{}
	}
	if in.extra.xattrs == nil {
		m := map[string]xattr{}
		if in.indexed {
			if m, err = t.index.xattrs(ino); err != nil {
				return nil, t.errno("read xattrs", err)
			}
		}
		in.extra.xattrs = m
	}
	return in, nil
}

// GetXattr returns the value; ENODATA if there is none.
func (t *Tree) GetXattr(ino Ino, name string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in, err := t.getXattrs(ino)
	if err != nil {
		return nil, err
	}
	t.tidy()
	if x, ok := in.extra.xattrs[name]; ok && !x.gone {
		return slices.Clone(x.value), nil
	}
	return nil, syscall.ENODATA
}

// ListXattr returns the names, sorted.
func (t *Tree) ListXattr(ino Ino) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in, err := t.getXattrs(ino)
	if err != nil {
		return nil, err
	}
	t.tidy()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(in.extra.xattrs)) {
		if !in.extra.xattrs[name].gone {
			names = append(names, name)
		}
	}
	return names, nil
}

// SetXattr sets an extended attribute.
func (t *Tree) SetXattr(c Caller, ino Ino, name string, value []byte, flags uint32) error {
	if flags&^(XattrCreate|XattrReplace) != 0 || flags == XattrCreate|XattrReplace || name == "" {
		return syscall.EINVAL
	}
	if len(name) > xattrNameMax {
		return syscall.ERANGE
	}
	if len(value) > xattrSizeMax {
		return syscall.E2BIG
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
	return t.changeXattr(c, ino, opDelXattr, name, nil, func(all map[string]xattr) error {
		if x, ok := all[name]; !ok || x.gone {
			return syscall.ENODATA
		}
		return nil
	})
}

func (t *Tree) changeXattr(c Caller, ino Ino, kind opKind, name string, value []byte, allow func(map[string]xattr) error) error {
	done, err := t.enter(c)
	if err != nil {
		return err
	}
	defer t.leave()
	if done != nil {
		return nil
	}
	in, err := t.getXattrs(ino)
	if err != nil {
		return err
	}
	if err := allow(in.extra.xattrs); err != nil {
		return err
	}
	o, err := t.record(kind, c)
	if err != nil {
		return err
	}
	o.ino, o.name, o.blob = ino, name, value
	return t.commit(&o, nil, nil)
}

func (t *Tree) applyXattr(o *op) error {
	in, err := t.getXattrs(o.ino)
	if err != nil {
		return err
	}
	x, ok := in.extra.xattrs[o.name]
	if o.kind == opDelXattr && (!ok || x.gone) {
		return fmt.Errorf("%w: no such attribute", errApply)
	}
	t.changed(in, o)
	t.setXattr(in, o.name, xattr{value: slices.Clone(o.blob), born: in.born, gone: o.kind == opDelXattr})
	return nil
}
