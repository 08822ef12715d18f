package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"holt/db"
	"holt/journal"
)

// reserve is a file that takes up room on the host's disk, so that files can
// be deleted when it is full: the room is given back for that, and taken again
// once there is some.
type reserve struct{ path string }

// reserveSize is enough for the records of some 100,000 deletions and for
// SQLite to note them.
const reserveSize = 16 << 20

func newReserve(dir string) *reserve { return &reserve{filepath.Join(dir, "reserve")} }

// release gives the room back, and says whether there was any.
func (r *reserve) release() bool { return os.Remove(r.path) == nil }

// take makes the file if it is not there, and says whether it is now.
func (r *reserve) take() bool {
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Is(err, fs.ErrExist)
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveSize)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		err = nil // a file system that cannot: then there is no reserve, and no harm
	}
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(r.path)
		return false
	}
	return true
}

// full tells whether an error says that the host's disk is.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || db.IsFull(err)
}

// append writes a record. On a full disk the reserve is for those that free
// room, and for what a mount needs to begin; until it could be taken again
// there is none for others.
func (t *Tree) append(o *op, table, data []byte) (journal.Ref, error) {
	gives := o.gives(t.inodes.m[o.ino])
	if t.short && !gives {
		if !t.reserve.take() {
			return journal.Ref{}, syscall.ENOSPC
		}
		t.short = false
	}
	ref, err := t.journal.Append(t.metaBuf, table, data)
	if gives && full(err) && t.reserve.release() {
		t.short = true
		t.log.Warn("disk is full: the reserve is used for deletions")
		ref, err = t.journal.Append(t.metaBuf, table, data)
	}
	if full(err) || t.short {
		t.tight.Store(true)
		t.wakePacker()
	}
	return ref, err
}

// gives tells whether an operation may use the reserve.
func (o *op) gives(in *inode) bool {
	switch o.kind {
	case opUnlink, opFree, opEnd, opDelXattr, opBegin, opInit, opWriter, opDropCheckpoint:
		return true
	case opPunch:
		return o.n > 0
	case opSetAttr:
		return SetMask(o.mask)&SetSize != 0 && in != nil && o.n < in.size
	}
	return false
}
