package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// mostBeneath is the maximum length of a chain of disks.
const mostBeneath = 256

// beneath returns the chain of disks below a disk, according to their headers.
// It must be a subsequence of the chain in the disk ledger, because a guest
// that has compromised QEMU may have changed the headers.
func (e *Engine) beneath(ctx context.Context, path string) (all []machine.Base, err error) {
	var known []string
	if e.ledger != nil {
		if known, err = e.ledger(ctx, path); err != nil {
			return nil, fmt.Errorf("look up disk %s: %w", path, err)
		}
	}
	for disk := path; len(all) < mostBeneath; {
		d, err := describe(disk)
		if err != nil || d.Base == "" {
			return all, err
		}
		if e.ledger != nil {
			i := slices.IndexFunc(known, func(one string) bool { return isDisk(d.Base, one) })
			if i < 0 {
				return nil, foreign(disk, d.Base)
			}
			known = known[i+1:]
		}
		all, disk = append(all, machine.Base{Path: d.Base, Format: d.BaseFormat}), d.Base
		if d.BaseFormat != "qcow2" {
			return all, nil
		}
	}
	return nil, holt.Errorf(holt.Corrupt, "disk %s has more than %d disks below it", path, mostBeneath)
}

func foreign(disk, base string) error {
	if _, err := os.Stat(base); errors.Is(err, fs.ErrNotExist) {
		return holt.Errorf(holt.Corrupt, "disk %s names the base %q, which does not exist", disk, clip(base)).
			WithHint("if the data directory was moved, create a symbolic link at its old path")
	}
	return holt.Errorf(holt.Corrupt, "disk %s names the base %q, which is not its base: its guest may have compromised QEMU and changed that", disk, clip(base)).
		WithHint("the disk was not used; restore a snapshot (holt snapshot restore), or delete the computer")
}

// isDisk reports whether the base named in a header is a disk; its directory may have been moved.
func isDisk(says, one string) bool {
	return says == one || filepath.Clean(says) == says && filepath.Base(says) == filepath.Base(one) && sameFile(says, one)
}

// Format of a qcow2 header (docs/interop/qcow2.txt of QEMU).
const (
	qcow2Magic   = 0x514649fb // "QFI\xfb"
	lengthAt     = 100        // offset of the header's length, from version 3
	shortHeader  = 72         // length of a version 2 header
	dataFile     = 1 << 2     // incompatible feature: external data file
	baseFormat   = 0xe2792aca
	mostName     = 1023 // bytes
	mostHeader   = 1 << 16
	extensionEnd = 0
)

// description is the content of a qcow2 header.
type description struct {
	VirtualSize int64 // bytes
	Base        string
	BaseFormat  string // raw, if missing
	Bytes       int64  // allocated on the host's disk
}

// describe reads the header of a disk in this process, because qemu-img would
// open the files that it names.
func describe(path string) (d description, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return d, holt.Errorf(holt.NotFound, "base image %s does not exist", path)
	}
	if err != nil {
		return d, fmt.Errorf("inspect disk: %w", err)
	}
	defer f.Close()
	b := make([]byte, mostHeader)
	n, err := f.ReadAt(b, 0)
	if err == nil || errors.Is(err, io.EOF) {
		d, err = parseHeader(b[:n])
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err != nil {
		return d, holt.Errorf(holt.Corrupt, "inspect disk %s: %w", path, err)
	}
	d.Bytes = info.Sys().(*syscall.Stat_t).Blocks * 512
	return d, nil
}

// parseHeader parses the first bytes of a disk.
func parseHeader(b []byte) (d description, err error) {
	bad := errors.New("it is not a qcow2 file")
	if len(b) < lengthAt+4 || binary.BigEndian.Uint32(b) != qcow2Magic {
		return d, bad
	}
	at, name, size := binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint64(b[24:])
	next := uint64(shortHeader)
	if binary.BigEndian.Uint32(b[4:]) >= 3 {
		next = uint64(binary.BigEndian.Uint32(b[lengthAt:]))
		if binary.BigEndian.Uint64(b[72:])&dataFile != 0 {
			return d, errors.New("it has an external data file, which holt's disks never have")
		}
	}
	if size > math.MaxInt64 || name > mostName || at > uint64(len(b)) || uint64(len(b))-at < uint64(name) {
		return d, bad
	}
	d.VirtualSize = int64(size)
	if at == 0 {
		return d, nil
	}
	d.Base, d.BaseFormat = string(b[at:at+uint64(name)]), "raw"
	if !filepath.IsAbs(d.Base) || bytes.IndexByte([]byte(d.Base), 0) >= 0 {
		return d, fmt.Errorf("its base %q is not an absolute path", clip(d.Base))
	}
	for next+8 <= uint64(len(b)) {
		kind, size := binary.BigEndian.Uint32(b[next:]), uint64(binary.BigEndian.Uint32(b[next+4:]))
		if kind == extensionEnd || next+8+size > uint64(len(b)) {
			break
		}
		if kind == baseFormat {
			if d.BaseFormat = string(b[next+8 : next+8+size]); d.BaseFormat != "raw" && d.BaseFormat != "qcow2" {
				return d, fmt.Errorf("its base has the unsupported format %q", clip(d.BaseFormat))
			}
			break
		}
		next += 8 + (size+7)/8*8
	}
	return d, nil
}

// unused describes a disk that no machine has open. QEMU holds locks on some
// bytes of each open disk (block/file-posix.c).
func unused(path string) (d description, err error) {
	if d, err = describe(path); err != nil {
		return d, err
	}
	f, err := os.Open(path)
	if err != nil {
		return d, fmt.Errorf("inspect disk: %w", err)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 100, Len: 200}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return d, fmt.Errorf("check locks of disk: %w", err)
	}
	if lock.Type != unix.F_UNLCK {
		return d, holt.Errorf(holt.Unavailable, "disk %s is in use", path)
	}
	return d, nil
}
