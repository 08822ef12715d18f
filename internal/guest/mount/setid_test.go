package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// actors are users that act on a file of root with group 55.
var actors = map[string][3]string{ // user, group, other groups
	"a stranger":            {"1234", "1234", ""},
	"one of the group":      {"1234", "55", ""},
	"one also of the group": {"1234", "1234", "55"},
	"root":                  {"0", "0", ""},
}

// acts are operations on a file.
var acts = map[string]func(path string, args []string) error{
	"write": func(path string, _ []string) error {
		return withFile(path, unix.O_WRONLY, func(fd int) error { _, err := unix.Pwrite(fd, []byte("x"), 3); return err })
	},
	"write directly": func(path string, _ []string) error {
		page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		return withFile(path, unix.O_WRONLY|unix.O_DIRECT, func(fd int) error { _, err := unix.Pwrite(fd, page, 0); return err })
	},
	"truncate": func(path string, _ []string) error { return unix.Truncate(path, 5) },
	"allocate": func(path string, _ []string) error { return allocate(path, 0, 0, 4096) },
	"allocate what is there": func(path string, _ []string) error {
		return allocate(path, unix.FALLOC_FL_KEEP_SIZE, 0, 100)
	},
	"punch": func(path string, _ []string) error {
		return allocate(path, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, 0, 4096)
	},
	"zero": func(path string, _ []string) error { return allocate(path, unix.FALLOC_FL_ZERO_RANGE, 0, 4096) },
	"read": func(path string, _ []string) error {
		return withFile(path, unix.O_RDONLY, func(fd int) error { _, err := unix.Pread(fd, make([]byte, 10), 0); return err })
	},
	"chown": func(path string, args []string) error {
		uid, _ := strconv.Atoi(args[0])
		gid, _ := strconv.Atoi(args[1])
		return unix.Chown(path, uid, gid)
	},
	"set ACL": func(path string, _ []string) error {
		return unix.Setxattr(path, aclAccess, []byte(sharedACL("\x07", "\x07")), 0)
	},
}

func withFile(path string, flags int, do func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

func allocate(path string, mode uint32, off, n int64) error {
	return withFile(path, unix.O_WRONLY, func(fd int) error { return unix.Fallocate(fd, mode, off, n) })
}

// act is the helper behind actAs.
func act(args []string) error {
	uid, err1 := strconv.Atoi(args[0])
	gid, err2 := strconv.Atoi(args[1])
	var groups []int
	if args[2] != "" {
		g, _ := strconv.Atoi(args[2])
		groups = append(groups, g)
	}
	if err1 != nil || err2 != nil {
		return fmt.Errorf("no user: %q", args)
	}
	if uid != 0 {
		if err := syscall.Setgroups(groups); err != nil {
			return err
		}
		if err := syscall.Setgid(gid); err != nil {
			return err
		}
		if err := syscall.Setuid(uid); err != nil {
			return err
		}
	}
	return acts[args[3]](args[4], args[5:])
}

// actAs does an operation as a user, in a process of its own.
func actAs(t testing.TB, actor, what, path string, args ...string) {
	t.Helper()
	a := actors[actor]
	cmd := helper(t, "act", append([]string{a[0], a[1], a[2], what, path}, args...)...)
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("%s by %s %s: %v\n%s", what, actor, strings.Join(args, " "), err, out)
	}
}

// TestSetIDBitsOfAllUsers does each operation as each user, and compares the
// remaining set-id bits with ext4's.
func TestSetIDBitsOfAllUsers(t *testing.T) { onBoth(t, whoClearsSetIDBits) }

func whoClearsSetIDBits(t *testing.T, _ *workspace.Workspace, dir string) {
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	do := func(kind, owner uint32, mode uint32, want uint32, actor, what string, args ...string) {
		t.Helper()
		os.Remove(path)
		if err := unix.Mknod(path, kind, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
		if kind == unix.S_IFREG {
			writeFile(t, path, strings.Repeat("x", 10000))
		}
		if err := errors.Join(unix.Chown(path, int(owner), 55), unix.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		actAs(t, actor, what, path, args...)
		if st := stat(t, path); st.Mode&0o7777 != want {
			t.Errorf("%#o: %s by %s %s: mode %#o, want %#o", kind|mode, what, actor, strings.Join(args, " "), st.Mode&0o7777, want)
		}
	}
	for what := range acts {
		if what == "read" || what == "chown" || what == "set ACL" {
			continue
		}
		do(unix.S_IFREG, 0, 0o6777, 0o777, "a stranger", what)
		do(unix.S_IFREG, 0, 0o6666, 0o666, "a stranger", what)
		do(unix.S_IFREG, 0, 0o6666, 0o2666, "one of the group", what)
		do(unix.S_IFREG, 0, 0o6777, 0o6777, "root", what)
	}
	do(unix.S_IFREG, 0, 0o6777, 0o6777, "a stranger", "read")
	for _, kind := range []uint32{unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK} {
		do(kind, 1234, 0o7555, 0o1555, "one also of the group", "chown", "1234", "55")
		do(kind, 1234, 0o6555, 0o555, "a stranger", "chown", "-1", "-1")
		do(kind, 1234, 0o2666, 0o2666, "one of the group", "chown", "-1", "55")
		do(kind, 1234, 0o6666, 0o2666, "root", "chown", "0", "0")
	}
}
