package jail

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Show shows files in the jail of a process, instead of what was shown at their paths. What has been removed
// on the host is shown no longer.
func Show(pid int, files ...File) error {
	user, jailed := Of(pid)
	if !jailed {
		return nil
	}
	return Thread(func() error {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil {
			return err
		}
		defer ns.Close()
		gone, err := removed(pid)
		if err != nil {
			return err
		}
		maps := idmaps{user: user}
		defer maps.close()
		var shown root
		defer func() { shown.close() }()
		for _, f := range files {
			t, err := maps.open(f)
			if err != nil {
				return fmt.Errorf("show %s: %w", f.Path, err)
			}
			shown = append(shown, t)
		}
		if err := enter(ns); err != nil {
			return err
		}
		for _, path := range gone {
			cover(path)
		}
		for _, t := range shown {
			cover(t.path)
			if err := t.place(); err != nil {
				return fmt.Errorf("show %s: %w", t.path, err)
			}
		}
		return nil
	})
}

// enter has this thread see what is in a mount namespace.
func enter(ns *os.File) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
}

// cover takes away what is shown at a path, and what that lay over. Who has it open keeps it open.
func cover(path string) {
	for unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
}

// removed are the paths in a process's jail of files that have no name on the host any more
// (proc_pid_mountinfo(5)).
func removed(pid int) (paths []string, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) > 4 && strings.HasSuffix(f[3], "//deleted") {
			paths = append(paths, unescape.Replace(f[4]))
		}
	}
	return paths, err
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
