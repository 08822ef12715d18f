package workspace

import (
	"hash/maphash"
	"syscall"
)

// resize returns content with a new size.
func resize(content []byte, size int64) []byte {
	b := make([]byte, size)
	copy(b, content)
	return b
}

// put changes bytes of a file, extending it.
func (n *modelNode) put(k *call, off int64, data []byte, size int64) {
	n.killPriv(k.c, k.c.UID != 0)
	n.content = resize(n.content, max(n.Size, size))
	copy(n.content[min(off, int64(len(n.content))):], data)
	n.Size = int64(len(n.content))
	n.stamp(k.now)
}

func (m *model) write(k *call) (int64, error) {
	n, err := m.file(k.ino)
	if err != nil || len(k.data) == 0 {
		return 0, err
	}
	n.put(k, k.off, k.data, k.off+int64(len(k.data)))
	return int64(len(k.data)), nil
}

func (m *model) fallocate(k *call) error {
	n, err := m.file(k.ino)
	if err == syscall.EINVAL {
		return syscall.ENODEV
	}
	if err != nil {
		return err
	}
	size := n.Size
	if k.flags&FallocKeepSize == 0 {
		size = max(size, k.off+k.n)
	}
	mode := n.Mode
	if n.killPriv(k.c, k.c.UID != 0); k.flags&(FallocPunchHole|FallocZeroRange) != 0 {
		n.put(k, k.off, make([]byte, max(0, min(k.n, size-k.off))), size)
	} else if size > n.Size || mode != n.Mode {
		n.put(k, 0, nil, size)
	}
	return nil
}

func (m *model) copyRange(k *call) (int64, error) {
	src, err := m.file(k.ino)
	if err != nil {
		return 0, err
	}
	n := min(k.n, src.Size-k.off)
	dst, err := m.file(k.ino2)
	switch {
	case n <= 0:
		return 0, err
	case src == dst && k.off < k.from+n && k.from < k.off+n:
		return 0, syscall.EINVAL
	case err != nil:
		return 0, err
	}
	dst.put(k, k.from, src.content[k.off:k.off+n], k.from+n)
	return n, nil
}

func (m *model) setXattr(k *call) error {
	n := m.nodes[k.ino]
	if n == nil {
		return syscall.ENOENT
	}
	_, ok := n.xattrs[k.name]
	switch {
	case ok && k.flags == XattrCreate:
		return syscall.EEXIST
	case !ok && k.flags == XattrReplace:
		return syscall.ENODATA
	}
	n.xattrs[k.name] = string(k.data)
	n.Ctime = k.now
	return nil
}

func (m *model) delXattr(k *call) error {
	n := m.nodes[k.ino]
	if n == nil {
		return syscall.ENOENT
	}
	if _, ok := n.xattrs[k.name]; !ok {
		return syscall.ENODATA
	}
	delete(n.xattrs, k.name)
	n.Ctime = k.now
	return nil
}

// hasher returns a function that hashes contents and remembers the big ones.
func hasher() func([]byte) uint64 {
	seed, known := maphash.MakeSeed(), map[*byte]uint64{}
	return func(b []byte) uint64 {
		if len(b) < 1<<20 {
			return maphash.Bytes(seed, b)
		}
		if len(known) > 1000 {
			clear(known)
		}
		if _, ok := known[&b[0]]; !ok {
			known[&b[0]] = maphash.Bytes(seed, b)
		}
		return known[&b[0]]
	}
}
