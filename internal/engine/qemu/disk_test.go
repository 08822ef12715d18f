package qemu_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// sparse makes a raw image of mb MiB.
func sparse(t *testing.T, mb int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "base, with a comma.raw")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, mb<<20); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCreateDisk(t *testing.T) {
	e := open(t)
	base := machine.Base{Path: sparse(t, 40)}
	dir := t.TempDir()
	disk := filepath.Join(dir, "root.qcow2")
	if err := e.CreateDisk(t.Context(), disk, base, 40); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("qemu-img", "info", disk).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("40 MiB")) || !bytes.Contains(out, []byte(base.Path)) {
		t.Errorf("%v: %s", err, out)
	}
	if got, err := e.DiskBase(t.Context(), disk); err != nil || got != (machine.Base{Path: base.Path, Format: "raw"}) {
		t.Errorf("it lies over %+v %v", got, err)
	}
	for name, c := range map[string]struct {
		path   string
		base   machine.Base
		sizeMB int
		code   holt.Code
		words  []string
	}{
		"there already":    {disk, base, 50, holt.AlreadyExists, nil},
		"smaller":          {"small", base, 39, holt.InvalidArgument, []string{"39 MiB", "40 MiB"}},
		"negative":         {"negative", base, -1, holt.InvalidArgument, nil},
		"relative base":    {"a", machine.Base{Path: "base"}, 50, holt.InvalidArgument, nil},
		"no base":          {"b", machine.Base{Path: base.Path + "x"}, 50, holt.NotFound, nil},
		"odd format":       {"c", machine.Base{Path: base.Path, Format: "vmdk"}, 50, holt.InvalidArgument, nil},
		"not that format":  {"d", machine.Base{Path: base.Path, Format: "qcow2"}, 50, holt.Corrupt, nil},
		"overlay on disk":  {"e", machine.Base{Path: disk, Format: "qcow2"}, 50, "", nil},
		"overlay, smaller": {"f", machine.Base{Path: disk, Format: "qcow2"}, 30, holt.InvalidArgument, []string{"30 MiB", "40 MiB"}},
		"no directory":     {"no/such", base, 50, holt.Internal, nil},
	} {
		if !filepath.IsAbs(c.path) {
			c.path = filepath.Join(dir, c.path)
		}
		before, _ := os.Stat(c.path)
		err := e.CreateDisk(t.Context(), c.path, c.base, c.sizeMB)
		if holt.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %s", name, err, w)
			}
		}
		if after, _ := os.Stat(c.path); err != nil && (before == nil) != (after == nil) {
			t.Errorf("%s: a failed create left or removed a file", name)
		}
	}
}

// tinyDisk mounts a file system of 100 MiB that is easy to fill.
func tinyDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=100m"); err != nil {
		t.Fatalf("mount a small disk: %v; run this test as root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves mb MiB free in dir, with one file, whose path it returns.
func fill(t *testing.T, dir string, mb int64) string {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-mb<<20); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCreateDiskOnFullHost(t *testing.T) {
	e := open(t)
	dir := tinyDisk(t)
	filler := fill(t, dir, 1)
	disk := filepath.Join(dir, "root.qcow2")
	base := machine.Base{Path: sparse(t, 10)}
	if err := e.CreateDisk(t.Context(), disk, base, 20); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("create on a full disk: %v", err)
	}
	if _, err := os.Stat(disk); err == nil {
		t.Error("something is left")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := e.CreateDisk(t.Context(), disk, base, 20); err != nil {
		t.Error(err)
	}
}
