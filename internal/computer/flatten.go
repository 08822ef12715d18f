package computer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
	"holt/internal/hosterror"
)

// flattener keeps chains of root disks short: each snapshot, fork, pause and resume adds a disk. A
// disk that only one other disk needs is merged with that one, in one of two ways.
//
// In place, while no computer over them runs and none of them is archived or about to be: the
// smaller is copied into the larger. Starting such a computer cancels the merge, which is repeated
// when the computer is at rest again.
//
// By a copy otherwise, once there are stackedDisks: a new disk with their content replaces them.
// Running machines reopen it, and the archive gets it.
type flattener struct {
	*registry
	disks   *disks
	merged  notification // there may be merged disks to archive
	stacked int          // stackedDisks, but in tests
}

// stackedDisks are merged by one copy. A copy costs as much as they hold, and more disks are slower
// to read.
const stackedDisks = 8

const (
	awaitLimit = 10 * time.Minute       // for a copy to be put in its place
	awaitEvery = 100 * time.Millisecond // it is tried
	// copyAgain is how long disks are left alone whose copy came to nothing.
	copyAgain = time.Hour
	// reopenLimit bounds how long a machine that hangs keeps verbs from its computer.
	reopenLimit = 20 * time.Second
)

// tries remembers failures by the disk over a stack.
type tries struct {
	said  map[holt.DiskID]string
	again map[holt.DiskID]time.Time // not before then
}

func newTries() tries { return tries{map[holt.DiskID]string{}, map[holt.DiskID]time.Time{}} }

// run merges disks whenever some may be mergeable, until ctx ends.
func (f *flattener) run(ctx context.Context) {
	for was := newTries(); ctx.Err() == nil; {
		f.all(ctx, was)
		select {
		case <-f.machines.idle:
		case <-ctx.Done():
		}
	}
}

// all merges what can be merged now. A failure is logged once, and retried when a verb has ended.
func (f *flattener) all(ctx context.Context, was tries) {
	for again := true; again && ctx.Err() == nil; {
		again = false
		marked, err := f.settle(ctx, was)
		var stacks []stack
		if err == nil {
			stacks, err = f.disks.stacks(ctx)
		}
		if err != nil {
			f.say(ctx, was, "", err)
		}
		for _, st := range stacks {
			if present(f.cfg.Engines.Of(st.engine)) != nil || slices.Contains(marked, st.over) || slices.ContainsFunc(st.disks, func(id holt.DiskID) bool { return slices.Contains(marked, id) }) {
				continue // this daemon cannot read it, or it is not settled
			}
			done, err := f.inPlace(ctx, st.lowest())
			if err == nil && !done && len(st.disks) >= f.stacked && time.Now().After(was.again[st.over]) {
				if done, err = f.byCopy(ctx, st.entire()); err != nil {
					was.again[st.over] = time.Now().Add(copyAgain)
				}
			}
			again = again || done // the next may lie over it
			if err != nil {
				f.say(ctx, was, st.over, err)
			}
		}
	}
}

func (f *flattener) say(ctx context.Context, was tries, over holt.DiskID, err error) {
	if ctx.Err() == nil && was.said[over] != err.Error() {
		was.said[over] = err.Error()
		f.log.WarnContext(ctx, "merge root disks", "beneath", over, "err", err)
	}
}

// inPlace merges two disks, unless a computer that needs them runs or is about to.
func (f *flattener) inPlace(ctx context.Context, m merge) (done bool, err error) {
	k := f.disks
	if !k.still.TryLock() {
		return false, nil // disks are being archived, which ends with a notification
	}
	defer k.still.Unlock()
	archived, err := k.list(ctx, archivedOver, m.into, f.cfg.Archive != nil)
	if err != nil || len(archived) > 0 {
		return false, err
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	users, free, err := f.claim(bounded, m.into, false, cancel)
	if err != nil || free == nil {
		return false, err
	}
	defer free()
	if len(users) == 0 { // they are about to be removed
		return false, nil
	}
	over, under := k.path(m.into), k.path(m.under[0])
	before := archive.Allocated(over) + archive.Allocated(under)
	if err = k.mark(bounded, m.into); err == nil {
		err = f.cfg.failpoint("flatten/disk")
	}
	if err == nil {
		err = f.cfg.Engines.Of(m.engine).MergeDisk(bounded, over, under)
	}
	if err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			return false, nil // a computer is being started
		}
		return false, err
	}
	if err := f.cfg.failpoint("flatten/row"); err != nil {
		return false, err
	}
	ctx = context.WithoutCancel(ctx)
	if err := f.record(ctx, m); err != nil {
		return false, err
	}
	f.log.InfoContext(ctx, "root disks merged", "disk", m.into, "freed", before-archive.Allocated(over))
	return true, k.unmark(ctx, m.into)
}

// flattenedSuffix is the suffix of a copy that is to replace a disk.
const flattenedSuffix = ".flat"

// byCopy merges disks that may be in use.
func (f *flattener) byCopy(ctx context.Context, m merge) (done bool, err error) {
	k := f.disks
	path, began, before := k.path(m.into), time.Now(), int64(0)
	for _, id := range append(slices.Clone(m.under), m.into) {
		before += archive.Allocated(k.path(id))
	}
	if err := f.cfg.failpoint("flatten/copy"); err != nil {
		return false, err
	}
	if err := f.cfg.Engines.Of(m.engine).FlattenDisk(ctx, path, k.path(m.under[len(m.under)-1]), path+flattenedSuffix); err != nil {
		return false, err
	}
	defer os.Remove(path + flattenedSuffix)
	users, free, err := f.await(ctx, m.into)
	if err != nil {
		return false, err
	}
	defer free()
	if done, err = f.replace(ctx, m, users); err != nil || !done {
		return false, err
	}
	f.log.InfoContext(ctx, "root disks merged into one", "disk", m.into, "disks", len(m.under)+1, "freed", before-archive.Allocated(path), "ms", time.Since(began).Milliseconds())
	ctx = context.WithoutCancel(ctx)
	if err := f.reopen(ctx, users); err != nil {
		return false, err
	}
	return true, k.unmark(ctx, m.into)
}

// replace moves the copy into place, unless the disks have been removed meanwhile.
func (f *flattener) replace(ctx context.Context, m merge, users []holt.ComputerID) (done bool, err error) {
	k := f.disks
	k.collecting.Lock()
	defer k.collecting.Unlock()
	if there, err := k.mergeable(ctx, m); err != nil || !there || len(users) == 0 {
		return false, err
	}
	if err := k.mark(ctx, m.into); err != nil {
		return false, err
	}
	path := k.path(m.into)
	err = os.Rename(path+flattenedSuffix, path)
	if err == nil {
		err = machine.Sync(k.dir)
	}
	if err != nil {
		return false, hosterror.Full(fmt.Errorf("replace root disk: %w", err))
	}
	if err := f.cfg.failpoint("flatten/replaced"); err != nil {
		return false, err
	}
	return true, f.record(context.WithoutCancel(ctx), m)
}

// record records a merge and removes the merged files. They go after their rows: their content is
// in the file that stays.
func (f *flattener) record(ctx context.Context, m merge) error {
	k := f.disks
	if len(m.under) == 0 {
		return nil // it was written down
	}
	if err := k.merged(ctx, m); err != nil {
		return err
	}
	for _, id := range m.under {
		if err := os.Remove(k.path(id)); err != nil && !os.IsNotExist(err) {
			f.log.WarnContext(ctx, "remove merged root disk; the next start of the daemon will retry", "disk", id, "err", err)
		}
	}
	f.merged.notify()
	return nil
}

// reopen makes the machines of computers, whose locks are held, open the new files.
func (f *flattener) reopen(ctx context.Context, users []holt.ComputerID) error {
	ctx, cancel := context.WithTimeout(ctx, reopenLimit)
	defer cancel()
	var all errgroup.Group
	for _, id := range users {
		if l := f.machines.live(id); l != nil {
			all.Go(func() error {
				err := l.m.Reopen(ctx)
				if err != nil && !ended(l.m) {
					return fmt.Errorf("reopen the merged disks of %s: %w", id, err)
				}
				return nil
			})
		}
	}
	return all.Wait()
}

// settle finishes interrupted merges. It returns the disks that stay marked, because a verb is at
// work or a machine still has the old file open.
func (f *flattener) settle(ctx context.Context, was tries) (marked []holt.DiskID, err error) {
	k := f.disks
	if marked, err = k.marked(ctx); err != nil || len(marked) == 0 {
		return nil, err
	}
	if !k.still.TryLock() {
		return marked, nil
	}
	defer k.still.Unlock()
	for _, id := range marked {
		if err := f.settleOne(ctx, id); err != nil {
			f.say(ctx, was, id, err)
		}
	}
	return k.marked(ctx)
}

func (f *flattener) settleOne(ctx context.Context, id holt.DiskID) error {
	k := f.disks
	users, free, err := f.claim(ctx, id, true, nil)
	if err != nil || free == nil {
		return err
	}
	defer free()
	m, err := f.found(ctx, id)
	if err == nil {
		err = machine.Sync(k.path(id))
	}
	if err == nil {
		err = f.record(ctx, m)
	}
	if err == nil {
		err = f.reopen(ctx, users)
	}
	if err == nil {
		err = k.unmark(ctx, id)
	}
	return err
}

// found returns the merge that a disk's file shows and the table does not.
func (f *flattener) found(ctx context.Context, id holt.DiskID) (merge, error) {
	k := f.disks
	m := merge{into: id}
	chain, err := k.chain(ctx, id)
	if err != nil || len(chain) == 0 {
		return m, err
	}
	lies, err := f.cfg.Engines.Of(chain[0].engine).DiskBase(ctx, k.path(id))
	if err != nil {
		return m, err
	}
	for _, l := range chain[1:] {
		// By name: the directory may have been moved.
		if filepath.Base(k.path(l.id)) == filepath.Base(lies.Path) {
			m.parent = l.id
			return m, nil
		}
		m.under = append(m.under, l.id)
	}
	return m, nil
}

// claim locks the computers over a disk until free is called. free is nil if a verb is at work on
// one, or one runs and none may. A caller that wants such a lock calls yield first, unless yield is
// nil.
func (f *flattener) claim(ctx context.Context, id holt.DiskID, running bool, yield func()) (users []holt.ComputerID, free func(), err error) {
	var held []func()
	free = func() {
		for _, unlock := range held {
			unlock()
		}
	}
	users, ok, err := f.disks.users(ctx, id, running)
	for i := 0; i < len(users) && ok && err == nil; i++ {
		var unlock func()
		if unlock, ok = f.machines.tryQuiet(users[i], running, yield); ok {
			held = append(held, unlock)
		}
	}
	if ok && err == nil {
		// One that was being forked from them meanwhile is there now, or cannot come any more.
		var now []holt.ComputerID
		now, ok, err = f.disks.users(ctx, id, running)
		ok = ok && slices.Equal(now, users)
	}
	if !ok || err != nil {
		free()
		return nil, nil, err
	}
	return users, free, nil
}

// await is claim for computers that may run, once no verb is at work on any and no disk is being
// archived.
func (f *flattener) await(ctx context.Context, id holt.DiskID) (users []holt.ComputerID, free func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	still := &f.disks.still
	for {
		if still.TryLock() {
			users, free, err := f.claim(ctx, id, true, nil)
			if err == nil && free != nil {
				return users, func() { free(); still.Unlock() }, nil
			}
			still.Unlock()
			if err != nil {
				return nil, nil, err
			}
		}
		select {
		case <-time.After(awaitEvery):
		case <-ctx.Done():
			return nil, nil, holt.Errorf(holt.Timeout, "timed out waiting for the computers that use the disk %s: %w", id, ctx.Err())
		}
	}
}
