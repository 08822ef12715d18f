package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holt"
)

// disk makes the ext4 file from the tree, without a mount.
func (b *build) disk(ctx context.Context, to string) error {
	b.report("disk", "writing the file system", 0.86)
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(int64(b.plan.DiskMB) << 20); err != nil {
		return err
	}
	stop := b.watchDisk(to, treeBytes(b.scratch.path("tree")))
	defer stop()
	var printed strings.Builder
	line := func(s string) { b.log(s); printed.WriteString(s + "\n") }
	name, args := "mkfs.ext4", append(b.plan.Mkfs, "-d", b.scratch.path("tree"), to, megabytes(b.plan.DiskMB))
	if b.scratch.ids {
		// All of the tree can be read only in the user namespace that owns it. Root
		// there cannot enter to's directory, so it gets an open file.
		if err := b.scratch.hand(f); err != nil {
			return err
		}
		args[len(args)-2] = "/proc/self/fd/4"
		if os.Geteuid() != 0 {
			name, args = "mmdebstrap", append([]string{"--unshare-helper", name}, args...)
		}
	}
	if err := b.exec(ctx, b.scratch.ids, f, line, name, args...); err != nil {
		return b.diskError(err, printed.String())
	}
	if err := b.exec(ctx, false, nil, line, "tune2fs", "-E", "mount_opts=minixdf", to); err != nil {
		return b.diskError(err, printed.String())
	}
	b.report("disk", "syncing", 0.96)
	if err := errors.Join(f.Chown(os.Geteuid(), os.Getegid()), f.Chmod(0o444)); err != nil {
		return err
	}
	return f.Sync()
}

func (b *build) diskError(err error, printed string) error {
	if strings.Contains(printed, "Could not allocate") && !strings.Contains(printed, "No space left on device") {
		return holt.Errorf(holt.InvalidArgument, "recipe %s does not fit into %d MiB", b.plan.Name, b.plan.DiskMB).
			WithHint("raise its disk_size_mb")
	}
	return b.explain(err, &watcher{noSpace: strings.Contains(printed, "No space left on device")})
}

// watchDisk reports how much of the tree has been written until stop is called.
func (b *build) watchDisk(name string, total int64) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				part := min(1, float64(allocated(name))/float64(max(total, 1)))
				b.report("disk", "writing the file system", 0.86+0.10*part)
			}
		}
	}()
	return func() { close(done); <-gone }
}

// logFile is the log of the last build of a template.
func (s *Store) logFile(template string) string {
	return filepath.Join(s.dir, "logs", template+".log")
}
