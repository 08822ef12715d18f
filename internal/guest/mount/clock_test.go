package mount

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// changesOf are the ways to change a file or a directory, with the times that
// must change: of the file, of its directory, or both.
var changesOf = []struct {
	name      string
	do        func(dir string) error
	file      string // whose mtime or ctime is the change's; "": none is left
	mtime     bool   // the file's mtime moves too
	directory bool
}{
	{"create", func(d string) error { return os.WriteFile(d+"/f", nil, 0o644) }, "f", true, true},
	{"write", func(d string) error { return os.WriteFile(d+"/f", []byte("x"), 0o644) }, "f", true, false},
	{"overwrite a set-id program", func(d string) error {
		if err := os.Chmod(d+"/f", 0o755|os.ModeSetuid); err != nil {
			return err
		}
		return os.WriteFile(d+"/f", []byte("xy"), 0o644)
	}, "f", true, false},
	{"truncate", func(d string) error { return os.Truncate(d+"/f", 100) }, "f", true, false},
	{"touch", func(d string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, d+"/f", nil, 0) }, "f", true, false},
	{"fallocate", func(d string) error {
		f, err := os.OpenFile(d+"/f", os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fallocate(int(f.Fd()), 0, 0, 8192)
	}, "f", true, false},
	{"copy_file_range", func(d string) error {
		in, err := os.Open(d + "/f")
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(d + "/copy")
		if err != nil {
			return err
		}
		defer out.Close()
		_, err = unix.CopyFileRange(int(in.Fd()), nil, int(out.Fd()), nil, 100, 0)
		return err
	}, "copy", true, true},
	{"chmod", func(d string) error { return os.Chmod(d+"/f", 0o600) }, "f", false, false},
	{"setxattr", func(d string) error { return unix.Setxattr(d+"/f", "user.a", []byte("1"), 0) }, "f", false, false},
	{"removexattr", func(d string) error { return unix.Removexattr(d+"/f", "user.a") }, "f", false, false},
	{"link", func(d string) error { return os.Link(d+"/f", d+"/g") }, "f", false, true},
	{"rename", func(d string) error { return os.Rename(d+"/g", d+"/h") }, "h", false, true},
	{"unlink", func(d string) error { return os.Remove(d + "/h") }, "f", false, true},
	{"symlink", func(d string) error { return os.Symlink("f", d+"/l") }, "l", true, true},
	{"mkdir", func(d string) error { return os.Mkdir(d+"/d", 0o755) }, "d", true, true},
	{"rmdir", func(d string) error { return os.Remove(d + "/d") }, "", false, true},
	{"mknod", func(d string) error { return unix.Mknod(d+"/p", unix.S_IFIFO|0o644, 0) }, "p", true, true},
	{"tmpfile", func(d string) error {
		fd, err := unix.Open(d, unix.O_TMPFILE|unix.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, d+"/t", unix.AT_SYMLINK_FOLLOW)
	}, "t", true, true},
}

// stampedNow checks that every change gets a time of the requesting kernel's
// clock, between the values before and after the call.
func stampedNow(t *testing.T, dir string, clock func() int64) {
	for _, c := range changesOf {
		before := clock()
		if err := c.do(dir); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		after := clock()
		check := func(what, path string, mtime bool) {
			var st unix.Statx_t
			if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_ALL, &st); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			times := map[string]unix.StatxTimestamp{"ctime": st.Ctime}
			if mtime {
				times["mtime"] = st.Mtime
			}
			for name, is := range times {
				if ns := is.Sec*1e9 + int64(is.Nsec); ns < before || ns > after {
					t.Errorf("%s: %s of %s is %v after the clock before and %v after the clock behind", c.name, name, what,
						time.Duration(ns-before), time.Duration(ns-after))
				}
			}
		}
		if c.file != "" {
			check("the file", filepath.Join(dir, c.file), c.mtime)
		}
		if c.directory {
			check("its directory", dir, true)
		}
	}
}

// TestClock: no file is newer than the clock of its kernel, whatever that clock is.
func TestClock(t *testing.T) {
	t.Run("host", func(t *testing.T) {
		stampedNow(t, hostMount(t, newWorkspace(t), HostOptions{}), coarse)
	})
	for name, off := range map[string]time.Duration{"guest": 0, "guest 20 ms behind": -20 * time.Millisecond,
		"guest that was paused": -time.Hour, "guest with date -s": 24 * time.Hour, "guest in 1965": -61 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			ws, k := newWorkspace(t), newKernel(t)
			k.clock = func() int64 { return coarse() + int64(off) }
			serveGuest(t, ws, k, GuestOptions{})
			stampedNow(t, k.dir, k.clock)

			// Changes by the API to the mounted workspace are not in the future either.
			root := workspace.Files{Tree: ws.Tree()}
			info, err := root.Mkdir("/api", 0o755, false)
			if err != nil {
				t.Fatal(err)
			}
			if now := k.clock(); info.ModTime.UnixNano() > now || info.ModTime.UnixNano() < now-int64(time.Second) {
				t.Errorf("a directory that the API made is %v ahead", time.Duration(info.ModTime.UnixNano()-now))
			}
		})
	}
}
