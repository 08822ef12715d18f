package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holt"
	archive "holt/internal/store/chunk"
	"holt/internal/store/flock"
	"holt/internal/store/journal"
)

// Options say how to open a workspace. The zero value is what production uses.
type Options struct {
	// Log receives named lines for faults (a checksum mismatch, a failed
	// background flush). Nil discards them.
	Log *slog.Logger

	// CacheInodes is how many clean inodes stay in memory. Default 200,000.
	CacheInodes int
	// CacheEntries is how many clean directory entries stay in memory. Default 400,000.
	CacheEntries int

	// CacheExtents is how many extents of clean files stay in memory. Default 1,000,000.
	CacheExtents int
	// CacheValues is how many bytes of clean extended attributes and symlink
	// targets stay in memory. Default 32 MiB.
	CacheValues int

	// SegmentSize is the size at which a journal segment is sealed, bytes. Default 256 MiB.
	SegmentSize int64
	// FlushOps is how many operations are gathered before rows are written to
	// the index. Default 4000.
	FlushOps int
	// FlushInterval is the longest time an operation waits before its rows are
	// written to the index. Default 200 ms.
	FlushInterval time.Duration
	// MaxDirty is how many unwritten rows make operations wait for the index. Each
	// KiB of extended attributes and symlink targets counts as one. Default 50,000.
	MaxDirty int

	// Archive takes the bytes of sealed segments, under the name Space. Nil:
	// they stay in the journal. It must stay open longer than the workspace.
	Archive *archive.Archive
	Space   string
	// KeepSegments is how many sealed segments that replay does not need stay
	// on the disk. Default 4; below 0 only Pack moves any.
	KeepSegments int

	// HostMount is the id of the host mount that survived a restart of the daemon. Open ends all other host mounts.
	HostMount [16]byte

	// PackRetry is how long packing waits after a failure. Default 1 min.
	PackRetry time.Duration

	// OnCheckpoint is called for each checkpoint that is taken or deleted. It is called under
	// the workspace's lock: it must return at once. May be nil.
	OnCheckpoint func(c Checkpoint, deleted bool)

	// Reserve is what is given up when the host's disk is full, so that deleting
	// still works. Default: one of the workspace's own, in its directory.
	Reserve *Reserve

	// UID and GID own the top directory of a new workspace.
	UID, GID uint32
	// Quota bounds what is stored; see SetQuota. Default: none.
	Quota holt.Quota

	// Now is the clock for file times. Default: the host's CLOCK_REALTIME_COARSE.
	Now func() time.Time
	// Disk is what the journal writes to. Default the real one.
	Disk journal.Disk
	// Fail is called at each failpoint of workspace and journal, for tests. An
	// error makes the step fail there.
	Fail func(point string) error

	mostInterleaved uint64 // see there
	mostDifferent   int    // see there
	mostInGroup     int    // see there
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		v *int
		n int
	}{{&o.CacheInodes, 200_000}, {&o.CacheEntries, 400_000}, {&o.CacheExtents, 1_000_000}, {&o.CacheValues, 32 << 20},
		{&o.FlushOps, 4000}, {&o.MaxDirty, 50_000}} {
		if *d.v <= 0 {
			*d.v = d.n
		}
	}
	if o.KeepSegments == 0 {
		o.KeepSegments = 4
	}
	if o.SegmentSize <= 0 {
		o.SegmentSize = 256 << 20
	}
	o.SegmentSize = min(o.SegmentSize, 2<<30) // extents have 32 bits for a place
	if o.Disk == nil {
		o.Disk = journal.OS{}
	}
	if o.FlushInterval <= 0 {
		o.FlushInterval = 200 * time.Millisecond
	}
	if o.PackRetry <= 0 {
		o.PackRetry = time.Minute
	}
	if o.Now == nil {
		o.Now = coarseNow
	}
	o.mostInterleaved = cmp.Or(o.mostInterleaved, mostInterleaved)
	o.mostDifferent = cmp.Or(o.mostDifferent, mostDifferent)
	o.mostInGroup = cmp.Or(o.mostInGroup, mostInGroup)
	return o
}

// Stats are a workspace's figures, as of the last answered operation.
type Stats struct {
	Inodes int64 // inodes in use, of every kind, orphans included
	Files  int64 // regular files among them
	Dirs   int64
	Bytes  int64 // sum of the sizes of regular files

	Allocated     int64       // bytes of content that extents refer to
	JournalBytes  int64       // bytes of all segments on disk
	Segments      int         // journal segments on disk
	Waiting       int64       // bytes of sealed segments that are to be packed, and of packed ones to be unlinked
	JournalEnd    journal.Pos // where the next record goes
	JournalSynced journal.Pos // everything before it survives power loss
	CachedInodes  int
	CachedEntries int
	DirtyRows     int
	Orphans       int // unlinked inodes kept for an open mount epoch
}

// Workspace is an open workspace: its life, its figures, its epochs, its
// queries. The files are its [Tree].
type Workspace struct {
	dir    string
	tree   *Tree
	lock   *os.File
	cancel context.CancelFunc
	done   sync.WaitGroup
	once   sync.Once
	err    error // of Close

	staleMu   sync.Mutex
	stale     map[int]func([]Stale)
	staleNext int
}

// Create makes an empty workspace in dir, which must be absent or empty, and
// opens it. The top directory belongs to opt.UID and opt.GID.
func Create(dir string, opt Options) (*Workspace, error) {
	names, err := os.ReadDir(dir)
	if err == nil && len(names) > 0 {
		return nil, holt.Errorf(holt.AlreadyExists, "create workspace: %s is not empty", dir)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(filepath.Join(dir, "journal"), 0o700)
	}
	if err != nil {
		return nil, diskError("create workspace", err)
	}
	return open(dir, opt, true)
}

// Open opens the workspace in dir, recovering what the journal holds. A second
// opener, in this process or another, is refused with Conflict.
func Open(dir string, opt Options) (*Workspace, error) {
	for _, name := range []string{"journal", halfFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return open(dir, opt, false)
		}
	}
	return nil, holt.Errorf(holt.NotFound, "open workspace: no workspace in %s", dir)
}

func open(dir string, opt Options, create bool) (_ *Workspace, err error) {
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	w := &Workspace{dir: dir, lock: lock}
	if err := removeHalf(dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if w.tree, err = openTree(dir, opt.withDefaults(), create); err != nil {
		lock.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.done.Go(func() { w.tree.flusher(ctx) })
	if w.tree.opt.Archive != nil && w.tree.opt.KeepSegments > 0 {
		w.done.Go(func() { w.packer(ctx) })
	}
	return w, nil
}

// lockDir makes this the only daemon of a workspace, until [flock.Close] or the end of the process, however that comes.
func lockDir(dir string) (*os.File, error) {
	f, err := flock.Open(filepath.Join(dir, "lock"), 0o600)
	if errors.Is(err, flock.ErrHeld) {
		return nil, holt.Errorf(holt.Conflict, "workspace %s is already open", dir).
			WithHint("only one process may have a workspace open; stop the other daemon first")
	}
	if err != nil {
		return nil, diskError("lock workspace", err)
	}
	return f, nil
}

// diskError gives an error of the host's file system its code. One that has a
// code already stays as it is.
func diskError(doing string, err error) error {
	if coded := (*holt.Error)(nil); errors.As(err, &coded) {
		return err
	}
	if full(err) {
		return holt.Errorf(holt.OutOfSpace, "%s: %w", doing, err).
			WithHint("free space on the disk that holds the workspaces; what was written before is safe")
	}
	return holt.Errorf(holt.Internal, "%s: %w", doing, err)
}

// Tree returns the POSIX side of the workspace.
func (w *Workspace) Tree() *Tree { return w.tree }

// Close writes everything to the index, syncs, and lets go of the lock. What
// was answered is safe whether it succeeds or not.
func (w *Workspace) Close() error {
	w.once.Do(func() {
		w.cancel()
		w.done.Wait()
		err := w.tree.flush()
		if err := errors.Join(err, w.tree.close(), flock.Close(w.lock)); err != nil {
			w.err = fmt.Errorf("close workspace: %w", err)
		}
	})
	return w.err
}

// close refuses every further operation and lets go of the files.
func (t *Tree) close() error {
	t.mu.Lock()
	t.closed = true
	t.flushed.Broadcast()
	t.mu.Unlock()
	err := errors.Join(t.journal.Sync(t.journal.End()), t.indexSync.wait())
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(err, t.index.close(), t.journal.Close())
}

// Stat returns the workspace's figures.
func (w *Workspace) Stat() Stats {
	t := w.tree
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := Stats{Inodes: int64(t.count.Inodes), Files: int64(t.count.Files), Dirs: int64(t.count.Dirs), Bytes: int64(t.count.Bytes),
		Allocated: int64(t.count.Allocated), JournalEnd: t.journal.End(), JournalSynced: t.journal.Synced(),
		CachedInodes: len(t.inodes.ring), CachedEntries: t.inodes.entries, DirtyRows: t.batch.rows() + t.writing, Orphans: len(t.orphans)}
	segs := t.journal.Segments()
	applied := journal.Pos(t.oldestReply(t.count.Applied)).Segment()
	for i, seg := range segs {
		s.Segments++
		s.JournalBytes += seg.Bytes
		if t.opt.Archive != nil && seg.Sealed && seg.Ordinal < applied && i < len(segs)-1-max(0, t.opt.KeepSegments) {
			s.Waiting += seg.Bytes
		}
	}
	return s
}
