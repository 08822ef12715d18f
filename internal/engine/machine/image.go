package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holt"
)

// Names of the files in an image's directory, in addition to [RecordFile].
const (
	MemoryFile = "memory" // the guest's memory, each page at its address, zeros as holes; for added memory see [MemoryPart]
	StateFile  = "state"  // processors and devices, as the engine writes them
	InitrdFile = "initrd" // the initramfs, since that of the spec may have been removed; older images have none
)

// Image is a memory image: a running machine's memory and devices at one
// instant, taken by a snapshot. Its files never change once the record exists.
// The record is written last: a directory without one is left from an
// interrupted snapshot.
type Image struct {
	Engine string `json:"engine"`
	// Spec is the machine's spec with the shape it had grown to; its Disk is the
	// one that was frozen.
	Spec    Spec      `json:"spec"`
	TakenAt time.Time `json:"taken_at"`
	// Hardware is as in [Record]. The image can be restored only where it is the same.
	Hardware json.RawMessage `json:"hardware"`
	Report   SnapshotReport  `json:"report"`
}

// ReadImage reads the record of the image in dir. It returns NotFound if there
// is none, Corrupt if it is invalid.
func ReadImage(dir string) (Image, error) {
	f, err := os.Open(filepath.Join(dir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, holt.Errorf(holt.NotFound, "there is no complete machine image in %s", dir)
	}
	if err != nil {
		return Image{}, fmt.Errorf("read machine image: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return Image{}, fmt.Errorf("read machine image: %w", err)
	}
	return parseImage(b)
}

func parseImage(b []byte) (Image, error) {
	if len(b) > maxRecord {
		return Image{}, holt.Errorf(holt.Corrupt, "record of a machine image is longer than %d bytes", maxRecord)
	}
	var im Image
	if err := json.Unmarshal(b, &im); err != nil {
		return Image{}, holt.Errorf(holt.Corrupt, "parse record of a machine image: %w", err)
	}
	if im.Engine == "" || len(im.Hardware) == 0 || im.Spec.CPUs < 1 || im.Spec.MemoryMB < 1 {
		return Image{}, holt.Errorf(holt.Corrupt, "record of a machine image has no spec or no hardware")
	}
	return im, nil
}

// Write writes the record of a complete image, atomically and, if durable, synced.
func (im Image) Write(dir string, durable bool) error {
	b, err := json.MarshalIndent(im, "", "  ")
	if err != nil {
		return fmt.Errorf("encode machine image: %w", err)
	}
	if err := writeRecord(dir, b, durable); err != nil {
		return fmt.Errorf("write machine image: %w", err)
	}
	return nil
}

// Restored returns spec completed from the image. It returns InvalidArgument if
// a field of spec differs from the image.
func (s Spec) Restored(im Image) (Spec, error) {
	was := im.Spec
	for _, f := range []struct {
		what  string
		other bool
	}{
		{"kernel", s.Kernel != "" && s.Kernel != was.Kernel},
		{"initrd", s.Initrd != "" && s.Initrd != was.Initrd},
		{"kernel arguments", s.Args != nil && !slices.Equal(s.Args, was.Args)},
		{"processors", s.CPUs != 0 && s.CPUs != was.CPUs},
		{"memory", s.MemoryMB != 0 && s.MemoryMB != was.MemoryMB},
		{"network", s.Network && !was.Network},
		{"root disk", (s.Disk == "") != (was.Disk == "")},
	} {
		if f.other {
			return s, holt.Errorf(holt.InvalidArgument, "a restored machine must have the same %s as its image", f.what)
		}
	}
	s.Kernel, s.Initrd, s.Args = was.Kernel, was.Initrd, was.Args
	s.CPUs, s.MemoryMB, s.Network = was.CPUs, was.MemoryMB, was.Network
	s.MaxCPUs, s.MaxMemoryMB = was.MaxCPUs, was.MaxMemoryMB
	return s, nil
}
