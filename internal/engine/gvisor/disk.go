package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

const (
	mib       = 1 << 20
	minFreeMB = 64 // minimum free space on the host for creating a disk, MiB
	formatter = "mkfs.ext4"

	diskMagic = "holt sandbox disk\n"
	bootBlock = 1024 // bytes at the start of an ext4 image that ext4 does not use
)

// DiskHeader is in the boot block of a disk.
type DiskHeader struct {
	Root string       `json:"root"` // the raw image with the lower layer, an absolute path
	Base machine.Base `json:"base"` // as given to CreateDisk
}

// ReadDiskHeader reads the header of a disk, or returns NotFound or Corrupt.
func ReadDiskHeader(path string) (DiskHeader, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return DiskHeader{}, holt.Errorf(holt.NotFound, "disk %s does not exist", path)
	}
	if err != nil {
		return DiskHeader{}, fmt.Errorf("read disk: %w", err)
	}
	defer f.Close()
	b := make([]byte, bootBlock)
	if _, err := io.ReadFull(f, b); err != nil {
		return DiskHeader{}, holt.Errorf(holt.Corrupt, "disk %s has no header: %w", path, err)
	}
	h, err := parseHeader(b)
	if err != nil {
		return h, fmt.Errorf("disk %s: %w", path, err)
	}
	return h, nil
}

func parseHeader(b []byte) (h DiskHeader, err error) {
	text, ok := bytes.CutPrefix(b, []byte(diskMagic))
	if !ok {
		return h, holt.Errorf(holt.Corrupt, "it is not a disk of the gvisor engine")
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	if err := json.Unmarshal(text, &h); err != nil || !filepath.IsAbs(h.Root) {
		return h, holt.Errorf(holt.Corrupt, "its header is invalid")
	}
	return h, nil
}

func (h DiskHeader) write(f *os.File) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	b := append([]byte(diskMagic), text...)
	if len(b) >= bootBlock {
		return holt.Errorf(holt.InvalidArgument, "the paths of a disk's image and base are longer than %d bytes together", bootBlock-100).
			WithHint("use a data directory with a shorter path")
	}
	_, err = f.WriteAt(append(b, make([]byte, bootBlock-len(b))...), 0)
	return err
}

// CreateDisk implements [machine.Engine]: an empty upper layer over a raw image, or a copy of a disk.
func (e *Engine) CreateDisk(ctx context.Context, path string, base machine.Base, sizeMB int) error {
	if !filepath.IsAbs(path) || !filepath.IsAbs(base.Path) {
		return holt.Errorf(holt.InvalidArgument, "disk %q or its base %q is not an absolute path", path, base.Path)
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
	if err := room(filepath.Dir(path)); err != nil {
		return err
	}
	under, err := ReadDiskHeader(base.Path)
	if err == nil {
		return copyDisk(base.Path, path, DiskHeader{Root: under.Root, Base: base}, sizeMB)
	}
	if base.Format != "" && base.Format != "raw" {
		return err
	}
	return replace(path, func(f *os.File) error {
		if err := f.Truncate(int64(sizeMB) * mib); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, formatter, "-q", "-F", "-m", "0", "-J", "size=16",
			"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", f.Name()).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, holt.Clip(strings.TrimSpace(string(out)), 500))
		}
		return DiskHeader{Root: base.Path, Base: base}.write(f)
	})
}

// GrowDisk implements [machine.Engine]. The file system in it grows when it is mounted.
func (e *Engine) GrowDisk(_ context.Context, path string, sizeMB int) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("grow disk: %w", err)
	}
	if info.Size() >= int64(sizeMB)*mib {
		return nil
	}
	if err := room(filepath.Dir(path)); err != nil {
		return err
	}
	return os.Truncate(path, int64(sizeMB)*mib)
}

// MergeDisk implements [machine.Engine]. A disk does not depend on its base, so this removes the base.
func (e *Engine) MergeDisk(_ context.Context, path, under string) error {
	h, err := ReadDiskHeader(path)
	if err != nil {
		return err
	}
	if h.Base.Path == under {
		was, err := ReadDiskHeader(under)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("merge disk: %w", err)
		}
		defer f.Close()
		h.Base = was.Base
		if err := errors.Join(h.write(f), f.Sync()); err != nil {
			return fmt.Errorf("merge disk: %w", err)
		}
	}
	if err := os.Remove(under); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("merge disk: %w", err)
	}
	return nil
}

// FlattenDisk implements [machine.Engine].
func (e *Engine) FlattenDisk(_ context.Context, path, under, to string) error {
	h, err := ReadDiskHeader(path)
	if err != nil {
		return err
	}
	lowest := h
	for at := path; at != under; lowest, err = ReadDiskHeader(at) {
		if err == nil {
			at = lowest.Base.Path
		}
		if err != nil || at == "" || at == lowest.Root {
			return holt.Errorf(holt.InvalidArgument, "disk %s does not lie over %s", path, under)
		}
	}
	if err := room(filepath.Dir(to)); err != nil {
		return err
	}
	h.Base = lowest.Base
	return copyDisk(path, to, h, 0)
}

// copyDisk makes a disk at to, replacing any, with the content of from. It is larger if sizeMB is.
func copyDisk(from, to string, h DiskHeader, sizeMB int) error {
	return replace(to, func(f *os.File) error {
		if err := CopySparse(f, from); err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil && info.Size() < int64(sizeMB)*mib {
			err = f.Truncate(int64(sizeMB) * mib)
		}
		return errors.Join(err, h.write(f))
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
			return full(filepath.Dir(path), 0)
		}
		return fmt.Errorf("create disk %s: %w", path, err)
	}
	return nil
}

// CopySparse gives the empty file f the content of the file from: by reflink, or
// by copying what is allocated.
func CopySparse(f *os.File, from string) error {
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
		data, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for in, out := data, data; in < end; {
			n, err := unix.CopyFileRange(int(src.Fd()), &in, int(f.Fd()), &out, int(min(end-in, 1<<30)), 0)
			if err != nil {
				return err
			}
			if n == 0 {
				return io.ErrUnexpectedEOF
			}
		}
		at = end
	}
}

// room returns OutOfSpace if the host's disk is full.
func room(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("get free space in %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize / mib; free < minFreeMB {
		return full(dir, free)
	}
	return nil
}

func full(dir string, freeMB int64) error {
	return holt.Errorf(holt.OutOfSpace, "the host's disk at %s is full: %d MiB are free", dir, freeMB).
		WithHint("free some space: at least %d MiB are needed", minFreeMB)
}
