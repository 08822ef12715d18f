package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// TestLongPath uses a path of 4,095 bytes, the longest for a system call, below
// a directory that is deep itself, as pjdfstest does.
func TestLongPath(t *testing.T) { onBoth(t, longPath) }

func longPath(t *testing.T, _ *workspace.Workspace, dir string) {
	deep := filepath.Join(dir, strings.Repeat(strings.Repeat("d", 200)+"/", 10))
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := helper(t, "long-path", deep).Output(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// useLongPath runs in a process of its own because it changes its directory.
func useLongPath(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	part := strings.Repeat("n", 127) + "/"
	for n := 1; n < 32; n++ {
		if err := unix.Mkdir(strings.Repeat(part, n), 0o755); err != nil {
			return fmt.Errorf("make the directory %d deep: %w", n, err)
		}
	}
	path := strings.Repeat(part, 32)[:4095]
	last := path[:len(path)-1]
	made := func(make func() error, remove func(string) error) error {
		if err := make(); err != nil {
			return err
		}
		return remove(path)
	}
	var all []error
	try := func(what string, err error) {
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", what, err))
		}
	}
	try("mkdir", made(func() error { return unix.Mkdir(path, 0o755) }, unix.Rmdir))
	try("mknod", made(func() error { return unix.Mknod(path, unix.S_IFIFO|0o644, 0) }, unix.Unlink))
	try("symlink", made(func() error { return unix.Symlink(path, path) }, unix.Unlink))
	try("rename a directory", errors.Join(unix.Mkdir(last, 0o755), made(func() error { return unix.Rename(last, path) }, unix.Rmdir)))
	try("open, link", errors.Join(unix.Mknod(last, unix.S_IFREG|0o644, 0), made(func() error { return unix.Link(last, path) }, unix.Unlink)))
	try("chmod, chown, truncate", errors.Join(unix.Rename(last, path), unix.Chmod(path, 0o600), unix.Chown(path, 1, 1), unix.Truncate(path, 5), unix.Unlink(path)))
	if err := unix.Mkdir(path+"n", 0o755); err != unix.ENAMETOOLONG {
		all = append(all, fmt.Errorf("a name of 4,096 bytes: %w", err))
	}
	return errors.Join(all...)
}
