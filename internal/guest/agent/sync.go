package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
)

// Linux does not pass sync(2) and syncfs(2) to a FUSE server like the
// workspace's (FUSE_SYNCFS is for virtiofs and block devices), but it passes
// fsync(2), and an fsync of any directory makes the whole workspace durable. So
// a machine has its own command sync before the system's in PATH.
const (
	syncCommand = "sync"
	systemSync  = "/bin/sync"
)

// runSync runs the system's sync with these arguments, and makes the workspace
// durable. It returns the exit status.
func runSync(args []string, workspace string) int {
	cmd := exec.Command(systemSync, args...)
	cmd.Args[0] = syncCommand // for its messages
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return max(ended.ExitCode(), 1)
	}
	if err == nil {
		// A user who may not read the workspace has no data in it.
		if err = syncPath(workspace); errors.Is(err, fs.ErrPermission) {
			err = nil
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sync: %v\n", err)
		return 1
	}
	return 0
}
