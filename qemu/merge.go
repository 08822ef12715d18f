package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/machine"
)

// MergeDisk implements [machine.Engine]. What the smaller of the two holds is
// copied: into under, which then takes the place of path, or into path. In both
// cases path shows the same all the while.
func (e *Engine) MergeDisk(ctx context.Context, path, under string) error {
	if _, err := os.Stat(path); err != nil {
		return holt.Errorf(holt.NotFound, "merge disk: %w", err)
	}
	top, err := e.unused(ctx, path)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(under); errors.Is(err, fs.ErrNotExist) && top.Base != under {
		return nil // it was done
	}
	bottom, err := e.describe(ctx, under)
	switch {
	case err != nil:
		return err
	case bottom.Base == "":
		return holt.Errorf(holt.InvalidArgument, "disk %s lies over nothing", under)
	case top.Base == bottom.Base: // it was done, but for the last step
		return remove(under)
	case !sameFile(top.Base, under): // the directory may have been moved
		return holt.Errorf(holt.Conflict, "disk %s lies over %s, not over %s", path, clip(top.Base), under)
	}
	if err := roomFor(filepath.Dir(path), min(top.Bytes, bottom.Bytes)/mib+mergeSpareMB); err != nil {
		return err
	}
	if top.Bytes > bottom.Bytes {
		err := e.image(ctx, path, "rebase", "-q", "-f", "qcow2", "-b", bottom.Base, "-F", bottom.BaseFormat, "--", path)
		if err == nil {
			err = machine.Sync(path)
		}
		if err == nil {
			err = remove(under)
		}
		return err
	}
	// -d: path is not emptied. It covers what is half-written beneath until it goes.
	if err := e.image(ctx, path, "commit", "-q", "-d", "-f", "qcow2", "--", path); err != nil {
		return err
	}
	if err = machine.Sync(under); err == nil {
		err = os.Rename(under, path)
	}
	if err == nil {
		err = machine.Sync(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("merge disk: %w", err)
	}
	return nil
}

// FlattenDisk implements [machine.Engine]. An empty disk is laid over path, and then over
// what under lies over, for which all in between is copied into it.
func (e *Engine) FlattenDisk(ctx context.Context, path, under, to string) (err error) {
	bottom, err := e.describe(ctx, under)
	if err != nil {
		return err
	}
	if bottom.Base == "" {
		return holt.Errorf(holt.InvalidArgument, "disk %s lies over nothing", under)
	}
	bytes := bottom.Bytes
	for disk := path; !sameFile(disk, under); {
		d, err := e.describe(ctx, disk)
		if err != nil {
			return err
		}
		if d.BaseFormat != "qcow2" {
			return holt.Errorf(holt.Conflict, "disk %s does not lie over %s", path, under)
		}
		bytes, disk = bytes+d.Bytes, d.Base
	}
	if err := roomFor(filepath.Dir(to), bytes/mib+mergeSpareMB); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(to)
		}
	}()
	if err := e.image(ctx, to, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", path, "--", to); err != nil {
		return err
	}
	if err := e.image(ctx, to, "rebase", "-q", "-f", "qcow2", "-b", bottom.Base, "-F", bottom.BaseFormat, "--", to); err != nil {
		return err
	}
	return machine.Sync(to)
}

// mergeSpareMB is what a merge, which nobody waits for, leaves free on the host's disk, MiB.
const mergeSpareMB = 1024

// sameFile tells whether two paths, of which one may go by a symbolic link, name one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// unused describes a disk that no machine has open: without -U, qemu-img keeps to its locks.
func (e *Engine) unused(ctx context.Context, path string) (description, error) {
	d, err := e.info(ctx, path)
	if err == nil {
		return d, nil
	}
	if _, err := e.describe(ctx, path); err != nil {
		return d, err
	}
	return d, holt.Errorf(holt.Unavailable, "disk %s is in use: %w", path, err)
}

// image runs qemu-img, which ends with this process: another daemon must not
// meet it at work.
func (e *Engine) image(ctx context.Context, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, e.img, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread ends that began it
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("merge disk: %w", ctx.Err())
	case strings.Contains(string(out), unix.ENOSPC.Error()):
		return fullDisk(filepath.Dir(path), 0)
	}
	return holt.Errorf(holt.Internal, "merge disk %s: %w: %s", path, err, clip(strings.TrimSpace(string(out))))
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove disk: %w", err)
	}
	return nil
}
