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

const mib = 1 << 20

// CreateDisk implements [machine.Engine] with a qcow2 overlay on base, by its absolute path.
func (e *Engine) CreateDisk(ctx context.Context, path string, base machine.Base, sizeMB int) error {
	if !filepath.IsAbs(path) || !filepath.IsAbs(base.Path) {
		return holt.Errorf(holt.InvalidArgument, "disk %q or its base %q is not an absolute path", path, base.Path)
	}
	format := base.Format
	if format == "" {
		format = "raw"
	}
	if format != "raw" && format != "qcow2" {
		return holt.Errorf(holt.InvalidArgument, "invalid disk format %q: use raw or qcow2", clip(format))
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
	if err := machine.Room(filepath.Dir(path), machine.MinFreeMB); err != nil {
		return err
	}
	// -u: the base has been checked above.
	out, err := exec.CommandContext(ctx, e.img, "create", "-q", "-u", "-f", "qcow2",
		"-F", format, "-b", base.Path, "--", path, fmt.Sprintf("%dM", sizeMB)).CombinedOutput()
	if err == nil {
		return nil
	}
	os.Remove(path) // it did not exist before
	if ctx.Err() != nil {
		return fmt.Errorf("create disk: %w", ctx.Err())
	}
	if strings.Contains(string(out), unix.ENOSPC.Error()) {
		return machine.FullDisk(filepath.Dir(path))
	}
	return holt.Errorf(holt.Internal, "create disk %s: %w: %s", path, err, clip(strings.TrimSpace(string(out))))
}

// virtualSize returns the virtual size of a disk, bytes. It reads the qcow2
// header itself, so that forks do not wait for qemu-img.
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
		return 0, fmt.Errorf("inspect base image: %w", err)
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

// clip shortens untrusted text for a message.
func clip(s string) string { return holt.Clip(s, 500) }
