package workspace

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// Tree is the POSIX side of a workspace: one method per FUSE operation. Errors
// are syscall.Errno. Its exported methods may be called from any number of goroutines.
type Tree struct {
	memory
	dir     string
	journal *journal.Journal

	briefReads chan struct{} // a semaphore of mostGlances
	indexSync  *indexSync    // of a new fork

	// mu guards memory. It is held exclusively from validation until an operation is visible, and while the index is
	// read. Reads of what is cached hold it shared.
	mu       sync.RWMutex
	viewable atomic.Uint64 // checkpoints up to this number are in the index, as View needs them

	reserve     *Reserve
	reserveUsed int64 // bytes of records since it was given back

	direct atomic.Int32 // changes by other ways than a mount that are in progress; see BeginDirectChange

	broken  error // memory and journal no longer agree: nothing is accepted
	metaBuf []byte
	closed  bool

	writing int        // rows of the batch that is being written
	flushed *sync.Cond // on mu: after every attempt to write a batch
	failing error      // the last attempt failed

	collected uint32 // the newest segment when dead segments were last looked for

	mergeSemaphore chan struct{} // a semaphore of one: a merge reads or changes this workspace; before all locks
	flushMu        sync.Mutex    // one batch is written at a time; before mu
	held           int           // forks and merges in progress: no segment is unlinked meanwhile; guarded by flushMu
	wake           chan struct{} // to the flusher, capacity 1

	packer packer
}

// memory is what the records of the journal made, up to its end: a cache over the index, and the changes that the index
// does not have yet. [memory.apply] is the only code that changes it. It knows neither the journal nor any lock: what
// apply does depends on nothing but this state and the record. Its methods need Tree.mu, held exclusively.
type memory struct {
	opt   Options
	log   *slog.Logger
	index *index
	// write makes the index say exactly what memory does; see Tree.flushHeld. Two rare records need that.
	write func() error

	inodes      inodeCache
	orphans     map[Ino]struct{} // inodes without a name that are kept
	epochs      map[Epoch]*epoch
	writers     map[Writer]uint32
	skew        atomic.Int64      // ns from the host's clock to that of the guest that has it mounted; 0: no guest has
	version     map[uint32]uint32 // of this generation, by writer
	count       counters
	checkpoints checkpointList
	lineage     []Ancestor // the last is this one
	longest     int        // no directory's path is longer; 0: not known
	grown       int64      // by how much renames lengthened paths below them, in sum; up to grownStored the index has it
	grownStored int64

	parts   [][]byte  // whose end has not come yet
	partsAt [2]uint64 // count.Last and count.Applied before the first of them

	change         extentChange
	batch          *batch // dirty values since the last cut
	indexedSegment uint32 // the segment that the index ends in
}

// now returns the time of a record that is not a caller's.
func (t *Tree) now() int64 { return t.opt.Now().UnixNano() }

// when returns the file time of a caller's change. A file must never be newer
// than the clock of the machine that looks at it, or make(1) and test -nt go
// wrong there. A guest's clock differs from the host's, so its requests say what
// it was, and changes that the API makes meanwhile are stamped by it too.
func (t *Tree) when(c Caller) int64 {
	now := t.now()
	if c.Time == 0 {
		return now + t.skew.Load()
	}
	t.skew.Store(c.Time - now)
	return c.Time
}

// coarseNow is the clock that kernels take file times from. It is up to a tick
// (1 to 10 ms) behind time.Now, so a file of a workspace is never newer than one
// that is made on the host's disk after it.
func coarseNow() time.Time {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) // every Linux has it
	return time.Unix(ts.Unix())
}

func (t *Tree) fail(point string) error {
	if t.opt.Fail == nil {
		return nil
	}
	return t.opt.Fail(point)
}

// errno logs what a system call cannot say and returns what it can.
func (t *memory) errno(doing string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	e := errnoOf(err)
	t.log.Error("workspace operation failed", "doing", doing, "errno", e.Error(), "error", err)
	return e
}

// get returns an inode, from the cache or the index; ENOENT if there is none.
func (t *memory) get(ino Ino) (*inode, error) {
	if in := t.inodes.m[ino]; in != nil {
		if in.freed {
			return nil, syscall.ENOENT
		}
		in.touch()
		return in, nil
	}
	in, err := t.index.inode(ino)
	if err != nil {
		return nil, t.errno("read inode", err)
	}
	if in == nil {
		return nil, syscall.ENOENT
	}
	t.inodes.add(in)
	if in.extra != nil {
		t.inodes.values += in.extra.held
	}
	in.touch()
	return in, nil
}

// getDir is get for a directory.
func (t *memory) getDir(ino Ino) (*inode, error) {
	in, err := t.get(ino)
	if err == nil && in.dir == nil {
		return nil, syscall.ENOTDIR
	}
	return in, err
}

// getFile is get for a regular file, with the extents of lo..hi.
func (t *memory) getFile(ino Ino, lo, hi int64) (*inode, error) {
	in, err := t.get(ino)
	if err != nil {
		return nil, err
	}
	if in.isDir() {
		return nil, syscall.EISDIR
	}
	if !in.isFile() {
		return nil, syscall.EINVAL
	}
	return in, t.load(in, lo, hi)
}

// load makes sure that the extents of lo..hi are in memory.
func (t *memory) load(in *inode, lo, hi int64) error {
	if in.file == nil {
		// Without bytes there are no rows either; a dirty inode always has its file.
		in.file = &file{complete: in.alloc == 0}
	}
	f := in.file
	if f.loaded(lo, hi) {
		return nil
	}
	first, last := lo/windowSize, (hi-1)/windowSize
	var found []window
	err := t.index.extents(in.ino, first*windowSize, (last+1)*windowSize, func(e extent) bool {
		number := e.off / windowSize
		if len(found) == 0 || found[len(found)-1].number != number {
			found = append(found, window{number: number})
		}
		w := &found[len(found)-1]
		w.extents = append(w.extents, e)
		return true
	})
	if err != nil {
		return t.errno("read extents", err)
	}
	c := t.changing(in)
	for _, w := range found {
		if _, ok := f.find(w.number); !ok {
			f.window(w.number, c).extents = w.extents
			t.inodes.extents += len(w.extents)
		}
	}
	if first == 0 && (last+1)*windowSize >= in.size {
		f.complete = true
	}
	// The holes of a huge range must not cost a window each: what is done to
	// the range now finds all its extents, and later it is looked at again.
	for n := first; n <= last && last-first <= 64 && !f.complete; n++ {
		f.window(n, c)
	}
	return nil
}

// maxSize is the largest file, bytes.
const maxSize = 1 << 60

// entry returns what a directory holds under a name, or ENOENT.
func (t *memory) entry(d *inode, name string) (dentry, error) {
	if e, ok := d.dir.entries[name]; ok {
		if e.ino == 0 {
			return e, syscall.ENOENT
		}
		return e, nil
	}
	if d.dir.complete || d.size == 0 {
		return dentry{}, syscall.ENOENT
	}
	if d.size <= smallDir {
		if err := t.loadDir(d); err != nil {
			return dentry{}, err
		}
		return t.entry(d, name)
	}
	e, err := t.index.entry(d.ino, name)
	if err != nil {
		return dentry{}, t.errno("read entry", err)
	}
	if e.ino == 0 {
		return dentry{}, syscall.ENOENT
	}
	d.dir.put(name, e)
	t.inodes.entries++
	return e, nil
}

// smallDir is the number of entries up to which a directory is loaded whole,
// so that names it has not cost nothing.
const smallDir = 256

// loadDir makes a directory's cache complete.
func (t *memory) loadDir(d *inode) error {
	err := t.index.entries(d.ino, 0, func(name string, e dentry) bool {
		if _, known := d.dir.entries[name]; !known {
			d.dir.put(name, e)
			t.inodes.entries++
		}
		return true
	})
	if err != nil {
		return t.errno("read directory", err)
	}
	d.dir.complete = true
	return nil
}

// validName refuses names that cannot be.
func validName(name string) error {
	switch {
	case len(name) > 255:
		return syscall.ENAMETOOLONG
	case name == "" || name == "." || name == "..":
		return syscall.EINVAL
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return syscall.EINVAL
		}
	}
	return nil
}

// Lookup finds name in parent; "." and ".." too. "." is also known of what is no
// directory, and ESTALE of what has no name: so a kernel finds what a file
// handle stands for. Through a mount it counts one lookup.
func (t *Tree) Lookup(c Caller, parent Ino, name string) (Attr, error) {
	if len(name) > 255 {
		return Attr{}, syscall.ENAMETOOLONG
	}
	if a, ok := t.lookupCached(c, parent, name); ok {
		return a, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if name == "." {
		in, err := t.get(parent)
		if err == nil && in.nlink == 0 {
			err = syscall.ESTALE
		}
		if err != nil {
			return Attr{}, err
		}
		t.countLookup(c, in)
		return in.attr(), nil
	}
	d, err := t.getDir(parent)
	if err != nil {
		return Attr{}, err
	}
	ino := d.dir.parent
	if name != ".." {
		e, err := t.entry(d, name)
		if err != nil {
			return Attr{}, err
		}
		ino = e.ino
	}
	in, err := t.get(ino)
	if err != nil {
		return Attr{}, t.missingInode(d, name, err)
	}
	t.countLookup(c, in)
	t.inodes.tidy()
	return in.attr(), nil
}

// lookupCached is Lookup of what is in memory, beside other readers.
func (t *Tree) lookupCached(c Caller, parent Ino, name string) (Attr, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	d := t.inodes.m[parent]
	if d == nil || d.dir == nil {
		return Attr{}, false
	}
	e, ok := d.dir.entries[name]
	if !ok || e.ino == 0 {
		return Attr{}, false
	}
	in := t.inodes.m[e.ino]
	if in == nil || in.freed {
		return Attr{}, false
	}
	d.touch()
	in.touch()
	t.countLookup(c, in)
	return in.attr(), true
}

// missingInode is for an entry whose inode is not there: the index is damaged.
func (t *memory) missingInode(d *inode, name string, err error) error {
	if err != syscall.ENOENT {
		return err
	}
	t.log.Error("directory entry without an inode", "parent", d.ino, "name", name)
	return syscall.EIO
}

// countLookup counts a lookup that a mount's kernel will hold.
func (t *memory) countLookup(c Caller, in *inode) {
	if c.Epoch != 0 && in.ino != Root {
		in.addLookup()
	}
}

// GetAttr returns the attributes of ino.
func (t *Tree) GetAttr(ino Ino) (Attr, error) {
	t.mu.RLock()
	if in := t.inodes.m[ino]; in != nil && !in.freed {
		in.touch()
		a := in.attr()
		t.mu.RUnlock()
		return a, nil
	}
	t.mu.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	in, err := t.get(ino)
	if err != nil {
		return Attr{}, err
	}
	t.inodes.tidy()
	return in.attr(), nil
}

// errnoOf finds the errno inside an error; EIO if there is none.
func errnoOf(err error) syscall.Errno {
	if db.IsFull(err) {
		return syscall.ENOSPC
	}
	for err != nil {
		if e, ok := err.(syscall.Errno); ok {
			return e
		}
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			err = nil
			if errs := u.Unwrap(); len(errs) > 0 {
				err = errs[0]
			}
		default:
			err = nil
		}
	}
	return syscall.EIO
}
