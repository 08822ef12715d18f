package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"holt"
	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// openTree opens index and journal and brings both to the same position.
func openTree(dir string, opt Options, create bool) (_ *Tree, err error) {
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{
		SegmentSize: opt.SegmentSize, Disk: opt.Disk, Fail: opt.Fail, Log: opt.Log})
	if err != nil {
		return nil, diskError("open workspace", err)
	}
	lost, err := lostFork(dir)
	if err != nil {
		return nil, errors.Join(diskError("open workspace", err), j.Close())
	}
	var x *index
	if lost {
		err = errLostFork
	} else {
		x, err = openIndex(dir)
	}
	spare, own := opt.Reserve, filepath.Join(dir, "reserve")
	if spare == nil {
		spare = NewReserve(own)
	} else {
		_ = os.Remove(own) // of when it had one
	}
	if full(err) {
		err = spare.release(func() error { x, err = openIndex(dir); return err })
	}
	if db.IsCorrupt(err) || errors.Is(err, db.ErrSchema) || lost {
		x, err = freshIndex(dir, j, err, opt)
	}
	if err != nil {
		return nil, errors.Join(diskError("open workspace", err), j.Close())
	}
	t := &Tree{dir: dir, memory: memory{opt: opt, log: opt.Log, index: x}, journal: j, reserve: spare, wake: make(chan struct{}, 1),
		mergeSemaphore: make(chan struct{}, 1), briefReads: make(chan struct{}, mostBriefReads)}
	t.packer.t, t.packer.wake = t, make(chan struct{}, 1)
	t.write = t.flushHeld
	t.flushed = sync.NewCond(&t.mu)
	t.indexSync = syncForkIndex(dir, x.db)
	defer func() {
		if err != nil {
			_ = t.indexSync.wait()
			err = errors.Join(err, t.index.close(), j.Close())
		}
	}()
	if err := t.recover(); err != nil {
		return nil, err
	}
	if err := t.packer.findPacked(context.Background()); err != nil {
		return nil, diskError("open workspace", err)
	}
	t.reserve.reclaim()
	if create {
		err = t.format()
	} else if t.count.NextIno == uint64(Root) {
		err = holt.Errorf(holt.Corrupt, "open workspace: the journal in %s is empty", dir)
	}
	if err != nil {
		return nil, err
	}
	return t, t.endHostMounts()
}

// freshIndex puts an index aside that cannot be read, and opens an empty one,
// if the journal still holds all that it said.
func freshIndex(dir string, j *journal.Journal, why error, opt Options) (*index, error) {
	if !j.Complete() {
		if errors.Is(why, db.ErrSchema) { // so was the archive's copy, most likely
			return nil, holt.Errorf(holt.Unsupported, "open workspace: its index was made by another version of holt, and segments it could be rebuilt from are gone").
				WithHint("use the version of holt that made it; nothing in the workspace was changed")
		}
		opt.Log.Warn("index cannot be used", "reason", why)
		if found, err := fetchIndex(dir, opt); found || err != nil {
			if err != nil {
				return nil, err
			}
			return openIndex(dir)
		}
		return nil, holt.Errorf(holt.Corrupt, "open workspace: the index is damaged and cannot be rebuilt, because journal segments are missing: %w", why).
			WithHint("restore the workspace's directory from a backup; nothing in it was changed")
	}
	opt.Log.Warn("index is put aside and rebuilt from the journal", "reason", why)
	if err := putIndexAside(dir); err != nil {
		return nil, err
	}
	return openIndex(dir)
}

func putIndexAside(dir string) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		name := filepath.Join(dir, "index.db"+suffix)
		if err := os.Rename(name, name+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, unsyncedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// format writes the first record. The index is synced with it: one that has
// nothing cannot tell segments that were collected from those that a loss of
// power took, behind the first.
func (t *Tree) format() error {
	id := newID()
	o := op{kind: opFormat, time: t.now(), mode: syscall.S_IFDIR | 0o755, uid: t.opt.UID, gid: t.opt.GID, blob: id[:]}
	if err := t.commit(&o, nil, nil); err != nil {
		return diskError("create workspace", err)
	}
	err := t.flush()
	if err == nil {
		err = t.index.db.Sync()
	}
	if err != nil {
		return diskError("create workspace", err)
	}
	return nil
}

// endHostMounts ends the epochs of mounts that died with their daemon: of all but the one that is continued.
func (t *Tree) endHostMounts() error {
	for _, e := range t.epochs {
		if e.kind == HostMount && e.id != t.opt.HostMount {
			if err := t.endEpoch(e.number); err != nil {
				return diskError("end host mount", err)
			}
		}
	}
	return nil
}

// recover replays what the index has not seen. If the index says more than
// the journal holds, it is of no use: it is emptied and built again.
func (t *Tree) recover() error {
	ok, err := t.trusted()
	if err != nil {
		return diskError("read index", err)
	}
	if ok {
		err := t.replay()
		if !errors.Is(err, journal.ErrPast) && !errors.Is(err, errApply) {
			return err
		}
		t.log.Warn("index does not fit the journal", "error", err)
	}
	if !t.journal.Complete() {
		if found, err := t.restoreIndex(); err != nil {
			return diskError("restore index", err)
		} else if ok, err = t.trusted(); found && ok && err == nil {
			return t.replay()
		}
		return holt.Errorf(holt.Corrupt, "open workspace: the index does not match the journal and cannot be rebuilt, because journal segments are missing").
			WithHint("restore the workspace's directory from a backup; nothing in it was changed")
	}
	t.log.Warn("index is rebuilt from the journal")
	if err := t.index.wipe(); err != nil {
		return diskError("rebuild index", err)
	}
	return t.replay()
}

// trusted tells whether the index ends where a whole record of this journal does.
func (t *Tree) trusted() (bool, error) {
	c, err := t.index.counters()
	if err != nil {
		return false, err
	}
	if c.Applied == 0 {
		return t.journal.Complete(), nil
	}
	last, end := journal.Pos(c.Last), journal.Pos(c.Applied)
	id, known, err := t.index.segmentID(end.Segment())
	if err != nil || !known || !t.journal.Whole(last, end) {
		return false, err
	}
	for _, s := range t.journal.Segments() {
		if s.Ordinal == end.Segment() {
			return s.ID == id, nil
		}
	}
	return false, nil
}

// reset empties the memory and loads what is always there.
func (t *memory) reset() (err error) {
	t.inodes = newInodeCache(t.opt)
	t.writers, t.batch = map[Writer]uint32{}, newBatch(dirtyA)
	t.indexedSegment = 0
	if t.count, err = t.index.counters(); err != nil {
		return err
	}
	if t.orphans, err = t.index.orphans(); err != nil {
		return err
	}
	if t.epochs, err = t.index.epochs(); err != nil {
		return err
	}
	if t.checkpoints, err = t.index.checkpoints(); err != nil {
		return err
	}
	if t.lineage, err = t.index.lineage(); err != nil {
		return err
	}
	t.version, err = t.index.versions(t.count.Generation)
	return err
}

// replay applies the records behind the index, and gathers the answers that
// may be asked for again from the records before.
func (t *Tree) replay() error {
	if err := t.reset(); err != nil {
		return diskError("read index", err)
	}
	applied := journal.Pos(t.count.Applied)
	from := t.journal.First()
	if applied != 0 {
		from = min(applied, journal.Pos(t.count.Replies))
	}
	n := 0
	err := t.journal.Recover(from, func(rec journal.Record) error {
		o, err := decodeOp(rec.Meta)
		if err != nil {
			return fmt.Errorf("record at %v: %w", rec.Pos, err)
		}
		if rec.Pos < applied {
			t.rememberReply(&o, rec)
			return nil
		}
		if n++; (n%t.opt.FlushOps == 0 || t.dirtyFull()) && len(t.parts) == 0 {
			if err := t.flush(); err != nil {
				return err
			}
		}
		if err := t.apply(&o, rec); err != nil {
			return fmt.Errorf("record at %v: %w: %w", rec.Pos, errApply, err)
		}
		t.afterApply(&o, rec)
		return nil
	})
	t.parts = nil
	if err == nil {
		err = t.flush()
	}
	if err != nil {
		return fmt.Errorf("recover workspace: %w", err)
	}
	for _, e := range t.epochs {
		e.since = Ino(t.count.NextIno) // whoever counted before, it was not this process
	}
	t.log.Info("workspace recovered", "replayed", n, "end", t.journal.End().String())
	return nil
}
