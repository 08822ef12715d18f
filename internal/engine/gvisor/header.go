package gvisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"holt"
	"holt/internal/engine/machine"
)

const (
	diskMagic = "holt sandbox disk 2\n"
	// HeaderBytes is the size of a disk's header. The ext4 image follows it.
	HeaderBytes = 4096
	// DiskFormat is the format of a disk in [machine.Base]; the name is that of QEMU's disks.
	DiskFormat = "qcow2"
)

// DiskHeader is at the start of a disk.
type DiskHeader struct {
	Root string       `json:"root"` // the raw image with the lower layer, an absolute path
	Base machine.Base `json:"base"`
	// Next is the base in place of Base once the disk has another name: see [DiskHeader.Rename].
	Next *Renamed `json:"next,omitempty"`
}

// Renamed is the base of a disk whose file has a certain name.
type Renamed struct {
	Name string       `json:"name"` // without its directory, which may be moved
	Base machine.Base `json:"base"`
}

// Rename returns the header of a disk that is to lie over over as soon as it is
// renamed to path, and not before.
func (h DiskHeader) Rename(path string, over machine.Base) DiskHeader {
	h.Next = &Renamed{Name: filepath.Base(path), Base: over}
	return h
}

// at returns the header of the disk at path, without Next.
func (h DiskHeader) at(path string) DiskHeader {
	if h.Next != nil && h.Next.Name == filepath.Base(path) {
		h.Base = h.Next.Base
	}
	h.Next = nil
	return h
}

// ReadDiskHeader reads the header of a disk; its Next is nil. It returns NotFound or Corrupt.
func ReadDiskHeader(path string) (DiskHeader, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return DiskHeader{}, holt.Errorf(holt.NotFound, "disk %s does not exist", path)
	}
	if err != nil {
		return DiskHeader{}, fmt.Errorf("read disk: %w", err)
	}
	defer f.Close()
	b := make([]byte, HeaderBytes)
	if _, err := io.ReadFull(f, b); err != nil {
		return DiskHeader{}, holt.Errorf(holt.Corrupt, "disk %s has no header: %w", path, err)
	}
	h, err := parseHeader(b)
	if err != nil {
		return h, fmt.Errorf("disk %s: %w", path, err)
	}
	return h.at(path), nil
}

func parseHeader(b []byte) (h DiskHeader, err error) {
	text, ok := bytes.CutPrefix(b, []byte(diskMagic))
	if !ok {
		return h, holt.Errorf(holt.Corrupt, "it is not a disk of the gvisor engine")
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	if err := json.Unmarshal(text, &h); err != nil || !filepath.IsAbs(h.Root) {
		return DiskHeader{}, holt.Errorf(holt.Corrupt, "its header is invalid")
	}
	return h, nil
}

// Write writes the header of a disk, which a machine may be using.
func (h DiskHeader) Write(f *os.File) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	b := append([]byte(diskMagic), text...)
	if len(b) >= HeaderBytes {
		return holt.Errorf(holt.InvalidArgument, "the paths of a disk's image and base are longer than %d bytes together", HeaderBytes-200).
			WithHint("use a data directory with a shorter path")
	}
	_, err = f.WriteAt(append(b, make([]byte, HeaderBytes-len(b))...), 0)
	return err
}
