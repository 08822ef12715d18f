package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
)

// MergeDisk implements [machine.Engine]. It copies the content of the smaller
// disk: into under, which then replaces path, or into path. In both cases path
// has the same content throughout.
func (e *Engine) MergeDisk(ctx context.Context, path, under string) error {
	if _, err := os.Stat(path); err != nil {
		return holt.Errorf(holt.NotFound, "merge disk: %w", err)
	}
	top, err := unused(path)
	if err != nil {
		return err
	}
	beneath, missing := e.beneath(ctx, path)
	if missing != nil && holt.CodeOf(missing) != holt.NotFound {
		return missing
	}
	if _, err := os.Lstat(under); errors.Is(err, fs.ErrNotExist) && top.Base != under {
		return nil // already merged
	}
	bottom, err := describe(under)
	switch {
	case err != nil:
		return err
	case bottom.Base == "":
		return holt.Errorf(holt.InvalidArgument, "disk %s has no base", under)
	case top.Base == bottom.Base: // already merged, except for the last step
		return remove(under)
	case !sameFile(top.Base, under): // the directory may have been moved
		return holt.Errorf(holt.Conflict, "the base of disk %s is %s, not %s", path, clip(top.Base), under)
	case missing != nil:
		return missing
	}
	if err := machine.Room(filepath.Dir(path), min(top.Bytes, bottom.Bytes)/mib+mergeSpareMB); err != nil {
		return err
	}
	over := append([]jail.File{{Path: path, Write: true}, {Path: top.Base, Write: true}}, forReading(beneath[1:])...)
	if top.Bytes > bottom.Bytes {
		over[1].Write = false
		err := e.image(ctx, path, over, "rebase", "-q", "-f", "qcow2", "-b", bottom.Base, "-F", bottom.BaseFormat, "--", path)
		if err == nil {
			err = machine.Sync(path)
		}
		if err == nil {
			err = remove(under)
		}
		return err
	}
	// -d: do not empty path. It hides the incomplete content of under until it is replaced.
	if err := e.image(ctx, path, over, "commit", "-q", "-d", "-f", "qcow2", "--", path); err != nil {
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

// FlattenDisk implements [machine.Engine]. It creates an empty disk over path
// and then rebases it on the base of under, which copies everything in between
// into it.
func (e *Engine) FlattenDisk(ctx context.Context, path, under, to string) (err error) {
	top, err := describe(path)
	if err != nil {
		return err
	}
	bottom, err := describe(under)
	if err != nil {
		return err
	}
	if bottom.Base == "" {
		return holt.Errorf(holt.InvalidArgument, "disk %s has no base", under)
	}
	beneath, err := e.beneath(ctx, path)
	if err != nil {
		return err
	}
	bytes, at := top.Bytes, !sameFile(path, under)
	for i := 0; i < len(beneath) && at; i++ {
		if beneath[i].Format != "qcow2" {
			break
		}
		d, err := describe(beneath[i].Path)
		if err != nil {
			return err
		}
		bytes, at = bytes+d.Bytes, !sameFile(beneath[i].Path, under)
	}
	if at {
		return holt.Errorf(holt.Conflict, "disk %s is not above %s", path, under)
	}
	if err := machine.Room(filepath.Dir(to), bytes/mib+mergeSpareMB); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(to)
		}
	}()
	// -u: the base has been checked here.
	if err := e.image(ctx, to, nil, "create", "-q", "-u", "-f", "qcow2", "-F", "qcow2", "-b", path, "--", to, strconv.FormatInt(top.VirtualSize, 10)); err != nil {
		return err
	}
	files := append([]jail.File{{Path: to, Write: true}, {Path: path}}, forReading(beneath)...)
	if err := e.image(ctx, to, files, "rebase", "-q", "-f", "qcow2", "-b", bottom.Base, "-F", bottom.BaseFormat, "--", to); err != nil {
		return err
	}
	return machine.Sync(to)
}

// mergeSpareMB is the space that a merge leaves free on the host's disk, MiB;
// merges are background work.
const mergeSpareMB = 1024

// sameFile reports whether two paths, which may contain symbolic links, name one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// image runs qemu-img, which ends with this process, so that another daemon
// never runs at the same time. qemu-img opens the files that disk headers name,
// which guests may have changed: with jails it runs in a jail that has only
// these files; without files it opens only path.
func (e *Engine) image(ctx context.Context, path string, files []jail.File, args ...string) error {
	var out bytes.Buffer
	err := jail.Thread(func() error {
		cmd := exec.CommandContext(ctx, e.img, args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = environ(), &out, &out
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} // sent when the starting thread ends
		start := cmd.Start
		if e.apart && len(files) > 0 {
			start = func() error { return jail.Cell{User: jail.User("disk " + path), Files: files}.Start(cmd) }
		}
		if err := start(); err != nil {
			return err
		}
		return cmd.Wait()
	})
	return e.imageError(ctx, path, out.String(), err)
}

func (e *Engine) imageError(ctx context.Context, path, out string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("merge disk: %w", ctx.Err())
	case strings.Contains(out, unix.ENOSPC.Error()):
		return machine.FullDisk(filepath.Dir(path))
	}
	return holt.Errorf(holt.Internal, "merge disk %s: %w: %s", path, err, clip(strings.TrimSpace(out)))
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove disk: %w", err)
	}
	return nil
}
