// Package archive stores snapshots and frozen root disks in the chunk archive
// and fetches them back. It knows files and holes; it does not decide what is
// stored or when, which is package computer's.
//
// # Format
//
// Each snapshot and each disk has a space of its own in the [chunk.Archive]:
//
//	NAME.00000, NAME.00001, …  a file in parts of [Archive].Strip bytes, holes left out
//	about.json                 an [About]; it is written last, and a space without it is incomplete
//
// Files never change, so a part that is there is not stored again.
package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"

	"holt"
	"holt/internal/store/chunk"
)

// Archive is the snapshot archive of one daemon.
type Archive struct {
	Chunks  *chunk.Archive // nil: nothing is archived
	Strip   int64          // bytes of a file in one part: what is repeated after a crash, and how long other users of the archive wait
	PackDir string         // directory of the packs, whose disk is not filled up; "": no limit
	Log     *slog.Logger
	Fail    func(point string) error                  // tests: called at each step; an error fails it there. May be nil
	Free    func(dir string) (bytes int64, err error) // free space on a directory's disk
}

// StripBytes is the usual [Archive].Strip.
const StripBytes = 256 << 20

const (
	pieceBytes = 64 << 10 // of one chunk; pieces are aligned to it, as pages and qcow2 clusters are
	PageBytes  = 4 << 10
	maxAbout   = 1 << 20 // bytes
	maxFile    = 1 << 50 // bytes

	aboutPart = "about.json"
)

// Fetching is the suffix of a file that is being fetched.
const Fetching = ".fetching"

// File is a file in a space.
type File struct {
	Name  string  `json:"name"`
	Size  int64   `json:"size"`  // bytes, with holes
	Strip int64   `json:"strip"` // bytes of one part, with holes
	Data  []int64 `json:"data"`  // bytes of each part without holes
}

func (f File) part(i int) string { return fmt.Sprintf("%s.%05d", f.Name, i) }

func (f File) bounds(i int) (first, end int64) {
	return int64(i) * f.Strip, min(int64(i+1)*f.Strip, f.Size)
}

func parts(size, strip int64) int { return int((size + strip - 1) / strip) }

// About describes a space. Together with the disks, the workspace and the image
// that it names, the archive alone has everything to resume a computer from.
type About struct {
	Snapshot   *holt.Snapshot   `json:"snapshot,omitempty"`
	Workspace  holt.WorkspaceID `json:"workspace,omitempty"` // that has a checkpoint named by the snapshot's id
	Template   string           `json:"template,omitempty"`
	DiskSizeMB int              `json:"disk_size_mb,omitempty"`
	Disks      []holt.DiskID    `json:"disks,omitempty"` // frozen with the snapshot, each laid over the next
	Disk       holt.DiskID      `json:"disk,omitempty"`  // set in the space of a disk
	Image      string           `json:"image,omitempty"` // digest of the image at the bottom of the chain
	Files      []File           `json:"files"`
}

var fileName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// ParseAbout decodes an about.json and checks its bounds. Error: Corrupt.
func ParseAbout(b []byte) (a About, err error) {
	if err := json.Unmarshal(b, &a); err != nil {
		return About{}, holt.Errorf(holt.Corrupt, "parse %s: %w", aboutPart, err)
	}
	all := int64(0)
	for _, f := range a.Files {
		bad := !fileName.MatchString(f.Name) || f.Size < 0 || f.Size > maxFile || f.Strip < pieceBytes || f.Strip > maxFile
		bad = bad || len(f.Data) != parts(f.Size, f.Strip)
		for i := 0; i < len(f.Data) && !bad; i++ {
			first, end := f.bounds(i)
			bad = f.Data[i] < 0 || f.Data[i] > end-first
		}
		if all += f.Size; bad || all > maxFile {
			return About{}, holt.Errorf(holt.Corrupt, "%s describes an impossible file: %q of %d bytes", aboutPart, holt.Clip(f.Name, 80), f.Size)
		}
	}
	return a, nil
}

// About returns the description of a space. NotFound if the space is incomplete.
func (v *Archive) About(ctx context.Context, space string) (About, error) {
	ranges, err := v.Chunks.Ranges(ctx, space, aboutPart)
	if err != nil {
		return About{}, err
	}
	if len(ranges) != 1 || ranges[0].Off != 0 || ranges[0].Len > maxAbout {
		return About{}, holt.Errorf(holt.Corrupt, "%s of %s is not one range of at most %d bytes", aboutPart, space, maxAbout)
	}
	b := make([]byte, ranges[0].Len)
	if err := v.Chunks.ReadAt(ctx, space, aboutPart, b, 0); err != nil {
		return About{}, err
	}
	return ParseAbout(b)
}

// Finish writes the description of a space, which makes it complete.
func (v *Archive) Finish(ctx context.Context, space string, a About) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode %s: %w", aboutPart, err)
	}
	end, err := v.Chunks.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	w := v.Chunks.Create(space, aboutPart)
	defer w.Abort()
	if err := w.Append(ctx, 0, b); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// Incomplete tells whether a space, or a part of it, has to be stored again.
func Incomplete(err error) bool {
	code := holt.CodeOf(err)
	return code == holt.NotFound || code == holt.Corrupt
}

// Finished returns nil if a space has a description; see [Incomplete].
func (v *Archive) Finished(ctx context.Context, space string) error {
	_, err := v.has(ctx, space, aboutPart)
	return err
}

// Complete reports whether the archive still has all of a space.
func (v *Archive) Complete(ctx context.Context, space string) (bool, error) {
	a, err := v.About(ctx, space)
	for _, f := range a.Files {
		for i, want := range f.Data {
			var has int64
			if err == nil {
				has, err = v.has(ctx, space, f.part(i))
			}
			if err == nil && has != want {
				return false, nil
			}
		}
	}
	if Incomplete(err) {
		return false, nil
	}
	return err == nil, err
}

// has returns how many bytes of a part the archive has; the error says that some are missing, see [chunk.Archive.Ranges].
func (v *Archive) has(ctx context.Context, space, part string) (n int64, err error) {
	ranges, err := v.Chunks.Ranges(ctx, space, part)
	for _, r := range ranges {
		n += r.Len
	}
	return n, err
}

// Drop removes a space; it is no error if there is none. After an error the
// name must not be used for other content: the old content would be taken for it.
func (v *Archive) Drop(ctx context.Context, space string) error {
	if v.Chunks == nil {
		return nil
	}
	if err := v.Chunks.Drop(ctx, space); err != nil {
		return fmt.Errorf("drop %s from the archive: %w", space, err)
	}
	return nil
}

// TryDrop is Drop for a space whose name is never used for other content: a
// later garbage collection removes what cannot be removed now.
func (v *Archive) TryDrop(ctx context.Context, space string) {
	if err := v.Drop(ctx, space); err != nil {
		v.Log.WarnContext(ctx, "a deleted space stays in the archive until it is garbage collected", "space", space, "err", err)
	}
}

func (v *Archive) failpoint(name string) error {
	if v.Fail == nil {
		return nil
	}
	return v.Fail(name)
}

// zeros reports whether all bytes are zero.
func zeros(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
