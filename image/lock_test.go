package image

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that is being started has a copy of each file until it has exec'd: what was let go of meanwhile is not locked.
func TestUnlockOfForked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	defer second.Close()
	if locked, err := tryLock(first); err != nil || !locked {
		t.Fatal(locked, err)
	}
	if locked, err := tryLock(second); err != nil || locked {
		t.Fatalf("locked twice: %v", err)
	}
	held, err := unix.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	unlock(first)
	if locked, err := tryLock(second); err != nil || !locked {
		t.Errorf("a lock that was let go of is held: %v", err)
	}
}
