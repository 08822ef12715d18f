package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Blocks of files deleted in a file system are freed on its disk.
func TestTrim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	disk, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	do := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", name, err, out)
		}
	}
	do("truncate", "-s", "64M", disk)
	do("mkfs.ext4", "-q", "-F", disk)
	do("mount", "-o", "loop", disk, dir)
	t.Cleanup(func() { do("umount", dir) })
	used := func() int64 {
		var st syscall.Stat_t
		if err := syscall.Stat(disk, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	file := filepath.Join(dir, "file")
	do("dd", "if=/dev/urandom", "of="+file, "bs=1M", "count=32", "conv=fsync", "status=none")
	if n := used(); n < 32<<20 {
		t.Fatalf("the disk has %d bytes", n)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := trimFS(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if n := used(); n > 16<<20 {
		t.Errorf("after the file was deleted, the disk has %d bytes", n)
	}
	if err := trimFS(t.Context(), "/proc"); err != nil {
		t.Errorf("a file system that cannot: %v", err)
	}
}
