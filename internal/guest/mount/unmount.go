package mount

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/guest/fusectl"
)

const (
	syncWait   = 10 * time.Second       // for dirty pages of memory maps
	letGoWait  = 200 * time.Millisecond // for a mount that is not busy
	abortWait  = 5 * time.Second        // for requests in progress
	lookWait   = 2 * time.Second        // for the answer of a mount that may be dead
	helperWait = 5 * time.Second        // for fusermount3
)

// Unmount ends the mount within a few seconds, even if it is busy: its users
// get ENOTCONN. Dirty pages of memory maps are written back first, if that is
// quick. It returns Timeout when a request in progress does not end; the mount
// is gone nevertheless.
func (m *HostMount) Unmount() error {
	select {
	case <-m.done:
		return nil
	default:
	}
	if err := m.WriteBack(context.Background()); err != nil {
		m.log.Warn("cannot sync host mount before unmounting it", "dir", m.dir, "err", err)
	}
	err := detach(m.dir)
	if m.waitDone(letGoWait) {
		return nil
	}
	// A process or another mount namespace uses it: do not wait for that.
	if abortErr := fusectl.Abort(m.dev); abortErr != nil {
		err = errors.Join(err, abortErr)
	}
	if m.waitDone(abortWait) {
		return nil
	}
	return holt.Errorf(holt.Timeout, "unmount %s: the kernel does not release the mount: %w", m.dir, errors.Join(err, context.DeadlineExceeded))
}

func (m *HostMount) waitDone(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-m.done:
		return true
	case <-t.C:
		return false
	}
}

// WriteBack makes the kernel write dirty pages of memory maps. Another process
// requests it: see Host. It takes at most 10 s, and ends with the mount.
func (m *HostMount) WriteBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	synced := make(chan error, 1)
	go func() {
		out, err := exec.CommandContext(ctx, "sync", "-f", m.dir).CombinedOutput()
		if err != nil {
			err = holt.Errorf(holt.Unavailable, "sync %s: %w: %s", m.dir, err, bytes.TrimSpace(out))
		}
		synced <- err
	}()
	select {
	case err := <-synced:
		return err
	case <-m.done:
		return nil
	case <-ctx.Done(): // the process may hang until the connection is aborted
		return holt.Errorf(holt.Timeout, "sync %s: %w", m.dir, ctx.Err())
	}
}

// detach unmounts dir, even if it is busy.
func detach(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if err == nil || err == unix.EINVAL { // EINVAL: nothing is mounted there
		return nil
	}
	if err != unix.EPERM {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperWait)
	defer cancel()
	out, err := exec.CommandContext(ctx, "fusermount3", "-u", "-z", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("unmount %s: fusermount3: %w: %s", dir, err, bytes.TrimSpace(out))
	}
	return nil
}

// Clear unmounts dead mounts of a killed daemon on dir: FUSE mounts that return
// ENOTCONN. It does nothing if there is none. It does not wait: it returns
// Unavailable if a mount there does not respond at all.
func Clear(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("clear dead mount: %w", err)
	}
	for { // mounts may be stacked
		mi, ok, err := findMount(dir)
		if err != nil {
			return fmt.Errorf("clear dead mount: %w", err)
		}
		if !ok || !strings.HasPrefix(mi.kind, "fuse") {
			return nil
		}
		looked := make(chan error, 1)
		go func() {
			var st unix.Statfs_t // stat(2) may be answered from the kernel's cache
			looked <- unix.Statfs(dir, &st)
		}()
		t := time.NewTimer(lookWait)
		select {
		case err = <-looked:
			t.Stop()
		case <-t.C:
			return holt.Errorf(holt.Unavailable, "the file system mounted on %s does not respond", dir).
				WithHint("check whether another daemon serves it, or unmount it with umount -l %s", dir)
		}
		if err != unix.ENOTCONN && err != unix.ECONNABORTED {
			return nil
		}
		if err := detach(dir); err != nil {
			return err
		}
	}
}

// End ends a mount of holt on dir that cannot be served: its users get ENOTCONN.
func End(dir string) error {
	mi, ok, err := findMount(dir)
	if err != nil || !ok || mi.kind != "fuse.holt" {
		return err
	}
	return errors.Join(fusectl.Abort(mi.minor), detach(dir))
}

// mounted is a line of /proc/self/mountinfo.
type mounted struct {
	minor uint32
	kind  string // file system type, such as fuse.holt
}

// findMount returns the topmost mount on dir. It does not access the file system.
func findMount(dir string) (mounted, bool, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return mounted{}, false, err
	}
	defer f.Close()
	return scanMounts(f, dir)
}

func scanMounts(r io.Reader, dir string) (found mounted, ok bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		front, back, cut := strings.Cut(lines.Text(), " - ")
		f := strings.Fields(front)
		if !cut || len(f) < 5 || unescape(f[4]) != dir {
			continue
		}
		_, minor, _ := strings.Cut(f[2], ":")
		n, err := strconv.ParseUint(minor, 10, 32)
		if err != nil {
			continue
		}
		kind, _, _ := strings.Cut(back, " ")
		found, ok = mounted{minor: uint32(n), kind: kind}, true
	}
	return found, ok, lines.Err()
}

// unescape decodes the octal escapes of mountinfo (\040 for a space).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
