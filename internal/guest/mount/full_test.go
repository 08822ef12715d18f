package mount

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holt/internal/workspace"
)

// full returns the size of a test: the small one, or the full one with HOLT_SOAK=1.
func full(small, whole int) int {
	if os.Getenv("HOLT_SOAK") != "" {
		return whole
	}
	return small
}

// fillFile writes n random bytes to path, syncs them, and prints their SHA-256.
func fillFile(path string, n int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(io.MultiWriter(f, h), io.LimitReader(rand.NewChaCha8([32]byte{1}), n), make([]byte, 1<<20)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(h.Sum(nil)))
	return f.Close()
}

// TestBigFile writes a file through a mount and reads it through a mount of the
// reopened workspace, without caches.
func TestBigFile(t *testing.T) {
	size := int64(full(64, 4<<10)) << 20
	dir := filepath.Join(t.TempDir(), "ws")
	opt := workspace.Options{Log: testLog(t)}
	ws, err := workspace.Create(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	through := func(use func(dir string)) {
		at := t.TempDir()
		m, err := Host(t.Context(), ws, at, HostOptions{Log: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Unmount(); err != nil {
				t.Error(err)
			}
			check(t, ws)
			if err := ws.Close(); err != nil {
				t.Error(err)
			}
		}()
		use(at)
	}
	var want string
	through(func(dir string) {
		out, err := helper(t, "fill", filepath.Join(dir, "big"), strconv.FormatInt(size, 10)).Output()
		if err != nil {
			t.Fatal(err)
		}
		want = strings.TrimSpace(string(out))
	})
	if ws, err = workspace.Open(dir, opt); err != nil {
		t.Fatal(err)
	}
	through(func(dir string) {
		if got, _, _ := strings.Cut(sh(t, dir, "sha256sum big"), " "); got != want {
			t.Errorf("read %s, wrote %s", got, want)
		}
	})
}

// TestFio: fio writes and verifies blocks with their own position and checksum:
// sequential, random, synced, and through maps, from four processes.
func TestFio(t *testing.T) {
	need(t, "fio")
	mounts := map[string]func(testing.TB) string{
		"host":  func(t testing.TB) string { _, dir := mountedWorkspace(t); return dir },
		"guest": func(t testing.TB) string { _, k := guestWorkspace(t); return k.dir },
	}
	jobs := map[string]string{
		"whole":  "--rw=write --bs=1M --ioengine=psync",
		"random": "--rw=randwrite --bs=4k --ioengine=psync --fsync=64",
		"mixed":  "--rw=randrw --bsrange=512-64k --ioengine=psync --verify_backlog=128",
		"mapped": "--rw=randwrite --bs=4k --ioengine=mmap --fsync=256",
	}
	for where, mounted := range mounts {
		for name, job := range jobs {
			t.Run(where+"/"+name, func(t *testing.T) {
				sh(t, mounted(t), fmt.Sprintf("fio --name=%s --directory=$PWD --size=%dM --numjobs=4 --verify=crc32c --verify_fatal=1 --do_verify=1 --group_reporting %s",
					name, full(2, 128), job))
			})
		}
	}
}
