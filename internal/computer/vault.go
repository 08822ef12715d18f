package computer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/chunk"
)

// vault is the archive as what is kept of computers uses it: a space for each
// snapshot and each frozen disk, with files in it. Neither ever changes.
//
//	NAME.00000, NAME.00001, …   a file, each part the next strip of it, holes left out
//	about.json                  what it is and which files it has; written last: a space without one is not whole
type vault struct {
	a     *chunk.Archive // nil: nothing is archived
	strip int64          // stripBytes, but in tests
	dir   string         // of its packs; ""
	log   *slog.Logger
	fail  func(point string) error
	free  func(dir string) (bytes int64, err error) // freeBytes, but in tests
}

const (
	// stripBytes of a file are one part: what is done again after a kill, and how
	// long others of the archive wait for their turn.
	stripBytes = 256 << 20
	// pieceBytes are one chunk, and begin at a multiple of that: pages stay where
	// they are from one snapshot to the next, and qcow2 has clusters of that size.
	pieceBytes = 64 << 10
	pageBytes  = 4 << 10
	aboutPart  = "about.json"
	maxAbout   = 1 << 20 // bytes
	maxFile    = 1 << 50 // bytes
	// fetching ends the name of a file that is on its way from the archive.
	fetching = ".fetching"
)

// archivedFile is a file in a space.
type archivedFile struct {
	Name  string  `json:"name"`
	Size  int64   `json:"size"`  // bytes, with the holes
	Strip int64   `json:"strip"` // bytes that one part has, with the holes
	Data  []int64 `json:"data"`  // how many bytes of each the archive has
}

// part names one of a file's.
func (f archivedFile) part(i int) string { return fmt.Sprintf("%s.%05d", f.Name, i) }

// bounds are where one of its strips begins and ends.
func (f archivedFile) bounds(i int) (first, end int64) {
	return int64(i) * f.Strip, min(int64(i+1)*f.Strip, f.Size)
}

func strips(size, strip int64) int { return int((size + strip - 1) / strip) }

// about says what a space is of: a snapshot, or a disk. With it, its files and the
// disks and the workspace that it names, and an image's root of the same digest,
// the store alone has all that a computer goes on from.
type about struct {
	Snapshot   *holt.Snapshot   `json:"snapshot,omitempty"`
	Workspace  holt.WorkspaceID `json:"workspace,omitempty"` // has a checkpoint with the snapshot's id as its name
	Template   string           `json:"template,omitempty"`
	DiskSizeMB int              `json:"disk_size_mb,omitempty"`
	Disks      []holt.DiskID    `json:"disks,omitempty"` // frozen with the snapshot, each laid over the next
	Disk       holt.DiskID      `json:"disk,omitempty"`
	Image      string           `json:"image,omitempty"` // digest of the root beneath all
	Files      []archivedFile   `json:"files"`
}

var fileName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// parseAbout decodes and bounds what a store says. All files together have no
// more than maxFile bytes, and no part has more than it can.
func parseAbout(b []byte) (a about, err error) {
	if err := json.Unmarshal(b, &a); err != nil {
		return about{}, holt.Errorf(holt.Corrupt, "parse %s: %w", aboutPart, err)
	}
	all := int64(0)
	for _, f := range a.Files {
		bad := !fileName.MatchString(f.Name) || f.Size < 0 || f.Size > maxFile || f.Strip < pieceBytes || f.Strip > maxFile
		bad = bad || len(f.Data) != strips(f.Size, f.Strip)
		for i := 0; i < len(f.Data) && !bad; i++ {
			first, end := f.bounds(i)
			bad = f.Data[i] < 0 || f.Data[i] > end-first
		}
		if all += f.Size; bad || all > maxFile {
			return about{}, holt.Errorf(holt.Corrupt, "%s names a file that cannot be: %q of %d bytes", aboutPart, clip(f.Name), f.Size)
		}
	}
	return a, nil
}

// about reads what a space is of. NotFound if it is not whole.
func (v vault) about(ctx context.Context, space string) (about, error) {
	ranges, err := v.a.Ranges(ctx, space, aboutPart)
	if err != nil {
		return about{}, err
	}
	if len(ranges) != 1 || ranges[0].Off != 0 || ranges[0].Len > maxAbout {
		return about{}, holt.Errorf(holt.Corrupt, "%s of %s is not one string", aboutPart, space)
	}
	b := make([]byte, ranges[0].Len)
	if err := v.a.ReadAt(ctx, space, aboutPart, b, 0); err != nil {
		return about{}, err
	}
	return parseAbout(b)
}

// finish makes a space whole.
func (v vault) finish(ctx context.Context, space string, a about) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode %s: %w", aboutPart, err)
	}
	end, err := v.a.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	w := v.a.Create(space, aboutPart)
	defer w.Abort()
	if err := w.Append(ctx, 0, b); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

const (
	// spareBytes is what storing leaves free of the disk that the packs lie on: others
	// write there, too, and a snapshot is no use to anybody before all of it is there.
	spareBytes = 1 << 30
	// fetchSpareBytes is what fetching leaves free here, as engines do that make disks and
	// snapshots: somebody waits for it.
	fetchSpareBytes = 64 << 20
)

// freeBytes is the room that a directory's disk has for this user.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look for room at %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// room fails with OutOfSpace if so many bytes may be too many for the packs' disk.
func (v vault) room(bytes int64) error {
	if v.dir == "" {
		return nil
	}
	free, err := v.free(v.dir)
	if err != nil {
		return err
	}
	if free < bytes+spareBytes {
		return holt.Errorf(holt.OutOfSpace, "the archive's disk at %s has %d MiB free, and storing may take %d MiB", v.dir, free>>20, bytes>>20).
			WithHint("free some space: %d MiB have to be left", spareBytes>>20)
	}
	return nil
}

// missing is how many bytes of a file a space may have to take in yet, at most; none of
// a file that is not there.
func (v vault) missing(ctx context.Context, space, path, name string) (bytes int64, err error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	f := archivedFile{Name: name, Size: st.Size(), Strip: v.strip}
	for i := range strips(f.Size, f.Strip) {
		_, err := v.has(ctx, space, f.part(i))
		if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Corrupt {
			first, end := f.bounds(i)
			bytes += end - first
		} else if err != nil {
			return 0, err
		}
	}
	return min(bytes, allocated(path)), nil // holes are not stored
}

// store puts a file into a space, and returns by how many bytes packs grew. Strips
// that are there already are left: files do not change.
func (v vault) store(ctx context.Context, space, path, name string) (f archivedFile, stored int64, err error) {
	in, err := os.Open(path)
	if err != nil {
		return f, 0, err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return f, 0, err
	}
	f = archivedFile{Name: name, Size: st.Size(), Strip: v.strip, Data: make([]int64, strips(st.Size(), v.strip))}
	for i := range f.Data {
		f.Data[i], err = v.has(ctx, space, f.part(i))
		if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Corrupt {
			var w chunk.Written
			if err = v.point("keep/strip"); err == nil {
				w, err = v.storeStrip(ctx, space, f, i, in)
			}
			f.Data[i], stored = w.Bytes, stored+w.Stored
		}
		if err != nil {
			return f, stored, err
		}
	}
	return f, stored, nil
}

func (v vault) point(name string) error {
	if v.fail == nil {
		return nil
	}
	return v.fail(name)
}

// has returns how many bytes of a part there are, and an error if that is not all: see [chunk.Archive.Ranges].
func (v vault) has(ctx context.Context, space, part string) (n int64, err error) {
	ranges, err := v.a.Ranges(ctx, space, part)
	for _, r := range ranges {
		n += r.Len
	}
	return n, err
}

func (v vault) storeStrip(ctx context.Context, space string, f archivedFile, i int, in *os.File) (chunk.Written, error) {
	end, err := v.a.Turn(ctx)
	if err != nil {
		return chunk.Written{}, err
	}
	defer end()
	w := v.a.Create(space, f.part(i))
	defer w.Abort()
	off, last := f.bounds(i)
	b := make([]byte, pieceBytes)
	for off < last {
		data, err := in.Seek(off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= last {
			break
		}
		if err != nil {
			return chunk.Written{}, fmt.Errorf("look for data: %w", err)
		}
		off = data - data%pieceBytes
		p := b[:min(pieceBytes, last-off)]
		if _, err := in.ReadAt(p, off); err != nil {
			return chunk.Written{}, err
		}
		if !zeros(p) {
			if err := w.AppendChunk(ctx, off, p); err != nil {
				return chunk.Written{}, err
			}
		}
		off += int64(len(p))
	}
	return w.Commit(ctx)
}

// zeros says whether all bytes are.
func zeros(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// whole says whether the archive still has all of a space.
func (v vault) whole(ctx context.Context, space string) (bool, error) {
	a, err := v.about(ctx, space)
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
	if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Corrupt {
		return false, nil
	}
	return err == nil, err
}

// fetch makes those files of a space in dir that are not there, each whole or not
// at all, and returns how many bytes it read.
//
// Errors: Corrupt and NotFound (of the archive), Unavailable, Timeout, OutOfSpace (here).
func (v vault) fetch(ctx context.Context, space, dir string) (n int64, err error) {
	a, err := v.about(ctx, space)
	if err != nil {
		return 0, err
	}
	a.Files = slices.DeleteFunc(a.Files, func(f archivedFile) bool {
		_, err := os.Lstat(filepath.Join(dir, f.Name))
		return err == nil
	})
	if err := v.roomHere(dir, a.Files); err != nil {
		return 0, err
	}
	for _, f := range a.Files {
		path := filepath.Join(dir, f.Name)
		read, err := v.fetchFile(ctx, space, f, path)
		if n += read; err != nil {
			return n, hosterror.Full(err)
		}
	}
	return n, nil
}

// roomHere fails with OutOfSpace if files may be too much for a directory's disk: running
// guests and journals write to that one.
func (v vault) roomHere(dir string, files []archivedFile) error {
	most := int64(0)
	for _, f := range files {
		for _, n := range f.Data {
			most += n
		}
	}
	free, err := v.free(dir)
	if err != nil {
		return err
	}
	if most > 0 && free < most+fetchSpareBytes {
		return holt.Errorf(holt.OutOfSpace, "the disk has %d MiB free, and memory from the archive takes up to %d MiB", free>>20, most>>20).
			WithHint("free some space: %d MiB have to be left", fetchSpareBytes>>20)
	}
	return nil
}

func (v vault) fetchFile(ctx context.Context, space string, f archivedFile, path string) (n int64, err error) {
	out, err := os.OpenFile(path+fetching, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err == nil {
			err = os.Rename(out.Name(), path)
		}
		if err != nil {
			os.Remove(out.Name())
		}
	}()
	if err := errors.Join(out.Truncate(f.Size), v.point("fetch/file")); err != nil {
		return 0, err
	}
	for i, want := range f.Data {
		read, err := v.fetchStrip(ctx, space, f, i, out)
		if n += read; err != nil {
			return n, err
		}
		if read != want {
			return n, holt.Errorf(holt.Corrupt, "the archive has %d bytes of %s/%s, and %d were stored", read, space, f.part(i), want)
		}
	}
	return n, out.Sync() // a file under its own name is whole, after a power loss too
}

const (
	fetchesAtOnce = 4
	fetchBytes    = 1 << 20 // by each
)

func (v vault) fetchStrip(ctx context.Context, space string, f archivedFile, i int, out *os.File) (n int64, err error) {
	ranges, err := v.a.Ranges(ctx, space, f.part(i))
	if err != nil {
		return 0, err
	}
	first, last := f.bounds(i)
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(fetchesAtOnce)
	for _, r := range ranges {
		if r.Off < first || r.Off+r.Len > last {
			work.Go(func() error {
				return holt.Errorf(holt.Corrupt, "the archive has bytes of %s/%s beyond its end", space, f.part(i))
			})
			break
		}
		n += r.Len
		for at := r.Off; at < r.Off+r.Len && ctx.Err() == nil; at += fetchBytes {
			work.Go(func() error {
				b := make([]byte, min(fetchBytes, r.Off+r.Len-at))
				if err := v.a.ReadAt(ctx, space, f.part(i), b, at); err != nil {
					return err
				}
				return writeSparse(out, b, at)
			})
		}
	}
	return n, work.Wait()
}

// writeSparse writes pages that are not zeros to a file that is.
func writeSparse(out io.WriterAt, b []byte, off int64) error {
	for at := 0; at < len(b); {
		end := at
		for end < len(b) && !zeros(b[end:min(end+pageBytes, len(b))]) {
			end = min(end+pageBytes, len(b))
		}
		if end > at {
			if _, err := out.WriteAt(b[at:end], off+int64(at)); err != nil {
				return err
			}
		}
		at = end + pageBytes // what is left of a page of zeros is skipped with it
	}
	return nil
}

// drop removes a space, if there is one. Whoever goes on with its name, and other
// content, must not after an error: what is there would be taken for that.
func (v vault) drop(ctx context.Context, space string) error {
	if v.a == nil {
		return nil
	}
	if err := v.a.Drop(ctx, space); err != nil {
		return fmt.Errorf("drop %s from the archive: %w", space, err)
	}
	return nil
}

// dropOrSay drops a space whose name nobody uses again, or not for anything else: a
// collection does what cannot be done now.
func (v vault) dropOrSay(ctx context.Context, space string) {
	if err := v.drop(ctx, space); err != nil {
		v.log.WarnContext(ctx, "what was deleted is removed from the archive later", "space", space, "err", err)
	}
}
