package local

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cgroupName returns the directory under the cgroup2 mount in which the agent
// of the machine in dir creates the cgroups of its runs. The name depends only
// on dir, so that a later daemon can clean up after a machine that ended while
// no daemon ran.
func cgroupName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("holt-local-%x", sum[:8])
}

// sweepCgroups removes the cgroups of a machine that has ended, except those with processes.
func sweepCgroups(dir string) {
	root := cgroupMount()
	if root == "" {
		return
	}
	var dirs []string
	filepath.WalkDir(filepath.Join(root, cgroupName(dir)), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // usually there is none
	})
	for i := len(dirs) - 1; i >= 0; i-- { // children are after their parents
		unix.Rmdir(dirs[i])
	}
}

// cgroupMount returns the mount point of cgroup2, or "".
func cgroupMount() string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(mounts) {
		// device point type options…
		if f := bytes.Fields(line); len(f) > 2 && string(f[2]) == "cgroup2" {
			return string(f[1])
		}
	}
	return ""
}
