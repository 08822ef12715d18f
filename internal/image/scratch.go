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

// scratch is the directory of one build under way. Beside it lies a lock file
// that the builder holds, so that what a killed build left can be told from
// what a living one uses. The children of the builder inherit the lock: it
// ends with the last of them.
type scratch struct {
	dir   string // in the store, so that what it holds can be renamed into place
	work  string // where mmdebstrap works
	lock  *os.File
	ids   bool // what works there has user ids of its own
	first int  // of the host's ids that they are, where it is for us to choose
}

func (s *Store) scratchParent() string { return filepath.Join(s.dir, "tmp") }

// apartDir returns where mmdebstrap works for the scratch directory dir when
// the tree belongs to user ids of a namespace: they cannot pass through a home
// directory, so it stands in the system's directory for what is large.
func apartDir(dir string) string {
	return filepath.Join(cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"), fmt.Sprintf("holt-image-%d-%s", os.Geteuid(), filepath.Base(dir)))
}

// newScratch makes one. Without root, and with it for what others have made, the
// work is done with user ids of its own.
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
					t.work, t.first = apartDir(dir), firstID+rand.IntN(builds)*idsOfOne
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

// A build with ids of its own has idsOfOne of the host's user and group ids, for 0
// and up: one of builds ranges from firstID on, all of which lie among those that systemd
// leaves to containers. It is chosen at random, so that two at once hardly ever share theirs.
const (
	firstID  = 0x60000000
	builds   = 4096
	idsOfOne = 65536
)

// own gives the work directory to the ids that work there, and to nobody else.
// Without root mmdebstrap sees to that.
func (t *scratch) own() error {
	if !t.ids || os.Geteuid() != 0 {
		return nil
	}
	return errors.Join(os.Chmod(t.work, 0o700), os.Chown(t.work, t.first, t.first))
}

// hand lets those ids write a file. Without root nobody but everybody can be given it.
func (t *scratch) hand(f *os.File) error {
	if os.Geteuid() != 0 {
		return f.Chmod(0o666)
	}
	return f.Chown(t.first, t.first)
}

// path returns a path for mmdebstrap's work.
func (t *scratch) path(name string) string { return filepath.Join(t.work, name) }

// remove removes the directories and gives up the lock, in this order.
func (t *scratch) remove() error {
	err := errors.Join(removeTree(apartDir(t.dir)), removeTree(t.dir))
	if err == nil {
		err = os.Remove(t.lock.Name())
	}
	flock.Close(t.lock)
	return err
}

// sweep removes what killed builds left behind.
func (s *Store) sweep() {
	entries, err := os.ReadDir(s.scratchParent())
	if err != nil {
		return // absent: nothing to sweep
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".lock")
		if err := sweepOne(filepath.Join(s.scratchParent(), name)); err != nil {
			s.log.Warn("remove what a killed build left", "dir", name, "error", err)
		}
	}
}

func sweepOne(dir string) error {
	lock, err := os.OpenFile(dir+".lock", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return removeTree(dir) // its lock was made first and removed last
	}
	if err != nil {
		return err
	}
	if err := flock.Lock(lock); err != nil {
		lock.Close()
		if errors.Is(err, flock.ErrHeld) { // its build goes on
			return nil
		}
		return err
	}
	return (&scratch{dir: dir, lock: lock}).remove()
}

// removeTree removes a tree whose files may belong to the ids of a user
// namespace, which only a process in such a namespace may remove.
func removeTree(dir string) error {
	var err error
	// A process that was killed a moment ago may still be creating a file.
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

// discard is the log of a store that was given none.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
