package image

import (
	"cmp"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holt/internal/store/flock"
)

// scratch is the directory of a build in progress. The builder holds a lock file
// next to it, so that sweep removes only the directories of killed builds. The
// children of the builder inherit the lock, which is released when the last of
// them ends.
type scratch struct {
	dir   string // in the store, so that its content can be renamed into place
	work  string // where mmdebstrap works
	lock  *os.File
	ids   bool // programs there run in a user namespace
	first int  // first of the host's ids in that namespace, as root
}

func (s *Store) scratchParent() string { return filepath.Join(s.dir, "tmp") }

// unshareDir returns the work directory for the scratch directory dir if the tree
// belongs to ids of a user namespace. Those cannot enter a home directory, so it is
// in the system's directory for large temporary files.
func unshareDir(dir string) string {
	return filepath.Join(cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"), fmt.Sprintf("holt-image-%d-%s", os.Geteuid(), filepath.Base(dir)))
}

// newScratch makes a scratch directory. Without root, and for foreign images, programs in
// it run in a user namespace.
func (s *Store) newScratch(foreign bool) (*scratch, error) {
	parent := s.scratchParent()
	for {
		dir := filepath.Join(parent, crand.Text())
		lock, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock build directory: %w", err)
		}
		if err = flock.Lock(lock); err == nil {
			// Between creation and lock a sweep may have removed the file.
			if _, err = os.Lstat(lock.Name()); err == nil {
				t := &scratch{dir: dir, work: filepath.Join(dir, "work"), lock: lock, ids: foreign || os.Geteuid() != 0}
				if t.ids {
					t.work, t.first = unshareDir(dir), firstID+rand.IntN(builds)*idsOfOne
				}
				if err = errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(t.work, 0o755), t.own()); err == nil {
					return t, nil
				}
				return nil, fmt.Errorf("make build directory: %w", errors.Join(err, t.remove()))
			}
		}
		flock.Close(lock)
		os.Remove(lock.Name())
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, flock.ErrHeld) {
			return nil, fmt.Errorf("lock build directory: %w", err)
		}
	}
}

// A build in a user namespace has idsOfOne user and group ids of the host. Their range is chosen at
// random among builds ranges from firstID on, so that concurrent builds hardly ever share one. All
// of them are ids that systemd reserves for containers.
const (
	firstID  = 0x60000000
	builds   = 4096
	idsOfOne = 65536
)

// own makes the ids of the user namespace the only owners of the work directory.
// Without root mmdebstrap does that.
func (t *scratch) own() error {
	if !t.ids || os.Geteuid() != 0 {
		return nil
	}
	return errors.Join(os.Chmod(t.work, 0o700), os.Chown(t.work, t.first, t.first))
}

// hand lets those ids write a file. Without root it can only make it writable by everyone.
func (t *scratch) hand(f *os.File) error {
	if os.Geteuid() != 0 {
		return f.Chmod(0o666)
	}
	return f.Chown(t.first, t.first)
}

// path returns a path in the work directory.
func (t *scratch) path(name string) string { return filepath.Join(t.work, name) }

// remove removes the directories and then releases the lock.
func (t *scratch) remove() error {
	err := errors.Join(removeTree(unshareDir(t.dir)), removeTree(t.dir))
	if err == nil {
		err = os.Remove(t.lock.Name())
	}
	flock.Close(t.lock)
	return err
}

// sweep removes the directories of killed builds.
func (s *Store) sweep() {
	entries, err := os.ReadDir(s.scratchParent())
	if err != nil {
		return // absent: nothing to sweep
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".lock")
		if err := sweepOne(filepath.Join(s.scratchParent(), name)); err != nil {
			s.log.Warn("remove directory of a killed build", "dir", name, "error", err)
		}
	}
}

func sweepOne(dir string) error {
	lock, err := os.OpenFile(dir+".lock", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return removeTree(dir) // the lock is made first and removed last, so the build has ended
	}
	if err != nil {
		return err
	}
	if err := flock.Lock(lock); err != nil {
		lock.Close()
		if errors.Is(err, flock.ErrHeld) { // the build runs
			return nil
		}
		return err
	}
	return (&scratch{dir: dir, lock: lock}).remove()
}

// removeTree removes a tree. Without root, files that belong to ids of a user
// namespace can be removed only in such a namespace.
func removeTree(dir string) error {
	var err error
	// A process that has just been killed may still create a file.
	for range 5 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		if os.Geteuid() != 0 {
			exec.Command("mmdebstrap", "--unshare-helper", "rm", "-rf", dir).Run()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// discard is the log of a store without one.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
