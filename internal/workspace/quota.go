package workspace

import (
	"syscall"

	"holt"
)

// A quota bounds what is stored, as project quotas of other file systems do:
// it counts for root too, holes are free, and statfs shows it. It is not part
// of the content: it lives with whoever opens the workspace, and neither forks
// nor restores carry it. What is over a quota that was lowered stays, can be
// read, overwritten in place, and deleted; it can only not grow.

// SetQuota bounds the workspace from now on; the zero quota is none.
func (w *Workspace) SetQuota(q holt.Quota) {
	t := w.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opt.Quota = q
}

// Quota returns what bounds the workspace.
func (w *Workspace) Quota() holt.Quota {
	t := w.tree
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.opt.Quota
}

// Stored is what a quota counts: bytes, and files with all else that has an inode.
func (w *Workspace) Stored() (bytes, files int64) {
	t := w.tree
	t.mu.RLock()
	defer t.mu.RUnlock()
	return int64(t.count.Allocated), int64(t.count.Inodes)
}

// overQuota returns EDQUOT if o would store more than may be. What o touches
// is loaded.
func (t *Tree) overQuota(o *op, data []byte) error {
	q := t.opt.Quota
	if q.Files > 0 && o.kind == opMake && int64(t.count.Inodes) >= q.Files {
		return syscall.EDQUOT
	}
	if q.Bytes <= 0 || o.kind != opWrite && o.kind != opCopy || o.mask&opFlagTake != 0 {
		return nil
	}
	n := int64(len(data))
	if o.kind == opCopy {
		n = t.covered(o.other, o.from, o.n)
	}
	if free := q.Bytes - int64(t.count.Allocated); n <= free {
		return nil
	} else if span := max(int64(len(data)), o.n); n-t.covered(o.ino, o.off, span) <= max(free, 0) {
		return nil
	}
	return syscall.EDQUOT
}

// covered returns how many bytes of a range are stored.
func (t *memory) covered(ino Ino, off, n int64) (sum int64) {
	in := t.inodes.m[ino]
	if in == nil || in.file == nil {
		return 0
	}
	in.file.each(off, off+n, func(e extent) bool {
		sum += int64(e.cut(off, off+n).n)
		return true
	})
	return sum
}

// bounded makes what df shows no more than the quota.
func (t *Tree) bounded(s StatFS) StatFS {
	q, block := t.opt.Quota, int64(s.BlockSize)
	if q.Bytes > 0 {
		used := (int64(t.count.Allocated) + block - 1) / block
		s.Blocks = uint64(q.Bytes / block)
		s.BlocksFree = uint64(max(0, q.Bytes/block-used))
	}
	if q.Files > 0 {
		s.Files = uint64(q.Files)
		s.FilesFree = uint64(max(0, q.Files-int64(t.count.Inodes)))
	}
	return s
}
