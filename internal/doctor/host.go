package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

func (h host) fuse(_ context.Context, _ Options) holt.Finding {
	dev, err := os.OpenFile(h.path("dev/fuse"), os.O_RDWR, 0)
	switch {
	case os.IsNotExist(err):
		return bad("there is no /dev/fuse, so workspaces cannot be mounted here", "modprobe fuse; in a container, pass the device in")
	case err != nil:
		return bad("/dev/fuse cannot be opened: "+err.Error(), "run as root, or let this user open it")
	}
	dev.Close()
	if _, err := h.look("fusermount3"); err != nil {
		const do = "apt-get install fuse3"
		if h.uid != 0 {
			return bad("/dev/fuse is there, fusermount3 is not: only root can mount", do, "fuse3")
		}
		return warn("/dev/fuse is there, fusermount3 is not", do, "fuse3")
	}
	return ok("/dev/fuse and fusermount3")
}

func (h host) user(_ context.Context, _ Options) holt.Finding {
	if h.uid == 0 {
		return ok("root")
	}
	return warn("user id "+strconv.Itoa(h.uid)+", not root", "only root can install packages and let other users access mounts")
}

// Requirements of a host. One small machine takes 1 GiB; images and a few disks take 10 GiB.
const (
	leastMemory = 1 << 30
	goodMemory  = 3 << 30
	leastDisk   = 3 << 30
	goodDisk    = 10 << 30
)

func (h host) memory(_ context.Context, _ Options) holt.Finding {
	data, err := os.ReadFile(h.path("proc/meminfo"))
	if err != nil {
		return warn("read memory: "+err.Error(), "")
	}
	total, available := machine.ParseMeminfo(string(data))
	found := fmt.Sprintf("%s free of %s", size(available), size(total))
	switch {
	case available < leastMemory:
		return bad(found, "free some memory: a computer takes 1 GiB by default")
	case available < goodMemory:
		return warn(found, "enough for one or two computers of 1 GiB")
	}
	return ok(found)
}

func (h host) disk(_ context.Context, opt Options) holt.Finding {
	if opt.DataDir == "" {
		return ok("not checked: no data directory given")
	}
	worst := ok("")
	var found []string
	for _, dir := range []string{opt.DataDir, opt.ImageDir} {
		f := diskAt(dir)
		found = append(found, f.Found)
		if f.Verdict == holt.VerdictBad || f.Verdict == holt.VerdictWarn && worst.Verdict == holt.VerdictOK {
			worst = f
		}
	}
	if found[0] == found[1] {
		found = found[:1]
	}
	worst.Found = strings.Join(found, "; ")
	return worst
}

// diskAt checks the disk of dir, which need not exist.
func diskAt(dir string) holt.Finding {
	at, err := existing(dir)
	if err != nil {
		return bad("check the disk of "+dir+": "+err.Error(), "choose another data directory")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return warn("check the disk of "+at+": "+err.Error(), "")
	}
	free := int64(st.Bavail) * st.Bsize
	found := fmt.Sprintf("%s free at %s", size(free), at)
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return bad(at+" is not writable", "choose another data directory with "+holt.EnvDataDir+", or run as its owner")
	}
	switch {
	case free < leastDisk:
		return bad(found, "free some space, or choose a data directory on a larger disk with "+holt.EnvDataDir)
	case free < goodDisk:
		return warn(found, "images take 2 GiB, and each computer as much as it writes")
	}
	return ok(found)
}

// existing returns dir or its nearest ancestor that exists.
func existing(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

func size(n int64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%d GiB", n>>30)
}
