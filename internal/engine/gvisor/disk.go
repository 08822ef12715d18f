package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

const (
	mib       = 1 << 20
	formatter = "mkfs.ext4"

	mostBeneath  = 256      // maximum length of a chain of disks
	mergeSpareMB = 1024     // space that a merge, which is background work, leaves free, MiB
	copyPiece    = 64 << 20 // a copy looks at its context after so many bytes
)

// CreateDisk implements [machine.Engine]: an empty upper layer over a raw image, or a copy of a disk.
func (e *Engine) CreateDisk(ctx context.Context, path string, base machine.Base, sizeMB int) error {
	if !filepath.IsAbs(path) || !filepath.IsAbs(base.Path) {
		return holt.Errorf(holt.InvalidArgument, "disk %q or its base %q is not an absolute path", path, base.Path)
	}
	raw := base.Format == "" || base.Format == "raw"
	if !raw && base.Format != DiskFormat {
		return holt.Errorf(holt.InvalidArgument, "invalid disk format %.40q: use raw or %s", base.Format, DiskFormat)
	}
	if _, err := os.Lstat(path); err == nil {
		return holt.Errorf(holt.AlreadyExists, "disk %s exists already", path)
	}
	info, err := os.Stat(base.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return holt.Errorf(holt.NotFound, "base image %s does not exist", base.Path)
	}
	if err != nil {
		return fmt.Errorf("inspect base image: %w", err)
	}
	if least := (info.Size() + mib - 1) / mib; int64(sizeMB) < least {
		return holt.Errorf(holt.InvalidArgument, "a disk of %d MiB is smaller than the image, which needs %d MiB", sizeMB, least).
			WithHint("ask for at least %d MiB", least)
	}
	if err := machine.Room(filepath.Dir(path), machine.MinFreeMB); err != nil {
		return err
	}
	if raw {
		return replace(path, func(f *os.File) error { return format(ctx, f, base, sizeMB) })
	}
	under, err := ReadDiskHeader(base.Path)
	if err != nil {
		return err
	}
	return copyDisk(ctx, base.Path, path, DiskHeader{Root: under.Root, Base: base}, sizeMB)
}

// format makes an empty disk.
func format(ctx context.Context, f *os.File, base machine.Base, sizeMB int) error {
	if err := f.Truncate(int64(sizeMB) * mib); err != nil {
		return err
	}
	// The last argument is the size in KiB.
	out, err := exec.CommandContext(ctx, formatter, "-q", "-F", "-m", "0", "-J", "size=16",
		"-E", fmt.Sprintf("lazy_itable_init=1,lazy_journal_init=1,nodiscard,offset=%d", HeaderBytes),
		f.Name(), fmt.Sprint(sizeMB*1024-HeaderBytes/1024)).CombinedOutput()
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("%w: %s", err, holt.Clip(strings.TrimSpace(string(out)), 500)))
	}
	return DiskHeader{Root: base.Path, Base: base}.Write(f)
}

// GrowDisk implements [machine.Engine]. The file system in it grows when it is mounted.
func (e *Engine) GrowDisk(_ context.Context, path string, sizeMB int) error {
	if _, err := ReadDiskHeader(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("grow disk: %w", err)
	}
	if info.Size() >= int64(sizeMB)*mib {
		return nil
	}
	if err := machine.Room(filepath.Dir(path), machine.MinFreeMB); err != nil {
		return err
	}
	if err := os.Truncate(path, int64(sizeMB)*mib); err != nil {
		return fmt.Errorf("grow disk: %w", err)
	}
	return nil
}

// MergeDisk implements [machine.Engine]. A disk has all of its content, so this only
// records the base of under and removes under.
func (e *Engine) MergeDisk(_ context.Context, path, under string) error {
	h, err := ReadDiskHeader(path)
	if err != nil {
		return err
	}
	was, err := ReadDiskHeader(under)
	switch {
	case holt.CodeOf(err) == holt.NotFound && h.Base.Path != under:
		return nil // already merged
	case err != nil:
		return err
	case h.Base != was.Base && !isDisk(h.Base.Path, under):
		return holt.Errorf(holt.Conflict, "the base of disk %s is %s, not %s", path, h.Base.Path, under)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("merge disk: %w", err)
	}
	defer f.Close()
	h.Base = was.Base
	// What was only written to the host's cache must not be lost when under is gone.
	err = errors.Join(h.Write(f), f.Sync())
	if err == nil {
		err = os.Remove(under)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("merge disk: %w", err)
	}
	return nil
}

// FlattenDisk implements [machine.Engine].
func (e *Engine) FlattenDisk(ctx context.Context, path, under, to string) (err error) {
	h, err := ReadDiskHeader(path)
	if err != nil {
		return err
	}
	lowest, at := h, path
	for n := 0; !isDisk(at, under); n++ {
		if at = lowest.Base.Path; at == lowest.Root || n == mostBeneath {
			return holt.Errorf(holt.InvalidArgument, "disk %s does not lie over %s", path, under)
		}
		if lowest, err = ReadDiskHeader(at); err != nil {
			return err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("inspect disk: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(to)
		}
	}()
	if err := machine.Room(filepath.Dir(to), info.Sys().(*syscall.Stat_t).Blocks*512/mib+mergeSpareMB+machine.MinFreeMB); err != nil {
		return err
	}
	h.Base = lowest.Base
	if err := copyDisk(ctx, path, to, h, 0); err != nil {
		return err
	}
	return machine.Sync(to)
}

// isDisk reports whether a path that a header names is that of a disk, whose
// directory may have been moved. A disk can have another name too: see [DiskHeader.Rename].
func isDisk(says, path string) bool {
	if says == path || filepath.Base(says) != filepath.Base(path) {
		return says == path
	}
	one, err := os.Stat(says)
	if err != nil {
		return false
	}
	other, err := os.Stat(path)
	return err == nil && os.SameFile(one, other)
}

// copyDisk makes a disk at to, replacing any, with the content of from. It is larger if sizeMB is.
func copyDisk(ctx context.Context, from, to string, h DiskHeader, sizeMB int) error {
	return replace(to, func(f *os.File) error {
		if err := CopySparse(ctx, f, from); err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil && info.Size() < int64(sizeMB)*mib {
			err = f.Truncate(int64(sizeMB) * mib)
		}
		return errors.Join(err, h.Write(f))
	})
}

// replace writes a file atomically.
func replace(path string, write func(*os.File) error) error {
	f, err := os.OpenFile(path+".part", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create disk: %w", err)
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		if errors.Is(err, unix.ENOSPC) {
			return machine.FullDisk(filepath.Dir(path))
		}
		return fmt.Errorf("create disk %s: %w", path, err)
	}
	return nil
}

// CopySparse gives the empty file f the content of the file from: by reflink, or
// by copying what is allocated.
func CopySparse(ctx context.Context, f *os.File, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	if unix.IoctlFileClone(int(f.Fd()), int(src.Fd())) == nil {
		return nil
	}
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := f.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		data, err := src.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		end, err := src.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		at = min(end, data+copyPiece)
		_, err1 := src.Seek(data, io.SeekStart)
		_, err2 := f.Seek(data, io.SeekStart)
		if err := errors.Join(ctx.Err(), err1, err2); err != nil {
			return err
		}
		if _, err := io.CopyN(f, src, at-data); err != nil { // with copy_file_range, where that works
			return err
		}
	}
}
