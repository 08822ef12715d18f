package mount

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/workspace"
)

// newWorkspace makes a workspace that is checked and closed when the test ends.
func newWorkspace(t testing.TB) *workspace.Workspace {
	t.Helper()
	return newWorkspaceWith(t, workspace.Options{})
}

func newWorkspaceWith(t testing.TB, opt workspace.Options) *workspace.Workspace {
	t.Helper()
	opt.Log = testLog(t)
	ws, err := workspace.Create(filepath.Join(t.TempDir(), "ws"), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		check(t, ws)
		if err := ws.Close(); err != nil {
			t.Errorf("close workspace: %v", err)
		}
	})
	return ws
}

// check fails the test if Check reports problems.
func check(t testing.TB, ws *workspace.Workspace) {
	t.Helper()
	report, err := ws.Check(context.Background())
	if holt.CodeOf(err) == holt.Unsupported {
		t.Log(err)
		return
	}
	if err != nil {
		t.Errorf("check: %v", err)
	}
	for _, p := range report.Problems {
		t.Errorf("check: %s", p)
	}
}

// hostMount mounts ws on a new directory until the test ends.
func hostMount(t testing.TB, ws *workspace.Workspace, opt HostOptions) string {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	opt.Log = testLog(t)
	m, err := Host(t.Context(), ws, dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Unmount(); err != nil {
			t.Error(err)
		}
	})
	pollOnce(t, dir)
	return dir
}

// pollOnce makes it safe for this process to use its own mount: see pollName.
func pollOnce(t testing.TB, dir string) {
	t.Helper()
	fd, err := unix.Open(filepath.Join(dir, pollName), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil {
		t.Fatal(err)
	}
}

// mountedWorkspace returns a workspace mounted on the host.
func mountedWorkspace(t testing.TB) (*workspace.Workspace, string) {
	t.Helper()
	ws := newWorkspace(t)
	return ws, hostMount(t, ws, HostOptions{})
}

func TestHostKeepsFiles(t *testing.T) {
	needRoot(t)
	at := filepath.Join(t.TempDir(), "ws")
	ws, err := workspace.Create(at, workspace.Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	t.Run("write", func(t *testing.T) {
		dir := hostMount(t, ws, HostOptions{})
		if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a", "b", "big"), big, 0o640); err != nil {
			t.Fatal(err)
		}
	})
	if err := ws.Close(); err != nil {
		t.Fatal(err)
	}
	if ws, err = workspace.Open(at, workspace.Options{Log: testLog(t)}); err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	t.Run("read", func(t *testing.T) {
		dir := hostMount(t, ws, HostOptions{})
		got, err := os.ReadFile(filepath.Join(dir, "a", "b", "big"))
		if err != nil || !bytes.Equal(got, big) {
			t.Errorf("read back %d bytes, %v", len(got), err)
		}
		if st, err := os.Stat(filepath.Join(dir, "a", "b", "big")); err != nil || st.Mode() != 0o640 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
	})
	check(t, ws)
}

func TestHostRefuses(t *testing.T) {
	ws, dir := mountedWorkspace(t)
	if _, err := Host(t.Context(), ws, t.TempDir(), HostOptions{}); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("second read-write mount: %v", err)
	}
	if _, err := Host(t.Context(), ws, filepath.Join(dir, "absent"), HostOptions{}); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("absent directory: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Host(t.Context(), ws, file, HostOptions{}); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("a file: %v", err)
	}
}

func TestSecondMountShowsChanges(t *testing.T) {
	ws, dir := mountedWorkspace(t)
	second := hostMount(t, ws, HostOptions{ReadOnly: true})
	if err := os.WriteFile(filepath.Join(second, "f"), nil, 0o644); err == nil {
		t.Error("the second mount can be written")
	}
	for _, content := range []string{"one", "two, longer", ""} {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(second, "f")); err != nil || string(got) != content {
			t.Errorf("second mount reads %q, %v; want %q", got, err, content)
		}
	}
	if err := os.Rename(filepath.Join(dir, "f"), filepath.Join(dir, "g")); err != nil {
		t.Fatal(err)
	}
	if out := strings.Fields(sh(t, second, "ls")); len(out) != 1 || out[0] != "g" {
		t.Errorf("second mount lists %q", out)
	}
}

func TestMountIsNoSuidNoDev(t *testing.T) {
	_, dir := mountedWorkspace(t)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if want := int64(unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOATIME); st.Flags&want != want {
		t.Errorf("flags %#x lack nosuid,nodev,noatime", st.Flags)
	}
	if total := st.Blocks * uint64(st.Frsize); total != 1<<50 {
		t.Errorf("statfs shows %d bytes, want 1 PiB", total)
	}
	if out := sh(t, dir, "df -h . | tail -1"); !strings.Contains(out, "1.0P") {
		t.Errorf("df: %s", out)
	}
	if st.Namelen != 255 {
		t.Errorf("names of %d bytes", st.Namelen)
	}
}
