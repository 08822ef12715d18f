package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/store/chunk"
)

// Disk space that is left free: on the packs' disk, where others write too, and
// on the disk that files are fetched to. There it is less, since somebody waits for the file.
const (
	SpareBytes      = 1 << 30
	FetchSpareBytes = 64 << 20
)

// FreeBytes returns the free space of a directory's disk for this user.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("get free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Allocated returns the size of a file on disk, bytes; 0 without one.
func Allocated(path string) int64 {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0
	}
	return st.Blocks * 512
}

// CheckRoom returns OutOfSpace if the packs' disk may have no room for so many bytes.
func (v *Archive) CheckRoom(bytes int64) error {
	if v.PackDir == "" {
		return nil
	}
	free, err := v.Free(v.PackDir)
	if err != nil {
		return err
	}
	if free < bytes+SpareBytes {
		return holt.Errorf(holt.OutOfSpace, "the archive's disk at %s has %d MiB free; this may take %d MiB, and %d MiB must stay free",
			v.PackDir, free>>20, bytes>>20, SpareBytes>>20).WithHint("free some space on that disk")
	}
	return nil
}

// Missing returns how many bytes of a file a space lacks, at most; 0 for a file that does not exist.
func (v *Archive) Missing(ctx context.Context, space, path, name string) (bytes int64, err error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	f := File{Name: name, Size: st.Size(), Strip: v.Strip}
	for i := range parts(f.Size, f.Strip) {
		_, err := v.has(ctx, space, f.part(i))
		if Incomplete(err) {
			first, end := f.bounds(i)
			bytes += end - first
		} else if err != nil {
			return 0, err
		}
	}
	return min(bytes, Allocated(path)), nil // holes are not stored
}

// Put stores a file in a space, as far as it is missing there, and returns by how many bytes the packs grew.
func (v *Archive) Put(ctx context.Context, space, path, name string) (f File, grown int64, err error) {
	in, err := os.Open(path)
	if err != nil {
		return f, 0, err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return f, 0, err
	}
	f = File{Name: name, Size: st.Size(), Strip: v.Strip, Data: make([]int64, parts(st.Size(), v.Strip))}
	for i := range f.Data {
		f.Data[i], err = v.has(ctx, space, f.part(i))
		if Incomplete(err) {
			var w chunk.Written
			if err = v.failpoint("keep/strip"); err == nil {
				w, err = v.putPart(ctx, space, f, i, in)
			}
			f.Data[i], grown = w.Bytes, grown+w.Stored
		}
		if err != nil {
			return f, grown, err
		}
	}
	return f, grown, nil
}

func (v *Archive) putPart(ctx context.Context, space string, f File, i int, in *os.File) (chunk.Written, error) {
	end, err := v.Chunks.Turn(ctx)
	if err != nil {
		return chunk.Written{}, err
	}
	defer end()
	w := v.Chunks.Create(space, f.part(i))
	defer w.Abort()
	off, last := f.bounds(i)
	b := make([]byte, pieceBytes)
	for off < last {
		data, err := in.Seek(off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= last {
			break
		}
		if err != nil {
			return chunk.Written{}, fmt.Errorf("seek to data: %w", err)
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
