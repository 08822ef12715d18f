package computer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holt"
	"holt/machine"
)

// flattening keeps chains of root disks short: each snapshot, fork, pause and
// resume adds one. A disk that is needed by nothing but one that is laid over it
// is merged with that one, in one of two ways.
//
// In place, where no computer that has them beneath it runs, and nothing of them is in the
// archive, or on its way there: the smaller is copied into the larger. Whoever starts one of those
// computers meanwhile ends the merge, which is begun anew when one rests again.
//
// By a copy otherwise, once there are stackedDisks: what they show is made into one disk beside
// them, which then takes their place. Machines that run open it, and the archive gets it.
type flattening struct{ s *Store }

// stackedDisks are merged by a copy, which costs as much as they hold: more seldom is cheaper,
// and more disks are slower to read.
const stackedDisks = 8

// run merges whenever there may be something to merge, until ctx ends.
func (f flattening) run(ctx context.Context) {
	failed := map[holt.DiskID]string{}
	for ctx.Err() == nil {
		f.all(ctx, failed)
		select {
		case <-f.s.seats.idle:
		case <-ctx.Done():
		}
	}
}

// all merges what can be merged now. What cannot is said once, and tried again
// when a verb has ended.
func (f flattening) all(ctx context.Context, failed map[holt.DiskID]string) {
	for again := true; again && ctx.Err() == nil; {
		stacks, err := f.s.disks.stacks(ctx)
		if err != nil {
			f.s.log.Warn("merge root disks", "err", err)
		}
		again = false
		for _, st := range stacks {
			done, err := f.inPlace(ctx, st.lowest())
			if err == nil && !done && len(st.disks) >= f.s.stacked {
				done, err = f.byCopy(ctx, st.whole())
			}
			again = again || done // the next may lie over it
			if err != nil && ctx.Err() == nil && failed[st.over] != err.Error() {
				failed[st.over] = err.Error()
				f.s.log.Warn("merge root disks", "beneath", st.over, "err", err)
			}
		}
	}
}

// inPlace merges two disks, unless a computer that needs them runs, or is about to.
func (f flattening) inPlace(ctx context.Context, m merge) (done bool, err error) {
	k := f.s.disks
	if !k.still.TryLock() {
		return false, nil // whoever has it stores disks, and says when it has done so
	}
	defer k.still.Unlock()
	archived, err := k.list(ctx, archivedOver, m.into, f.s.cfg.Archive != nil)
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
	before := allocated(over) + allocated(under)
	err = k.mark(bounded, m.into, true)
	if err == nil {
		err = f.s.cfg.point("flatten/disk")
	}
	if err != nil {
		return false, err
	}
	if err := f.s.cfg.Engine.MergeDisk(bounded, over, under); err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			return false, nil // somebody wants to go on
		}
		return false, err
	}
	if err := f.s.cfg.point("flatten/row"); err != nil {
		return false, err
	}
	if err := f.finish(context.WithoutCancel(ctx), m, nil); err != nil {
		return false, err
	}
	f.s.log.Info("root disks merged", "disk", m.into, "freed", before-allocated(over))
	return true, nil
}

// flattenedSuffix is added to the path of a disk that the one there is to be replaced with.
const flattenedSuffix = ".flat"

// byCopy merges disks whatever runs over them.
func (f flattening) byCopy(ctx context.Context, m merge) (done bool, err error) {
	k := f.s.disks
	if !k.still.TryLock() {
		return false, nil
	}
	defer k.still.Unlock()
	path, began, before := k.path(m.into), time.Now(), int64(0)
	for _, id := range append(slices.Clone(m.under), m.into) {
		before += allocated(k.path(id))
	}
	if err := f.s.cfg.point("flatten/copy"); err != nil {
		return false, err
	}
	if err := f.s.cfg.Engine.FlattenDisk(ctx, path, k.path(m.under[len(m.under)-1]), path+flattenedSuffix); err != nil {
		return false, err
	}
	defer os.Remove(path + flattenedSuffix)
	users, free, err := f.await(ctx, m.into)
	if err != nil {
		return false, err
	}
	defer free()
	k.collecting.Lock()
	defer k.collecting.Unlock()
	if there, err := k.mergeable(ctx, m); err != nil || !there || len(users) == 0 {
		return false, err // they have gone, or are about to
	}
	if err := k.mark(ctx, m.into, true); err != nil {
		return false, err
	}
	if err := replace(path, path+flattenedSuffix); err != nil {
		return false, err
	}
	if err := f.s.cfg.point("flatten/replaced"); err != nil {
		return false, err
	}
	if err := f.finish(context.WithoutCancel(ctx), m, users); err != nil {
		return false, err
	}
	f.s.log.Info("root disks merged into one", "disk", m.into, "disks", len(m.under)+1, "freed", before-allocated(path), "ms", time.Since(began).Milliseconds())
	f.s.keeper.kick()
	return true, nil
}

// replace puts a file that is synced in the place of another.
func replace(path, by string) error {
	err := os.Rename(by, path)
	if err == nil {
		err = machine.Sync(filepath.Dir(path))
	}
	if err != nil {
		return HostError(fmt.Errorf("replace root disk: %w", err))
	}
	return nil
}

// reopenLimit bounds how long a machine that hangs keeps others from their disks.
const reopenLimit = 20 * time.Second

// finish writes down that a merge was done, of which the disks are marked, removes what it left,
// and tells the machines of users, whose locks are held.
func (f flattening) finish(ctx context.Context, m merge, users []holt.ComputerID) error {
	k := f.s.disks
	if err := k.merged(ctx, m); err != nil {
		return err
	}
	for _, id := range m.under {
		if err := os.Remove(k.path(id)); err != nil && !os.IsNotExist(err) {
			f.s.log.Warn("a merged root disk is removed when the daemon starts again", "disk", id, "err", err)
		}
	}
	for _, id := range users {
		l := f.s.seats.live(id)
		if l == nil {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, reopenLimit)
		err := l.m.Reopen(bounded)
		cancel()
		if err != nil {
			f.s.log.Warn("a machine keeps the root disks open that were merged", "computer", id, "err", err)
		}
	}
	return k.mark(ctx, m.into, false)
}

// settle finishes what a daemon that ended has begun. No computer has changed since;
// those that run are adopted.
func (f flattening) settle(ctx context.Context) error {
	k := f.s.disks
	marked, err := k.list(ctx, `SELECT id FROM disk WHERE merging ORDER BY created, id`)
	if err != nil {
		return err
	}
	for _, id := range marked {
		m, err := f.found(ctx, id)
		if err == nil {
			err = machine.Sync(k.path(id))
		}
		if err != nil {
			f.s.log.Warn("finish a merge of root disks", "disk", id, "err", err)
			continue
		}
		users, free, err := f.claim(ctx, id, true, nil)
		if err != nil || free == nil {
			return err
		}
		err = f.finish(ctx, m, users)
		free()
		if err != nil {
			return err
		}
	}
	return nil
}

// found says by its file which disks one has taken in that are still in the table.
func (f flattening) found(ctx context.Context, id holt.DiskID) (merge, error) {
	k := f.s.disks
	m := merge{into: id}
	lies, err := f.s.cfg.Engine.DiskBase(ctx, k.path(id))
	if err != nil {
		return m, err
	}
	chain, err := k.chain(ctx, id)
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

// claim keeps the computers that have a disk beneath them as they are, until free is
// called; nil: a verb is at work on one, or one runs and none may. Whoever wants one
// calls yield first, unless that is nil.
func (f flattening) claim(ctx context.Context, id holt.DiskID, running bool, yield func()) (users []holt.ComputerID, free func(), err error) {
	var held []func()
	free = func() {
		for _, unlock := range held {
			unlock()
		}
	}
	users, ok, err := f.s.disks.users(ctx, id, running)
	for i := 0; i < len(users) && ok && err == nil; i++ {
		var unlock func()
		if unlock, ok = f.s.seats.tryQuiet(users[i], running, yield); ok {
			held = append(held, unlock)
		}
	}
	if ok && err == nil {
		// One that was being forked from them meanwhile is there now, or cannot come any more.
		var now []holt.ComputerID
		now, ok, err = f.s.disks.users(ctx, id, running)
		ok = ok && slices.Equal(now, users)
	}
	if !ok || err != nil {
		free()
		return nil, nil, err
	}
	return users, free, nil
}

const (
	awaitLimit = 10 * time.Minute
	awaitEvery = 100 * time.Millisecond
)

// await is claim for computers that may run, once no verb is at work on any.
func (f flattening) await(ctx context.Context, id holt.DiskID) (users []holt.ComputerID, free func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	for {
		users, free, err := f.claim(ctx, id, true, nil)
		if err != nil || free != nil {
			return users, free, err
		}
		select {
		case <-time.After(awaitEvery):
		case <-ctx.Done():
			return nil, nil, holt.Errorf(holt.Timeout, "verbs are at work on computers over the disk %s: %w", id, ctx.Err())
		}
	}
}
