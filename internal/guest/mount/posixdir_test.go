package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// TestReaddirWhileChanging reads a directory while other processes add and
// remove names: each name that stays is seen exactly once.
func TestReaddirWhileChanging(t *testing.T) { onBoth(t, readdirWhileChanging) }

// readdirWhileChanging reads a directory several times; during each reading
// names are added, changed and removed. Names that stay are seen exactly once.
func readdirWhileChanging(t *testing.T, _ *workspace.Workspace, dir string) {
	const stay = 2000
	for i := range stay {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("stay-%d", i)), "")
	}
	turns, end := churned(t, dir)
	defer end()
	for range 5 {
		seen := map[string]int{}
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			var names []string
			names, err = d.Readdirnames(97)
			for _, n := range names {
				seen[n]++
			}
			if len(seen) < stay/2 {
				<-turns // the directory changes while it is read
			}
		}
		d.Close()
		if err != io.EOF {
			t.Fatal(err)
		}
		for i := range stay {
			if n := fmt.Sprintf("stay-%d", i); seen[n] != 1 {
				t.Errorf("saw %s %d times", n, seen[n])
			}
		}
	}
}

// churned creates, renames and removes names in a directory until end is
// called. turns receives after each round.
func churned(t *testing.T, dir string) (turns <-chan struct{}, end func()) {
	told, stop := make(chan struct{}), make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		for i := 0; ; i++ {
			name := filepath.Join(dir, fmt.Sprintf("come-%d", i%50))
			if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Rename(name, name+"x"), os.Remove(name+"x")); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			case told <- struct{}{}:
			default:
			}
		}
	})
	return told, func() {
		close(stop)
		churn.Wait()
	}
}

func TestLargeDirectory(t *testing.T) { onBoth(t, largeDirectory) }

func largeDirectory(t *testing.T, _ *workspace.Workspace, dir string) {
	count := full(2_000, 200_000)
	sub := filepath.Join(dir, "large")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	fd := openFile(t, sub, unix.O_RDONLY|unix.O_DIRECTORY)
	for i := range count {
		if err := unix.Mknodat(fd, fmt.Sprintf("file-%07d", i), unix.S_IFREG|0o644, 0); err != nil {
			t.Fatal(err)
		}
		if i%(count/100) == 0 {
			if err := unix.Mknodat(fd, fmt.Sprintf("gone-%d", i/(count/100)), unix.S_IFREG|0o644, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	moved := filepath.Join(dir, "moved")
	if err := os.Rename(sub, moved); err != nil {
		t.Fatal(err)
	}
	largeWhileChanging(t, moved, count)
	entries, err := os.ReadDir(moved)
	if err != nil || len(entries) != count {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, e := range entries {
		if e.Name() != fmt.Sprintf("file-%07d", i) {
			t.Fatalf("entry %d is %s", i, e.Name())
		}
	}
	if out := strings.TrimSpace(sh(t, dir, "find moved -type f | wc -l")); out != fmt.Sprint(count) {
		t.Errorf("find sees %s", out)
	}
	sh(t, dir, "rm -r moved")
	if _, err := os.Stat(moved); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

// largeWhileChanging reads a large directory while names are added, changed and
// removed, including a hundred spread over it, and sees each name that exists
// throughout exactly once.
func largeWhileChanging(t *testing.T, dir string, count int) {
	t.Helper()
	turns, end := churned(t, dir)
	defer end()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	seen, step := make([]uint8, count), 0
	change := func() {
		<-turns
		for i := step; i < 100; i += 10 { // ahead of what is read, and behind it
			if err := os.Remove(filepath.Join(dir, fmt.Sprintf("gone-%d", i))); err != nil {
				t.Error(err)
			}
		}
		step++
	}
	for n := 0; err == nil; {
		var names []string
		names, err = d.Readdirnames(97)
		for _, name := range names {
			var i int
			if _, bad := fmt.Sscanf(name, "file-%07d", &i); bad == nil && i < count {
				seen[i]++
				n++
			}
		}
		for step < 10 && n > step*count/11 {
			change()
		}
	}
	if err != io.EOF || step != 10 {
		t.Fatalf("changed %d times: %v", step, err)
	}
	for i, n := range seen {
		if n != 1 {
			t.Errorf("saw file-%07d %d times", i, n)
		}
	}
}

// as runs a shell script as an ordinary user.
func as(t testing.TB, uid uint32, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", "cd "+dir+"; "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as %d: %s: %v\n%s", uid, script, err, out)
	}
	return string(out)
}

// TestSetIDBits: set-id bits are cleared when another user changes a file.
func TestSetIDBits(t *testing.T) { onBoth(t, setIDBits) }

func setIDBits(t *testing.T, _ *workspace.Workspace, dir string) {
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	arm := func(mode uint32) {
		t.Helper()
		writeFile(t, path, "content")
		if err := unix.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if st := stat(t, path); st.Mode&0o7777 != mode {
			t.Fatalf("mode %#o, want %#o", st.Mode&0o7777, mode)
		}
	}
	for script, kept := range map[string]bool{"echo x >> f": false, "truncate -s 3 f": false, ": > f": false, "cat f": true} {
		arm(0o6777)
		as(t, 1234, dir, script)
		if st := stat(t, path); (st.Mode&0o6000 == 0o6000) != kept || !kept && st.Mode&0o6000 != 0 {
			t.Errorf("%s by another: mode %#o", script, st.Mode)
		}
	}
	arm(0o6755)
	if err := unix.Chown(path, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if st := stat(t, path); st.Mode&0o6000 != 0 {
		t.Errorf("after chown: mode %#o", st.Mode)
	}
	// Root may write without losing them.
	arm(0o6755)
	sh(t, dir, "echo x >> f")
	if st := stat(t, path); st.Mode&0o6000 != 0o6000 {
		t.Errorf("after a write by root: mode %#o", st.Mode)
	}
	// security.capability is removed too.
	arm(0o777)
	if err := unix.Setxattr(path, "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0); err != nil {
		t.Fatal(err)
	}
	as(t, 1234, dir, "echo x >> f")
	if _, err := unix.Getxattr(path, "security.capability", make([]byte, 64)); err != unix.ENODATA {
		t.Errorf("security.capability after a write: %v", err)
	}
}

// TestOwnership checks the owners of new files.
func TestOwnership(t *testing.T) { onBoth(t, ownership) }

func ownership(t *testing.T, _ *workspace.Workspace, dir string) {
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	as(t, 1234, dir, "umask 027; touch f; mkdir d; ln -s x l; mkfifo p")
	for name, mode := range map[string]uint32{"f": unix.S_IFREG | 0o640, "d": unix.S_IFDIR | 0o750, "l": unix.S_IFLNK | 0o777, "p": unix.S_IFIFO | 0o640} {
		if st := stat(t, filepath.Join(dir, name)); st.Uid != 1234 || st.Gid != 1234 || st.Mode != mode {
			t.Errorf("%s: %d:%d %#o, want %#o", name, st.Uid, st.Gid, st.Mode, mode)
		}
	}
	team := filepath.Join(dir, "team")
	if err := os.Mkdir(team, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chown(team, 0, 4321); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(team, 0o2777); err != nil {
		t.Fatal(err)
	}
	as(t, 1234, team, "touch f; mkdir d")
	if st := stat(t, filepath.Join(team, "f")); st.Gid != 4321 {
		t.Errorf("file in a set-gid directory has group %d", st.Gid)
	}
	if st := stat(t, filepath.Join(team, "d")); st.Gid != 4321 || st.Mode&0o2000 == 0 {
		t.Errorf("directory in a set-gid directory: group %d, mode %#o", st.Gid, st.Mode)
	}
	// The kernel checks modes.
	writeFile(t, filepath.Join(dir, "private"), "x")
	if err := os.Chmod(filepath.Join(dir, "private"), 0o600); err != nil {
		t.Fatal(err)
	}
	as(t, 1234, dir, "! cat private 2>/dev/null; ! echo x 2>/dev/null >> private")
	sticky := filepath.Join(dir, "tmp")
	if err := os.Mkdir(sticky, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(sticky, 0o1777); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(sticky, "mine"), "x")
	as(t, 1234, sticky, "! rm -f mine 2>/dev/null; ! mv mine yours 2>/dev/null")
}
