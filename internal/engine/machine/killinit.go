package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/guest/fusectl"
)

const (
	teardownWait = 30 * time.Second       // for the kernel to tear a machine down
	abortPoll    = 100 * time.Millisecond // between attempts to help it
)

// KillInit ends a machine whose process is PID 1 of a PID namespace and serves
// the workspace's FUSE mount, and returns when it is gone.
//
// SIGKILL alone may not suffice. A process that waits for an unanswered file
// request of the workspace, which has been read, cannot be killed. If it is a
// thread of PID 1, it keeps /dev/fuse open and thereby the connection that it
// waits for. So KillInit also aborts the connection.
func KillInit(p Process) error {
	h, err := p.Open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	connections := fuseConnections(p.PID) // not readable after the first thread has ended
	if err := h.Signal(unix.SIGKILL); err != nil && !errors.Is(err, ErrGone) {
		return fmt.Errorf("kill machine: %w", err)
	}
	tick := time.NewTicker(abortPoll)
	defer tick.Stop()
	for end := time.Now().Add(teardownWait); time.Now().Before(end); {
		for c := range connections {
			err = errors.Join(err, fusectl.Abort(c))
		}
		select {
		case <-h.Done():
			return nil
		case <-tick.C:
			connections = fuseConnections(p.PID) // it may have mounted another
		}
	}
	return holt.Errorf(holt.Timeout, "machine process %d still exists %v after SIGKILL: %w", p.PID, teardownWait, err)
}

// fuseConnections returns the numbers of the FUSE connections that are mounted
// in the process's namespace and not in ours.
func fuseConnections(pid int) map[uint32]bool {
	tables, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/mountinfo", pid)) // of any live thread
	theirs := map[uint32]bool{}
	for _, path := range tables {
		if b, err := os.ReadFile(path); err == nil {
			addFuse(theirs, b)
		}
	}
	ours := map[uint32]bool{}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	addFuse(ours, b)
	for c := range ours {
		delete(theirs, c)
	}
	return theirs
}

// addFuse adds the connections in a mount table. A connection's number is the
// minor number of its file system's device, which has major number 0. See
// proc_pid_mountinfo(5).
func addFuse(connections map[uint32]bool, mountinfo []byte) {
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := bytes.Cut(line, []byte(" - "))
		fields := bytes.Fields(before)
		if !ok || !bytes.HasPrefix(after, []byte("fuse")) || bytes.HasPrefix(after, []byte("fusectl")) || len(fields) < 3 {
			continue
		}
		minor, ok := bytes.CutPrefix(fields[2], []byte("0:"))
		if n, err := strconv.ParseUint(string(minor), 10, 32); ok && err == nil {
			connections[uint32(n)] = true
		}
	}
}

// IsInit reports whether a process is PID 1 of a PID namespace directly below this
// one. A process that it makes for a namespace further below is not, though it may
// for a moment have the same files and arguments.
func IsInit(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(status) {
		if ids, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			f := bytes.Fields(ids)
			return len(f) == 2 && string(f[1]) == "1"
		}
	}
	return false
}
