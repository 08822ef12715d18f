package mount

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// actors are who acts on a file of root's whose group is 55.
var actors = map[string][3]string{ // user, group, other groups
	"a stranger":            {"1234", "1234", ""},
	"one of the group":      {"1234", "55", ""},
	"one also of the group": {"1234", "1234", "55"},
	"root":                  {"0", "0", ""},
}

// acts are what is done to a file.
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

// actAs does one of acts as one of actors, in a process of its own.
func actAs(t testing.TB, actor, what, path string, args ...string) {
	t.Helper()
	a := actors[actor]
	cmd := helper(t, "act", append([]string{a[0], a[1], a[2], what, path}, args...)...)
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("%s by %s %s: %v\n%s", what, actor, strings.Join(args, " "), err, out)
	}
}
