package mount

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/store/journal"
	"holt/internal/workspace"
)

// failing makes all calls of one kind fail.
func failing(disk *journal.FaultDisk, kind journal.Op, err error) {
	disk.SetHook(func(op journal.Op, _ string, n int) (int, error) {
		if op == kind {
			return 0, err
		}
		return n, nil
	})
}

// TestErrorsFromBelow: a program gets errors of the underlying disk, once; then
// the file system is usable again.
func TestErrorsFromBelow(t *testing.T) {
	for _, fault := range []unix.Errno{unix.ENOSPC, unix.EIO} {
		t.Run(fault.Error(), func(t *testing.T) {
			disk := journal.NewFaultDisk()
			onBothWith(t, workspace.Options{Disk: disk}, func(t *testing.T, _ *workspace.Workspace, dir string) {
				errorsFromBelow(t, disk, fault, dir)
			})
		})
	}
}

func errorsFromBelow(t *testing.T, disk *journal.FaultDisk, fault unix.Errno, dir string) {
	path := filepath.Join(dir, "f")
	fd := openFile(t, path, unix.O_CREAT|unix.O_RDWR)
	write := func(content string, want error) {
		t.Helper()
		if _, err := unix.Pwrite(fd, []byte(content), 0); err != want {
			t.Errorf("write %q: %v, want %v", content, err, want)
		}
	}
	sync := func(want error) {
		t.Helper()
		if err := unix.Fsync(fd); err != want {
			t.Errorf("fsync: %v, want %v", err, want)
		}
	}
	write("before", nil)
	sync(nil)
	failing(disk, journal.OpWrite, fault)
	write("LOST", fault)
	if err := unix.Mkdir(filepath.Join(dir, "d"), 0o755); err != fault {
		t.Errorf("mkdir: %v, want %v", err, fault)
	}
	if err := unix.Rename(path, path+"2"); err != fault {
		t.Errorf("rename: %v, want %v", err, fault)
	}
	disk.SetHook(nil)
	sync(nil) // the write has said it
	if got := readFile(t, path); got != "before" {
		t.Errorf("read %q after a write that failed", got)
	}
	write("middle", nil)
	failing(disk, journal.OpSync, fault)
	sync(fault)
	disk.SetHook(nil)
	sync(nil)
	if err := unix.Close(fd); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := readFile(t, path); got != "middle" {
		t.Errorf("read %q after a sync that failed", got)
	}
	mapped(t, disk, fault, filepath.Join(dir, "mapped"))
}

// mapped writes through a map, in another process, while the disk fails.
func mapped(t *testing.T, disk *journal.FaultDisk, fault unix.Errno, path string) {
	writeFile(t, path, strings.Repeat("o", 8192))
	cmd := helper(t, "faults", path)
	in, _ := cmd.StdinPipe()
	pipe, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	out := bufio.NewReader(pipe)
	next := func(do, want string) {
		t.Helper()
		io.WriteString(in, do+"\n")
		if line, _ := out.ReadString('\n'); line != want+"\n" {
			t.Errorf("%s through a map: %q, want %q", do, line, want)
		}
	}
	failing(disk, journal.OpWrite, fault) // first: a sync of another test's may write the page back at once
	next("write", "ok")
	next("fsync", fault.Error())
	disk.SetHook(nil)
	next("fsync", "ok")
	next("write", "ok")
	next("fsync", "ok")
	if got := readFile(t, path); strings.Count(got, "w") != 2 {
		t.Errorf("%d bytes came through the map, want 2", strings.Count(got, "w"))
	}
}

// mapFaults is the helper "faults": it does to a map of a file what each line
// of its input says, and prints the result.
func mapFaults(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	p, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	written := 0
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var err error
		switch lines.Text() {
		case "write":
			p[written*4096] = 'w'
			written++
		case "fsync":
			err = unix.Fsync(fd)
		}
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok")
		}
	}
	return nil
}

// TestQuotaInMounts: exceeding a quota fails as in other file systems.
func TestQuotaInMounts(t *testing.T) {
	opt := workspace.Options{Quota: holt.Quota{Bytes: 64 << 10, Files: 4}}
	onBothWith(t, opt, func(t *testing.T, ws *workspace.Workspace, dir string) {
		path := func(name string) string { return filepath.Join(dir, name) }
		fd := openFile(t, path("a"), unix.O_CREAT|unix.O_RDWR)
		write := func(n int, off int64, want error) {
			t.Helper()
			if _, err := unix.Pwrite(fd, make([]byte, n), off); err != want {
				t.Errorf("%d bytes at %d: %v, want %v", n, off, err, want)
			}
		}
		write(60<<10, 0, nil)
		write(8<<10, 60<<10, unix.EDQUOT)
		write(60<<10, 0, nil) // over what is there
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil || st.Blocks*uint64(st.Frsize) != 64<<10 || st.Bavail*uint64(st.Frsize) != 4<<10 || st.Files != 4 || st.Ffree != 2 {
			t.Errorf("statfs %+v, %v", st, err)
		}
		if err := unix.Mkdir(path("b"), 0o755); err != nil {
			t.Error(err)
		}
		if err := unix.Symlink("x", path("c")); err != nil {
			t.Error(err)
		}
		for what, err := range map[string]error{"mkdir": unix.Mkdir(path("d"), 0o755), "mknod": unix.Mknod(path("d"), unix.S_IFREG|0o644, 0),
			"symlink": unix.Symlink("x", path("d"))} {
			if err != unix.EDQUOT {
				t.Errorf("%s: %v, want EDQUOT", what, err)
			}
		}
		for _, flags := range []int{unix.O_CREAT, unix.O_TMPFILE} {
			at := path("d")
			if flags == unix.O_TMPFILE {
				at = dir
			}
			if _, err := unix.Open(at, flags|unix.O_RDWR|unix.O_CLOEXEC, 0o644); err != unix.EDQUOT {
				t.Errorf("open with %#x: %v, want EDQUOT", flags, err)
			}
		}
		if err := unix.Unlink(path("c")); err != nil {
			t.Error(err)
		}
		if err := unix.Ftruncate(fd, 0); err != nil {
			t.Error(err)
		}
		for end := time.Now().Add(10 * time.Minute); ws.Stat().Orphans > 0; runtime.Gosched() { // the kernel forgets in its own time
			if time.Now().After(end) {
				t.Fatal("the kernel never forgot what was removed")
			}
		}
		write(60<<10, 0, nil)
		if err := unix.Mkdir(path("d"), 0o755); err != nil {
			t.Errorf("after one was removed: %v", err)
		}
	})
}
