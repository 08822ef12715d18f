package daemon_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
)

// filling writes files to the root disk and the workspace until told to end. What finds no room tries again.
const filling = `
import os, time
n, block = 0, os.urandom(1 << 20)
while True:
    n += 1
    for where in ('/root', '/home/agent'):
        try:
            with open('%s/bulk-%d' % (where, n), 'wb') as f: f.write(block)
        except OSError: time.sleep(0.01)
    if n % 8 == 0: os.sync()
`

// TestSnapshotsOnFullHost takes snapshots, forks and pauses of a computer that writes to both its disks
// while the host's fills up: each is done, or there is no room for it and nothing is left. When there is room
// again everything goes on, and what was synced is there.
func TestSnapshotsOnFullHost(t *testing.T) {
	home := t.TempDir()
	if err := syscall.Mount("tmpfs", home, "tmpfs", 0, "size=1500m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(home, 0); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", home)
	v := &vm{t: t, dir: virtualHome(t)}
	v.again("")
	heard := v.curieThatSyncs()
	lefts := []int64{20, 120, 300} // MiB that the computer finds
	for _, left := range lefts {
		v.fullWith(left, heard)
	}
	if _, err := v.Computers.Snapshot(t.Context(), "curie", holt.SnapshotSpec{}, ""); err != nil {
		t.Error("with room again:", err)
	}
	if _, err := v.Computers.Delete(t.Context(), "curie", ""); err != nil {
		t.Error(err)
	}
	v.nothingKept()
	endAll(t, v.process)
	t.Logf("counts: with %v MiB left", lefts)
}

// fullWith does that once.
func (v *vm) fullWith(left int64, heard *syncs) {
	t, ctx := v.t, context.Background()
	t.Helper()
	v.syncs(heard)
	ballast := filepath.Join(v.dir, "ballast")
	var fs unix.Statfs_t
	f, err := os.Create(ballast)
	if err == nil {
		err = unix.Statfs(v.dir, &fs)
	}
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, int64(fs.Bavail)*fs.Bsize-left<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := v.Runs.Start(ctx, "curie", holt.RunSpec{Argv: holt.OSStrings{"python3", "-c", filling}, User: "root"}, ""); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, verb := range []struct {
		name string
		act  func() error
	}{
		{"snapshot", func() error {
			_, err := v.Computers.Snapshot(ctx, "curie", holt.SnapshotSpec{}, "")
			return err
		}},
		{"fork", func() error {
			_, err := v.Computers.Fork(ctx, "curie", holt.ComputerForkSpec{}, "")
			return err
		}},
		{"snapshot", func() error {
			_, err := v.Computers.Snapshot(ctx, "curie", holt.SnapshotSpec{}, "")
			return err
		}},
		{"pause", func() error {
			_, err := v.Computers.Pause(ctx, "curie", "")
			return err
		}},
	} {
		err := verb.act()
		if err != nil && holt.CodeOf(err) != holt.OutOfSpace {
			t.Errorf("%s with %d MiB: %v", verb.name, left, err)
		}
		said = append(said, fmt.Sprintf("%s: %v", verb.name, err))
	}
	last := heard.now()
	t.Logf("%d MiB: %s; synced %v", left, strings.Join(said, "; "), last)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	v.synced(fmt.Sprint(left, " MiB"), last) // this wakes it
	v.says("curie", "pkill python3; rm -f /root/bulk-* /home/agent/bulk-*; sync; fstrim / || true")
	v.onlyCurie(fmt.Sprint(left, " MiB"))
}
