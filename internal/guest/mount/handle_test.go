package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// TestFileHandles: file handles work for a kernel that has forgotten the file,
// or has never seen it.
func TestFileHandles(t *testing.T) {
	ws := newWorkspace(t)
	names := []string{"a/b/f", "a/b", "a", ".", ".holt/checkpoints/then/a/b/f"}
	handles := map[string]unix.FileHandle{}
	var gone unix.FileHandle
	whileMounted(t, ws, func(dir string) {
		sh(t, dir, "mkdir -p a/b; echo content > a/b/f; echo x > gone")
		if _, err := ws.Checkpoint(workspace.CheckpointOptions{Name: "then"}); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			handles[name] = handleOf(t, filepath.Join(dir, name))
		}
		gone = handleOf(t, filepath.Join(dir, "gone"))
		sh(t, dir, "rm gone")
	})
	whileMounted(t, ws, func(dir string) {
		top := openFile(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)
		for _, name := range names {
			fd, err := unix.OpenByHandleAt(top, handles[name], unix.O_RDONLY|unix.O_CLOEXEC)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			unix.Close(fd)
			if want := filepath.Join(dir, name); filepath.Base(name) == "f" {
				// the kernel may not know the name of a non-directory
			} else if err != nil || got != want {
				t.Errorf("the handle of %s is %s, %v", want, got, err)
			}
		}
		fd, err := unix.OpenByHandleAt(top, handles["a/b/f"], unix.O_RDONLY|unix.O_CLOEXEC)
		buf := make([]byte, 100)
		n, readErr := unix.Read(fd, buf)
		if err := errors.Join(err, readErr, unix.Close(fd)); err != nil || string(buf[:n]) != "content\n" {
			t.Errorf("read %q, %v", buf[:max(n, 0)], err)
		}
		if _, err := unix.OpenByHandleAt(top, gone, unix.O_RDONLY); err != unix.ESTALE {
			t.Errorf("the handle of what was removed: %v", err)
		}
	})
}

// whileMounted mounts a workspace on the host while use runs.
func whileMounted(t *testing.T, ws *workspace.Workspace, use func(dir string)) {
	t.Helper()
	needRoot(t)
	m, err := Host(context.Background(), ws, t.TempDir(), HostOptions{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Unmount(); err != nil {
			t.Error(err)
		}
	}()
	pollOnce(t, m.Dir())
	use(m.Dir())
}

func handleOf(t *testing.T, path string) unix.FileHandle {
	t.Helper()
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return h
}
