package mount

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// onBoth runs a test on a workspace mounted by the host and on one mounted by a guest.
func onBoth(t *testing.T, test func(t *testing.T, ws *workspace.Workspace, dir string)) {
	t.Helper()
	onBothWith(t, workspace.Options{}, test)
}

func onBothWith(t *testing.T, opt workspace.Options, test func(t *testing.T, ws *workspace.Workspace, dir string)) {
	t.Helper()
	t.Run("host", func(t *testing.T) {
		ws := newWorkspaceWith(t, opt)
		test(t, ws, hostMount(t, ws, HostOptions{}))
	})
	t.Run("guest", func(t *testing.T) {
		ws, k := newWorkspaceWith(t, opt), newKernel(t)
		serveGuest(t, ws, k, GuestOptions{})
		test(t, ws, k.dir)
	})
}

// excused are the tests of go-fuse that no Linux file system passes, with the
// reason. TestExcused verifies that on the host's.
func excused() map[string]string {
	return map[string]string{"FcntlFlockLocksFile": "wants a process to be refused by its own POSIX lock"}
}

// TestPosix runs go-fuse's POSIX tests.
func TestPosix(t *testing.T) {
	for name, test := range posixtest.All {
		if excused()[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, _ *workspace.Workspace, dir string) {
				t.Cleanup(func() {
					if t.Skipped() {
						t.Error("go-fuse's test found that the mount cannot do this")
					}
				})
				test(t, dir)
			})
		})
	}
}

// TestExcused checks that the host's own file system fails the excused tests.
// It runs this program again, since a test cannot observe the failure of
// another.
func TestExcused(t *testing.T) {
	if name := os.Getenv("MOUNT_TEST_EXCUSED"); name != "" {
		posixtest.All[name](t, t.TempDir())
		return
	}
	for name := range excused() {
		if posixtest.All[name] == nil {
			t.Fatalf("go-fuse has no test %s", name)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestExcused$", "-test.v")
		cmd.Env = append(os.Environ(), "MOUNT_TEST_EXCUSED="+name)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--- FAIL: TestExcused") {
			t.Errorf("%s is excused, and the host's file system passes it: %v\n%s", name, err, out)
		}
	}
}

func openFile(t testing.TB, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func stat(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("stat %s: %v", path, err)
	}
	return st
}

func TestRenameFlags(t *testing.T) { onBoth(t, renameFlags) }

func renameFlags(t *testing.T, _ *workspace.Workspace, dir string) {
	a, b, sub := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "sub")
	writeFile(t, a, "A")
	writeFile(t, b, "B")
	rename := func(from, to string, flags uint) error {
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	}
	if err := rename(a, b, unix.RENAME_NOREPLACE); err != unix.EEXIST {
		t.Errorf("NOREPLACE over a file: %v", err)
	}
	if err := rename(a, b, unix.RENAME_EXCHANGE); err != nil {
		t.Errorf("EXCHANGE: %v", err)
	}
	if readFile(t, a) != "B" || readFile(t, b) != "A" {
		t.Error("EXCHANGE did not exchange")
	}
	if err := rename(a, filepath.Join(dir, "c"), unix.RENAME_EXCHANGE); err != unix.ENOENT {
		t.Errorf("EXCHANGE with nothing: %v", err)
	}
	if err := rename(a, filepath.Join(dir, "c"), unix.RENAME_NOREPLACE); err != nil {
		t.Errorf("NOREPLACE to a free name: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(sub, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := rename(sub, filepath.Join(sub, "deep", "loop"), 0); err != unix.EINVAL {
		t.Errorf("into itself: %v", err)
	}
	if err := rename(b, sub, 0); err != unix.EISDIR {
		t.Errorf("file over directory: %v", err)
	}
	if err := rename(sub, b, 0); err != unix.ENOTDIR {
		t.Errorf("directory over file: %v", err)
	}
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := rename(sub, full, 0); err != unix.ENOTEMPTY && err != unix.EEXIST {
		t.Errorf("over a directory that is not empty: %v", err)
	}
	// A file and a directory are exchanged, and a directory moves to another parent.
	if err := rename(b, full, unix.RENAME_EXCHANGE); err != nil {
		t.Errorf("EXCHANGE of file and directory: %v", err)
	}
	if st := stat(t, filepath.Join(b, "x")); st.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.Error("the directory did not move")
	}
	before := stat(t, dir).Nlink
	if err := rename(sub, filepath.Join(b, "sub"), 0); err != nil {
		t.Error(err)
	}
	if after := stat(t, dir).Nlink; after != before-1 {
		t.Errorf("parent has %d links after a subdirectory left, had %d", after, before)
	}
}

func TestAppendFromTwoProcesses(t *testing.T) { onBoth(t, appendFromTwoProcesses) }

func appendFromTwoProcesses(t *testing.T, _ *workspace.Workspace, dir string) {
	const each = 500
	sh(t, dir, fmt.Sprintf(`w() { for i in $(seq %d); do echo "$1 $i"; done >> log; }; w a & w b & wait`, each))
	seen := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(readFile(t, filepath.Join(dir, "log"))), "\n") {
		seen[line] = true
	}
	if len(seen) != 2*each {
		t.Errorf("%d whole lines, want %d", len(seen), 2*each)
	}
	// The same with O_APPEND descriptors that each write in small pieces.
	var writers sync.WaitGroup
	for w := range 4 {
		fd := openFile(t, filepath.Join(dir, "log2"), unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND)
		writers.Go(func() {
			for i := range each {
				if _, err := unix.Write(fd, []byte(fmt.Sprintf("%d-%04d\n", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	lines := strings.Split(strings.TrimSpace(readFile(t, filepath.Join(dir, "log2"))), "\n")
	sort.Strings(lines)
	if len(lines) != 4*each || lines[0] != "0-0000" || lines[len(lines)-1] != fmt.Sprintf("3-%04d", each-1) {
		t.Errorf("%d lines", len(lines))
	}
}

func TestSharedMap(t *testing.T) { onBoth(t, sharedMap) }

func sharedMap(t *testing.T, ws *workspace.Workspace, dir string) {
	path := filepath.Join(dir, "mapped")
	const size = 3*4096 + 100
	fd := openFile(t, path, unix.O_CREAT|unix.O_RDWR)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	// MAP_POPULATE: a page fault on a mount that this process serves itself would
	// block one of its processors.
	p, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	copy(p[4090:], "across pages")
	p[size-1] = 'z'
	if got := readFile(t, path); got[4090:4102] != "across pages" || got[size-1] != 'z' {
		t.Error("read(2) does not see the map")
	}
	if _, err := unix.Pwrite(fd, []byte("by write"), 8192); err != nil {
		t.Fatal(err)
	}
	if string(p[8192:8200]) != "by write" {
		t.Error("the map does not see write(2)")
	}
	if err := unix.Msync(p, unix.MS_SYNC); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, size)
	a, err := ws.Tree().GetAttr(2)
	if err != nil || a.Size != size {
		t.Errorf("workspace: size %d, %v", a.Size, err)
	}
	if n, err := ws.Tree().Read(2, 0, buf); err != nil || n != size || !bytes.Equal(buf, p) {
		t.Errorf("the workspace has not what the map has: %d, %v", n, err)
	}
	if err := unix.Munmap(p); err != nil {
		t.Fatal(err)
	}
}

func TestLocks(t *testing.T) { onBoth(t, locks) }

func locks(t *testing.T, _ *workspace.Workspace, dir string) {
	path := filepath.Join(dir, "lock")
	writeFile(t, path, "x")
	one, two := openFile(t, path, unix.O_RDWR), openFile(t, path, unix.O_RDWR)
	if err := unix.Flock(one, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(two, unix.LOCK_SH|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("flock held twice: %v", err)
	}
	if err := unix.Flock(one, unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(one), unix.F_OFD_SETLK, &whole); err != nil {
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(uintptr(two), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}); err != unix.EAGAIN && err != unix.EACCES {
		t.Errorf("OFD lock held twice: %v", err)
	}
	unlock := unix.Flock_t{Type: unix.F_UNLCK}
	if err := unix.FcntlFlock(uintptr(one), unix.F_OFD_SETLK, &unlock); err != nil {
		t.Fatal(err)
	}
	// POSIX locks belong to processes: another process must be refused.
	if err := unix.FcntlFlock(uintptr(one), unix.F_SETLK, &whole); err != nil {
		t.Fatal(err)
	}
	const try = `import fcntl,sys
f=open(sys.argv[1],'r+')
try:
    fcntl.lockf(f, fcntl.LOCK_EX|fcntl.LOCK_NB); print("got")
except OSError: print("refused")`
	if out, err := exec.Command("python3", "-c", try, path).CombinedOutput(); err != nil || string(out) != "refused\n" {
		t.Errorf("POSIX lock of another process: %q, %v", out, err)
	}
}

func TestUnlinkedOpenFile(t *testing.T) { onBoth(t, unlinkedButOpen) }

func unlinkedButOpen(t *testing.T, ws *workspace.Workspace, dir string) {
	path := filepath.Join(dir, "gone")
	fd := openFile(t, path, unix.O_CREAT|unix.O_RDWR)
	if _, err := unix.Write(fd, []byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink != 0 {
		t.Errorf("fstat: %d links, %v", st.Nlink, err)
	}
	if _, err := unix.Write(fd, []byte(" and after")); err != nil {
		t.Errorf("write: %v", err)
	}
	if err := unix.Ftruncate(fd, 12); err != nil {
		t.Errorf("truncate: %v", err)
	}
	// Nothing may come from the kernel's cache.
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 64)
	if n, err := unix.Pread(fd, buf, 0); err != nil || string(buf[:n]) != "before and a" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if n := ws.Stat().Orphans; n != 1 {
		t.Errorf("%d orphans", n)
	}
	// A directory is removed while it is a process's working directory.
	sub := filepath.Join(dir, "cwd")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, sub, `rmdir "$PWD"; ! touch x 2>/dev/null; [ -z "$(ls -A)" ]`)
}

// TestTmpfile creates files without a name, and links some.
func TestTmpfile(t *testing.T) { onBoth(t, tmpfile) }

func tmpfile(t *testing.T, ws *workspace.Workspace, dir string) {
	sub, path := filepath.Join(dir, "sub"), filepath.Join(dir, "sub", "named")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	fd := openFile(t, sub, unix.O_TMPFILE|unix.O_RDWR)
	if _, err := unix.Write(fd, []byte("whole or not at all")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fsync(fd); err != nil {
		t.Error(err)
	}
	if n := ws.Stat().Orphans; n != 1 {
		t.Errorf("%d files without a name", n)
	}
	checkpointed(t, ws, "before")
	self := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW); err != nil {
		t.Fatal(err)
	}
	if st := stat(t, path); st.Nlink != 1 || readFile(t, path) != "whole or not at all" || ws.Stat().Orphans != 0 {
		t.Errorf("%d links, %d files without a name", st.Nlink, ws.Stat().Orphans)
	}
	var created []string
	err := ws.Diff(t.Context(), "before", "", workspace.DiffOptions{}, func(c workspace.Change) error {
		if c.Kind == workspace.ChangeCreated {
			created = append(created, c.Path)
		}
		return nil
	})
	if err != nil || len(created) != 1 || created[0] != "/sub/named" {
		t.Errorf("created since: %q, %v", created, err)
	}
	for flag, want := range map[int]error{unix.O_EXCL: unix.ENOENT, 0: nil} {
		fd := openFile(t, dir, unix.O_TMPFILE|unix.O_RDWR|flag)
		err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, filepath.Join(dir, fmt.Sprint(flag)), unix.AT_SYMLINK_FOLLOW)
		if err != want {
			t.Errorf("link with flag %#x: %v, want %v", flag, err, want)
		}
	}
	if _, err := unix.Open(filepath.Join(dir, ".holt/checkpoints/before/sub"), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err != unix.EROFS {
		t.Errorf("in the past: %v", err)
	}
}

func TestTruncate(t *testing.T) { onBoth(t, truncate) }

func truncate(t *testing.T, _ *workspace.Workspace, dir string) {
	path := filepath.Join(dir, "f")
	writeFile(t, path, strings.Repeat("x", 10000))
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 9000); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("x", 5000) + strings.Repeat("\x00", 4000); readFile(t, path) != want {
		t.Error("a grown file does not read as zeros where it was cut")
	}
	fd := openFile(t, path, unix.O_WRONLY|unix.O_TRUNC)
	if st := stat(t, path); st.Size != 0 {
		t.Errorf("O_TRUNC left %d bytes", st.Size)
	}
	if _, err := unix.Pwrite(fd, []byte("end"), 6000); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("\x00", 6000) + "end"; readFile(t, path) != want {
		t.Error("what was before O_TRUNC came back")
	}
	ro := openFile(t, path, unix.O_RDONLY)
	if err := unix.Ftruncate(ro, 0); err != unix.EINVAL {
		t.Errorf("truncate of what was opened for reading: %v", err)
	}
}

func TestSparse(t *testing.T) { onBoth(t, sparse) }

func sparse(t *testing.T, _ *workspace.Workspace, dir string) {
	path := filepath.Join(dir, "sparse")
	fd := openFile(t, path, unix.O_CREAT|unix.O_RDWR)
	const far = 100 << 30
	if _, err := unix.Pwrite(fd, []byte("data"), far); err != nil {
		t.Fatal(err)
	}
	if st := stat(t, path); st.Size != far+4 || st.Blocks > 16 {
		t.Errorf("size %d, %d blocks", st.Size, st.Blocks)
	}
	seek := func(off int64, whence int) int64 {
		n, err := unix.Seek(fd, off, whence)
		if err != nil {
			t.Errorf("seek %d from %d: %v", whence, off, err)
		}
		return n
	}
	if at := seek(0, unix.SEEK_DATA); at > far || at < far-1<<20 {
		t.Errorf("data at %d, want %d", at, int64(far))
	}
	if at := seek(0, unix.SEEK_HOLE); at != 0 {
		t.Errorf("hole at %d", at)
	}
	if at := seek(far, unix.SEEK_HOLE); at != far+4 {
		t.Errorf("last hole at %d", at)
	}
	if _, err := unix.Seek(fd, far+4, unix.SEEK_DATA); err != unix.ENXIO {
		t.Errorf("data behind the end: %v", err)
	}
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(fd, punch, far-4096, 4096+2); err != nil {
		t.Fatalf("punch: %v", err)
	}
	buf := make([]byte, 8)
	if n, err := unix.Pread(fd, buf, far); err != nil || string(buf[:n]) != "\x00\x00ta" {
		t.Errorf("after the punch: %q, %v", buf[:n], err)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20); err != nil {
		t.Errorf("preallocate: %v", err)
	}
	if err := unix.Fallocate(fd, 0, far, 1<<20); err != nil || stat(t, path).Size != far+1<<20 {
		t.Errorf("allocate: size %d, %v", stat(t, path).Size, err)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, far, 4); err != nil {
		t.Errorf("zero: %v", err)
	}
	if n, err := unix.Pread(fd, buf[:4], far); err != nil || n != 4 || string(buf[:4]) != "\x00\x00\x00\x00" {
		t.Errorf("after the zeroing: %q, %v", buf[:n], err)
	}
}

func TestCopyRange(t *testing.T) { onBoth(t, copyRange) }

func copyRange(t *testing.T, ws *workspace.Workspace, dir string) {
	content := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{1}).Read(content)
	writeFile(t, filepath.Join(dir, "src"), string(content))
	before := ws.Stat().Allocated
	sh(t, dir, "cp --reflink=never --sparse=never src plain; cmp src plain; cp src copy; cmp src copy")
	in, out := openFile(t, filepath.Join(dir, "src"), unix.O_RDONLY), openFile(t, filepath.Join(dir, "dst"), unix.O_CREAT|unix.O_RDWR)
	for left := len(content); left > 0; {
		n, err := unix.CopyFileRange(in, nil, out, nil, left, 0)
		if err != nil || n == 0 {
			t.Fatalf("copy_file_range: %d, %v", n, err)
		}
		left -= n
	}
	if readFile(t, filepath.Join(dir, "dst")) != string(content) {
		t.Error("the copy differs")
	}
	journal := ws.Stat().JournalBytes
	t.Logf("allocated %d before, %d after; journal %d", before, ws.Stat().Allocated, journal)
	if journal > 6<<20+256<<10 { // src and plain, which was told to copy; no copy more
		t.Errorf("copies wrote bytes: the journal has %d", journal)
	}
}

func TestHardLinks(t *testing.T) { onBoth(t, hardLinks) }

func hardLinks(t *testing.T, _ *workspace.Workspace, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	writeFile(t, a, "one inode")
	if err := os.Link(a, b); err != nil {
		t.Fatal(err)
	}
	sa, sb := stat(t, a), stat(t, b)
	if sa.Ino != sb.Ino || sa.Nlink != 2 || sb.Nlink != 2 {
		t.Errorf("inodes %d and %d, links %d and %d", sa.Ino, sb.Ino, sa.Nlink, sb.Nlink)
	}
	writeFile(t, b, "changed")
	if readFile(t, a) != "changed" {
		t.Error("the names do not share their bytes")
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	if st := stat(t, b); st.Nlink != 1 || readFile(t, b) != "changed" {
		t.Errorf("%d links after one is gone", st.Nlink)
	}
	if err := os.Link(dir, filepath.Join(dir, "c")); !errors.Is(err, unix.EPERM) {
		t.Errorf("link to a directory: %v", err)
	}
}

func TestXattrs(t *testing.T) { onBoth(t, xattrs) }

func xattrs(t *testing.T, _ *workspace.Workspace, dir string) {
	path := filepath.Join(dir, "f")
	writeFile(t, path, "x")
	buf := make([]byte, 1<<16)
	if _, err := unix.Getxattr(path, "user.none", buf); err != unix.ENODATA {
		t.Errorf("absent: %v", err)
	}
	big := strings.Repeat("v", 60000)
	for name, value := range map[string]string{"user.tag": "urgent", "user.empty": "", "user.big": big, "trusted.t": "\x00\xff"} {
		if err := unix.Setxattr(path, name, []byte(value), unix.XATTR_CREATE); err != nil {
			t.Errorf("set %s: %v", name, err)
		}
		if n, err := unix.Getxattr(path, name, buf); err != nil || string(buf[:n]) != value {
			t.Errorf("get %s: %d bytes, %v", name, n, err)
		}
		if n, err := unix.Getxattr(path, name, nil); err != nil || n != len(value) {
			t.Errorf("size of %s: %d, %v", name, n, err)
		}
	}
	if err := unix.Setxattr(path, "user.tag", []byte("x"), unix.XATTR_CREATE); err != unix.EEXIST {
		t.Errorf("create twice: %v", err)
	}
	if err := unix.Setxattr(path, "user.none", []byte("x"), unix.XATTR_REPLACE); err != unix.ENODATA {
		t.Errorf("replace nothing: %v", err)
	}
	if _, err := unix.Getxattr(path, "user.big", buf[:100]); err != unix.ERANGE {
		t.Errorf("short buffer: %v", err)
	}
	n, err := unix.Listxattr(path, buf)
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	if want := []string{"trusted.t", "user.big", "user.empty", "user.tag"}; err != nil || strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("list: %q, %v", names, err)
	}
	if err := unix.Removexattr(path, "user.tag"); err != nil {
		t.Error(err)
	}
	if err := unix.Removexattr(path, "user.tag"); err != unix.ENODATA {
		t.Errorf("remove twice: %v", err)
	}
	if err := unix.Setxattr(path, "system.other", []byte("x"), 0); err != unix.ENOTSUP {
		t.Errorf("an attribute of the system: %v", err)
	}
}

func TestTimes(t *testing.T) { onBoth(t, times) }

// tick waits until a file time differs from an earlier one.
func tick() {
	for now := coarse(); coarse() == now; {
		time.Sleep(time.Millisecond)
	}
}

func times(t *testing.T, _ *workspace.Workspace, dir string) {
	path := filepath.Join(dir, "f")
	writeFile(t, path, "x")
	at := func(a, m unix.Timespec) unix.Stat_t {
		t.Helper()
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{a, m}, 0); err != nil {
			t.Fatal(err)
		}
		return stat(t, path)
	}
	omit := unix.Timespec{Nsec: unix.UTIME_OMIT}
	late, early := unix.Timespec{Sec: 4102444800, Nsec: 123456789}, unix.Timespec{Sec: -12345, Nsec: 999999999}
	if st := at(late, early); st.Atim != late || st.Mtim != early {
		t.Errorf("times %v and %v", st.Atim, st.Mtim)
	}
	before := stat(t, path)
	tick()
	if st := at(omit, late); st.Atim != late || st.Mtim != late || st.Ctim == before.Ctim {
		t.Errorf("omit: %v, %v; ctime %v, was %v", st.Atim, st.Mtim, st.Ctim, before.Ctim)
	}
	now := time.Now().Unix()
	if st := at(unix.Timespec{Nsec: unix.UTIME_NOW}, omit); st.Atim.Sec < now-1 || st.Mtim != late {
		t.Errorf("now: %v, %v", st.Atim, st.Mtim)
	}
	var sx unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME|unix.STATX_BASIC_STATS, &sx); err != nil {
		t.Fatal(err)
	}
	if sx.Mask&unix.STATX_BTIME == 0 || sx.Btime.Sec < now-3600 || sx.Btime.Sec > now+1 {
		t.Errorf("born at %d (mask %#x), now is %d", sx.Btime.Sec, sx.Mask, now)
	}
	// Each change updates ctime; a write updates mtime.
	old := stat(t, path)
	for _, script := range []string{"chmod 600 f", "ln f g", "mv g h", "setfattr -n user.a -v b f 2>/dev/null || python3 -c 'import os; os.setxattr(\"f\", \"user.a\", b\"b\")'", "echo y >> f"} {
		tick()
		sh(t, dir, script)
		st := stat(t, path)
		if st.Ctim == old.Ctim {
			t.Errorf("%s: ctime did not move", script)
		}
		old = st
	}
	if old.Mtim.Sec < now-1 || old.Mtim == late {
		t.Errorf("the write left mtime at %v", old.Mtim)
	}
}

func TestNames(t *testing.T) { onBoth(t, names) }

func names(t *testing.T, _ *workspace.Workspace, dir string) {
	var odd []string
	for c := 1; c < 256; c++ {
		if c != '/' {
			odd = append(odd, strings.Repeat(string([]byte{byte(c)}), 255), "x"+string([]byte{byte(c)}))
		}
	}
	odd = append(odd, "...", " ", "new\nline", "ünïcödé", `quo"te'`, `back\slash`, pollName+"2")
	for _, name := range odd {
		fd, err := unix.Open(dir+"/"+name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			t.Fatalf("create %q: %v", name, err)
		}
		unix.Close(fd)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(odd) {
		t.Errorf("%d entries, want %d; %v", len(entries), len(odd), err)
	}
	long := strings.Repeat("n", 256)
	if err := os.Mkdir(filepath.Join(dir, long), 0o755); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("a name of 256 bytes: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, strings.Repeat("n", 300))); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("stat of a name of 300 bytes: %v", err)
	}
	if err := os.Symlink(strings.Repeat("t/", 2047), filepath.Join(dir, "link")); err != nil {
		t.Error(err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "link")); err != nil || len(target) != 4094 {
		t.Errorf("a target of %d bytes, %v", len(target), err)
	}
}
