package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"holt"
	"holt/internal/store/db"
	"holt/internal/store/flock"
	"holt/internal/store/journal"
)

// ForkOptions say what to fork, and what the child's lineage says of it.
type ForkOptions struct {
	At    string // a checkpoint (see [Workspace.FindCheckpoint]); "" or Live: the present, which gets one
	Name  string // what this workspace is called
	Child string // what the new one is called: for the checkpoint
	Space string // the child's share of the archive; only with an archive
	// Mounts lets the mounts that the checkpoint holds (see [CheckpointOptions]) go
	// on in the child, as after a takeover: whoever is the guest as it was at that
	// instant says hello with the same mount and asks for what was not answered
	// again. Conflict if the checkpoint holds none.
	Mounts bool
}

// Files of a directory that say what state a fork is in. One that is not there
// is what one that is not a fork has too.
const (
	halfFile     = "half"     // the fork is being made; a directory with it is nothing
	unsyncedFile = "unsynced" // the index of the fork may not be on the disk yet; holds the boot that it was made in
)

// Fork makes another workspace in dir, which must be absent or empty, on the same file
// system: as this one is now or was at a checkpoint, with all the history
// before. It returns the checkpoint that both have; Open does the rest. The
// cost is that of copying the index (see [db.DB.Clone]); segments are linked
// and bytes shared. Inodes keep their numbers, times and versions. Without
// opt.Mounts, mounts and what is open without a name stay with this one, which
// remains usable meanwhile.
//
// A crash leaves the whole child or a directory that the next Open removes.
// What is synced in the child survives power loss; before that the child itself
// may not.
func (w *Workspace) Fork(ctx context.Context, dir string, opt ForkOptions) (c Checkpoint, err error) {
	if len(opt.Name) > mostWriterField || len(opt.Child) > mostWriterField {
		return c, holt.Errorf(holt.InvalidArgument, "fork workspace: a name is too long")
	}
	if c, err = w.forkPoint(opt); err != nil {
		return c, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return c, diskError("fork workspace", err)
	}
	if err := vacant(dir); err != nil {
		return c, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return c, err
	}
	defer flock.Close(lock)
	if err := vacant(dir); err != nil { // nor by another fork since
		return c, err
	}
	w.tree.holdSegments(+1)
	defer w.tree.holdSegments(-1)
	if err := w.fork(ctx, dir, c, opt); err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
		if a := w.tree.opt.Archive; a != nil && opt.Space != "" {
			err = errors.Join(err, a.Drop(context.WithoutCancel(ctx), opt.Space))
		}
		return c, diskError("fork workspace", err)
	}
	return c, nil
}

// vacant refuses a directory that holds anything but what a fork leaves that
// crashed before it was begun.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return diskError("fork workspace", err)
	}
	for _, e := range entries {
		if e.Name() != "lock" && e.Name() != halfFile {
			return holt.Errorf(holt.AlreadyExists, "fork workspace: %s already exists", dir)
		}
	}
	return nil
}

// forkPoint finds the checkpoint to fork, or takes it. One that was taken for
// itself stays: merges look back to it.
func (w *Workspace) forkPoint(opt ForkOptions) (Checkpoint, error) {
	reason := strings.TrimSpace("fork " + opt.Child)
	switch {
	case opt.At != "" && opt.At != Live:
		c, err := w.FindCheckpoint(opt.At)
		if err == nil && opt.Mounts && !c.Mounts {
			err = holt.Errorf(holt.Conflict, "fork workspace: checkpoint %q holds no mounts", c.Name).
				WithHint("fork it without mounts; the guest then mounts the workspace again")
		}
		return c, err
	case opt.Mounts:
		return w.Checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Reason: reason}, Mounts: true})
	}
	return w.pinned(reason)
}

// pinned returns a checkpoint of the present that is not automatic, so that it
// stays until somebody deletes it.
func (w *Workspace) pinned(reason string) (Checkpoint, error) {
	if id, changed := w.Present(); !changed {
		if c, err := w.FindCheckpoint(fmt.Sprint("#", uint64(id))); err == nil && !c.Auto {
			return c, nil
		}
	}
	return w.Checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Reason: reason}})
}

// holdSegments keeps segments from being unlinked until it is taken back.
func (t *Tree) holdSegments(by int) {
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	t.held += by
}

// fork fills the directory. The index is copied first and the journal sealed
// after it, so that the journal never ends before the index; what happened in
// between, and since the checkpoint, the record at the end takes away again.
func (w *Workspace) fork(ctx context.Context, dir string, c Checkpoint, opt ForkOptions) error {
	t := w.tree
	segments := filepath.Join(dir, "journal")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, halfFile), nil, 0o600), os.Mkdir(segments, 0o700)); err != nil {
		return err
	}
	// The archive first: a copy of the index in it must not be newer than the journal of the fork.
	if a := t.opt.Archive; a != nil && opt.Space != "" {
		if err := a.Fork(ctx, t.opt.Space, opt.Space); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var held []byte
	if opt.Mounts {
		var err error
		if held, err = t.heldMounts(ctx, c); err != nil {
			return err
		}
	}
	if err := t.fail("fork.clone"); err != nil {
		return err
	}
	if err := t.index.db.Clone(ctx, filepath.Join(dir, "index.db")); err != nil {
		return err
	}
	if err := t.fail("fork.link"); err != nil {
		return err
	}
	end, err := t.journal.Seal()
	if err == nil {
		err = t.journal.Sync(end)
	}
	if err == nil {
		_, err = w.FindCheckpoint(fmt.Sprint("#", uint64(c.ID))) // what is sealed does not delete it
	}
	if err != nil {
		return err
	}
	err = t.journal.Link(segments, end)
	if err == nil {
		err = t.continueAs(segments, end, c, opt.Name, held)
	}
	if err != nil {
		return err
	}
	return t.wholeFork(dir)
}

// wholeFork takes the mark away, once all else is there.
func (t *Tree) wholeFork(dir string) error {
	boot, err := bootID()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, unsyncedFile), []byte(boot), 0o600)
	}
	for _, step := range []func() error{
		func() error { return t.opt.Disk.SyncDir(dir) },
		func() error { return t.fail("fork.whole") },
		func() error { return os.Remove(filepath.Join(dir, halfFile)) },
		func() error { return t.opt.Disk.SyncDir(dir) },
		func() error { return t.opt.Disk.SyncDir(filepath.Dir(dir)) },
	} {
		if err == nil {
			err = step()
		}
	}
	return err
}

// continueAs ends the journal in dir with the record that makes it another
// workspace's. held are the mounts that continue there.
func (t *Tree) continueAs(dir string, end journal.Pos, c Checkpoint, name string, held []byte) error {
	j, err := journal.Open(dir, journal.Options{SegmentSize: t.opt.SegmentSize, Disk: t.opt.Disk, Fail: t.opt.Fail, Log: t.log})
	if err != nil {
		return err
	}
	id := newID()
	o := op{kind: opFork, time: t.now(), n: int64(c.ID), name: name, blob: id[:], blob2: held}
	err = j.Recover(end, func(journal.Record) error { return errors.New("there is a record behind the end") })
	if err == nil {
		_, err = j.Seal()
	}
	if err == nil {
		_, err = j.Append(o.encode(nil), nil, nil)
	}
	if err == nil {
		err = j.Sync(j.End())
	}
	return errors.Join(err, j.Close())
}

var errLostFork = errors.New("the index belongs to a new fork and was not on the disk when power failed")

// bootID tells one run of the kernel from the next.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// removeHalf removes what a crash left of a fork, and says that nothing is
// there.
func removeHalf(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, halfFile)); err != nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries { // the mark last
		if e.Name() != halfFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return diskError("remove a fork that was not finished", err)
	}
	return holt.Errorf(holt.NotFound, "the fork in %s was incomplete and has been removed", dir).WithHint("fork again; the original workspace is unchanged")
}

// indexSync brings the index of a new fork to the disk, beside everything else.
// Until it is there nothing in the fork counts as synced.
type indexSync struct {
	done chan struct{}
	err  error
}

// wait returns once the index is on the disk; nil has nothing to wait for.
func (s *indexSync) wait() error {
	if s == nil {
		return nil
	}
	<-s.done
	return s.err
}

// syncForkIndex begins it, if dir is a new fork.
func syncForkIndex(dir string, d *db.DB) *indexSync {
	mark := filepath.Join(dir, unsyncedFile)
	if _, err := os.Stat(mark); err != nil {
		return nil
	}
	s := &indexSync{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if s.err = d.Sync(); s.err == nil {
			s.err = os.Remove(mark)
		}
	}()
	return s
}

// lostFork tells whether the index of a fork may have been lost with power.
func lostFork(dir string) (bool, error) {
	made, err := os.ReadFile(filepath.Join(dir, unsyncedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	boot, err := bootID()
	return boot != string(made), err
}
