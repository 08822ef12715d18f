package mount

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// TestSeekByBlocks compares data and holes with ext4's: blocks of 4 KiB are
// data as a whole, also around the middle of a large hole.
func TestSeekByBlocks(t *testing.T) { onBoth(t, seekByBlocks) }

func seekByBlocks(t *testing.T, _ *workspace.Workspace, dir string) {
	fd := openFile(t, filepath.Join(dir, "f"), unix.O_RDWR|unix.O_CREAT)
	const far = 1<<40 + 4096
	for _, off := range []int64{2, 9000, far + 5000} {
		if _, err := unix.Pwrite(fd, []byte("x"), off); err != nil {
			t.Fatal(err)
		}
	}
	const none = -1
	for _, c := range []struct{ off, data, hole int64 }{
		{0, 0, 4096}, {1, 1, 4096}, {3, 3, 4096}, {4095, 4095, 4096},
		{4096, 8192, 4096}, {4097, 8192, 4097},
		{8192, 8192, 12288}, {9001, 9001, 12288},
		{12288, far + 4096, 12288}, {1 << 30, far + 4096, 1 << 30}, {1<<39 + 17, far + 4096, 1<<39 + 17},
		{far, far + 4096, far}, {far + 4096, far + 4096, far + 5001}, {far + 5000, far + 5000, far + 5001},
		{far + 5001, none, none},
	} {
		for whence, want := range map[int]int64{unix.SEEK_DATA: c.data, unix.SEEK_HOLE: c.hole} {
			got, err := unix.Seek(fd, c.off, whence)
			if err == unix.ENXIO {
				got, err = none, nil
			}
			if got != want || err != nil {
				t.Errorf("from %d, whence %d: %d, %v; want %d", c.off, whence, got, err, want)
			}
		}
	}
}
