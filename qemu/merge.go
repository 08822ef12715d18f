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
)

// MergeDisk implements [machine.Engine]. What the smaller of the two holds is
// copied: into under, which then takes the place of path, or into path. In both
// cases path shows the same all the while.
func (e *Engine) MergeDisk(ctx context.Context, path, under string) error {
	if _, err := os.Stat(path); err != nil {
		return holt.Errorf(holt.NotFound, "merge disk: %w", err)
	}
	top, err := e.describe(ctx, path)
	if err != nil {
		return err
	}
	if top.Base != under { // it was done, but for the last step
		return remove(under)
	}
	bottom, err := e.describe(ctx, under)
	if err != nil {
		return err
	}
	if bottom.Base == "" {
		return holt.Errorf(holt.InvalidArgument, "disk %s lies over nothing", under)
	}
	if err := e.unused(ctx, path); err != nil {
		return err
	}
	if err := room(filepath.Dir(path)); err != nil {
		return err
	}
	if top.Bytes > bottom.Bytes {
		if err := e.image(ctx, path, "rebase", "-q", "-f", "qcow2", "-b", bottom.Base, "-F", bottom.BaseFormat, "--", path); err != nil {
			return err
		}
		return errors.Join(syncPath(path), remove(under))
	}
	// -d: path is not emptied. It covers what is half-written beneath until it goes.
	if err := e.image(ctx, path, "commit", "-q", "-d", "-f", "qcow2", "--", path); err != nil {
		return err
	}
	if err := errors.Join(syncPath(under), os.Rename(under, path)); err != nil {
		return fmt.Errorf("merge disk: %w", err)
	}
	return syncPath(filepath.Dir(path))
}

// unused refuses a disk that a machine has open: without -U, qemu-img keeps to its locks.
func (e *Engine) unused(ctx context.Context, path string) error {
	if out, err := exec.CommandContext(ctx, e.img, "info", "-f", "qcow2", path).CombinedOutput(); err != nil {
		return holt.Errorf(holt.Unavailable, "disk %s is in use: %w: %s", path, err, clip(strings.TrimSpace(string(out))))
	}
	return nil
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
