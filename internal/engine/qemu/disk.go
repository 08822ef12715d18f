package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// minFreeMB is the room on the host's disk below which no disk is made and no
// guest that ran out of it is resumed, MiB. Disks are thin: they take more as they are written.
const minFreeMB = 64

const mib = 1 << 20

// CreateDisk makes a qcow2 overlay on base, by its absolute path.
func (e *Engine) CreateDisk(ctx context.Context, path string, base machine.Base, sizeMB int) error {
	if !filepath.IsAbs(path) || !filepath.IsAbs(base.Path) {
		return holt.Errorf(holt.InvalidArgument, "disk %q or its base %q is not an absolute path", path, base.Path)
	}
	format := base.Format
	if format == "" {
		format = "raw"
	}
	if format != "raw" && format != "qcow2" {
		return holt.Errorf(holt.InvalidArgument, "disk format %q is neither raw nor qcow2", clip(format))
	}
	if _, err := os.Lstat(path); err == nil {
		return holt.Errorf(holt.AlreadyExists, "disk %s exists already", path)
	}
	baseBytes, err := virtualSize(base.Path, format)
	if err != nil {
		return err
	}
	if int64(sizeMB)*mib < baseBytes {
		least := (baseBytes + mib - 1) / mib
		return holt.Errorf(holt.InvalidArgument, "a disk of %d MiB is smaller than the image, which needs %d MiB", sizeMB, least).
			WithHint("ask for at least %d MiB", least)
	}
	if err := room(filepath.Dir(path)); err != nil {
		return err
	}
	// -u: what is under it was looked at.
	out, err := exec.CommandContext(ctx, e.img, "create", "-q", "-u", "-f", "qcow2",
		"-F", format, "-b", base.Path, "--", path, fmt.Sprintf("%dM", sizeMB)).CombinedOutput()
	if err == nil {
		return nil
	}
	os.Remove(path) // it is ours: it did not exist
	if ctx.Err() != nil {
		return fmt.Errorf("create disk: %w", ctx.Err())
	}
	if strings.Contains(string(out), unix.ENOSPC.Error()) {
		return fullDisk(filepath.Dir(path), 0)
	}
	return holt.Errorf(holt.Internal, "create disk %s: %w: %s", path, err, clip(strings.TrimSpace(string(out))))
}

// virtualSize is how large a disk the image shows, bytes. A qcow2's header says it: forks do not wait for another process.
func virtualSize(path, format string) (int64, error) {
	if format != "raw" {
		d, err := describe(path)
		return d.VirtualSize, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, holt.Errorf(holt.NotFound, "base image %s does not exist", path)
	}
	if err != nil {
		return 0, fmt.Errorf("look at base image: %w", err)
	}
	return info.Size(), nil
}

// DiskBase implements [machine.Engine].
func (e *Engine) DiskBase(ctx context.Context, path string) (machine.Base, error) {
	all, err := e.beneath(ctx, path)
	if err != nil || len(all) == 0 {
		return machine.Base{}, err
	}
	return all[0], nil
}

// room fails with OutOfSpace if the host's disk is full.
func room(dir string) error { return roomFor(dir, minFreeMB) }

// roomFor is room for so many MiB.
func roomFor(dir string, mb int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize / mib; free < mb {
		return tooFull(dir, free, mb)
	}
	return nil
}

func fullDisk(dir string, freeMB int64) error { return tooFull(dir, freeMB, minFreeMB) }

func tooFull(dir string, freeMB, needMB int64) error {
	return holt.Errorf(holt.OutOfSpace, "the host's disk at %s is full: %d MiB are free", dir, freeMB).
		WithHint("free some space; at least %d MiB are needed to begin with", needMB)
}

// clip keeps foreign text from filling a log.
func clip(s string) string { return holt.Clip(s, 500) }
