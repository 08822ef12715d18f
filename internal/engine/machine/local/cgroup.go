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

// cgroupName is the directory under the cgroup2 mount in which the agent of
// the machine in dir makes the cgroups of its runs. The same directory has the
// same name, so a machine that ended while nobody watched is swept later.
func cgroupName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("holt-local-%x", sum[:8])
}

// sweepCgroups removes what a machine that has ended left in cgroup2. Cgroups
// in which something lives stay.
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
		return nil // most often there is nothing
	})
	for i := len(dirs) - 1; i >= 0; i-- { // children come after their parents
		unix.Rmdir(dirs[i])
	}
}

// cgroupMount returns where cgroup2 is mounted, "" if it is not.
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
