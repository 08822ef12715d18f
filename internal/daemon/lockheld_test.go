package daemon_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that is being started has a copy of each file until it has exec'd: a daemon that ended meanwhile does not
// keep the next one out.
func TestLockOfForked(t *testing.T) {
	dir := home(t)
	d := open(t, config(t, dir))
	held := copyOf(t, filepath.Join(dir, "lock"))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	up(t, config(t, dir))
}

// copyOf copies the descriptor that this process has of a file.
func copyOf(t *testing.T, path string) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		fd := filepath.Join("/proc/self/fd", one.Name())
		if target, err := os.Readlink(fd); err != nil || target != path {
			continue
		}
		n, err := strconv.Atoi(one.Name())
		if err != nil {
			t.Fatal(err)
		}
		held, err := unix.Dup(n)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	t.Fatalf("%s is not open", path)
	return -1
}
