package workspace

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// Reserve is a file that takes up room on a host's disk, so that files can be
// deleted when it is full: the room is given back for that, and taken again
// once there is some. Workspaces of one disk share one, and while it is given
// back none of them stores more.
type Reserve struct {
	path     string
	mu       sync.Mutex  // held while the file is made or removed
	released atomic.Bool // the file is not there
	share    int64       // see reserveShare
}

// reserveSize is enough for the records of some 100,000 deletions and for
// SQLite to note them, in one workspace or in several.
const reserveSize = 16 << 20

// reserveShare is how many bytes of records one workspace may write while the
// reserve is given back, so that no guest takes from the others what they need
// to delete: enough for some 60,000 deletions.
const reserveShare = reserveSize / 4

// NewReserve returns the reserve that is the file at path. The first workspace
// that is opened with it makes the file.
func NewReserve(path string) *Reserve {
	r := &Reserve{path: path, share: reserveShare}
	r.released.Store(true)
	return r
}

// release gives the room back, if there is any, for what has none, and does that
// again: the room is not taken in between.
func (r *Reserve) release(again func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released.Store(true)
	_ = os.Remove(r.path) // or somebody else spent it
	return again()
}

// reclaim makes the file if it is not there, and says whether it is now.
func (r *Reserve) reclaim() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released.Load() {
		r.released.Store(!r.make())
	}
	return !r.released.Load()
}

func (r *Reserve) make() bool {
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
// there is none for others, nor for who has had their share.
func (t *Tree) append(o *op, table, data []byte) (journal.Ref, error) {
	gives := o.freesSpace(t.inodes.m[o.ino])
	if !t.reserve.released.Load() {
		t.reserveUsed = 0
	} else if (!gives || t.reserveUsed >= t.reserve.share) && !t.reserve.reclaim() {
		return journal.Ref{}, syscall.ENOSPC
	}
	ref, err := t.journal.Append(t.metaBuf, table, data)
	if gives && full(err) {
		if !t.reserve.released.Load() {
			t.log.Warn("disk is full: the reserve is used for deletions")
		}
		err = t.reserve.release(func() error { ref, err = t.journal.Append(t.metaBuf, table, data); return err })
	}
	if t.reserveUsed += int64(ref.End - ref.Pos); full(err) || t.reserve.released.Load() {
		t.packer.full.Store(true)
		t.packer.kick()
	}
	return ref, err
}

// freesSpace tells whether an operation may use the reserve. Of one that takes bytes
// away these are loaded: a hole has none.
func (o *op) freesSpace(in *inode) bool {
	switch o.kind {
	case opUnlink, opFree, opEnd, opDelXattr, opBegin, opInit, opWriter, opDropCheckpoint:
		return true
	case opPunch:
		return in != nil && !in.hole(o.off, o.off+o.n)
	case opSetAttr:
		return SetMask(o.mask)&SetSize != 0 && in != nil && !in.hole(o.n, in.size)
	}
	return false
}
