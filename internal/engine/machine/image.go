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

// Names of the files in an image's directory, beside [RecordFile].
const (
	MemoryFile = "memory" // the guest's memory, each page at its address, zeros as holes; what was added: see [MemoryPart]
	StateFile  = "state"  // processors and devices, as the engine writes them
	InitrdFile = "initrd" // the initramfs, of engines that boot one: that of the spec may be gone; images from before have none
)

// Image is a memory image, what a snapshot leaves: a running machine's memory and
// devices at one instant. Its files never change once the record is there, which is
// written last: a directory without one is what a snapshot that was cut short has left.
type Image struct {
	Engine string `json:"engine"`
	// Spec is what the machine was started with, and its shape what it had grown to; its Disk is the one that was frozen.
	Spec    Spec      `json:"spec"`
	TakenAt time.Time `json:"taken_at"`
	// Hardware is as in [Record]. The image can be restored only where it is the same.
	Hardware json.RawMessage `json:"hardware"`
	Report   SnapshotReport  `json:"report"`
}

// ReadImage reads the record of the image in dir. NotFound if there is none,
// Corrupt if it cannot be read.
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
		return Image{}, holt.Errorf(holt.Corrupt, "record of a machine image does not say what machine it was")
	}
	return im, nil
}

// Write writes the record of a complete image, atomically; durably if asked.
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

// Restored returns spec with all that its image says. What spec says itself must
// be the same: InvalidArgument.
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
			return s, holt.Errorf(holt.InvalidArgument, "a machine that is restored cannot have another %s than its image", f.what)
		}
	}
	s.Kernel, s.Initrd, s.Args = was.Kernel, was.Initrd, was.Args
	s.CPUs, s.MemoryMB, s.Network = was.CPUs, was.MemoryMB, was.Network
	s.MaxCPUs, s.MaxMemoryMB = was.MaxCPUs, was.MaxMemoryMB
	return s, nil
}
