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

// Show shows files in the jail of a process, in place of files shown at their
// paths. It unmounts files that have been removed on the host.
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

// enter moves this thread into a mount namespace.
func enter(ns *os.File) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
}

// cover unmounts what is shown at a path, with all mounts below it there. Open files stay open.
func cover(path string) {
	for unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
}

// removed returns the paths in a process's jail of files that have been removed
// on the host (proc_pid_mountinfo(5)).
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
