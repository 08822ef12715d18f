package archive

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/hosterror"
)

// Fetch writes the files of a space that a directory lacks, and returns how many
// bytes it read. A file appears under its name only when it is complete.
//
// Errors: Corrupt and NotFound (of the archive), Unavailable, Timeout, OutOfSpace
// (of the directory's disk), those of the host's file system.
func (v *Archive) Fetch(ctx context.Context, space, dir string) (n int64, err error) {
	a, err := v.About(ctx, space)
	if err != nil {
		return 0, err
	}
	a.Files = slices.DeleteFunc(a.Files, func(f File) bool {
		_, err := os.Lstat(filepath.Join(dir, f.Name))
		return err == nil
	})
	if err := v.checkFetchRoom(dir, a.Files); err != nil {
		return 0, err
	}
	for _, f := range a.Files {
		read, err := v.fetchFile(ctx, space, f, filepath.Join(dir, f.Name))
		if n += read; err != nil {
			return n, hosterror.Full(err)
		}
	}
	return n, nil
}

func (v *Archive) checkFetchRoom(dir string, files []File) error {
	most := int64(0)
	for _, f := range files {
		for _, n := range f.Data {
			most += n
		}
	}
	free, err := v.Free(dir)
	if err != nil {
		return err
	}
	if most > 0 && free < most+FetchSpareBytes {
		return holt.Errorf(holt.OutOfSpace, "the host's disk has %d MiB free; memory from the archive may take %d MiB, and %d MiB must stay free",
			free>>20, most>>20, FetchSpareBytes>>20).WithHint("free some space on the disk of the data directory")
	}
	return nil
}

func (v *Archive) fetchFile(ctx context.Context, space string, f File, path string) (n int64, err error) {
	out, err := os.OpenFile(path+Fetching, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
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
	if err := errors.Join(out.Truncate(f.Size), v.failpoint("fetch/file")); err != nil {
		return 0, err
	}
	for i, want := range f.Data {
		read, err := v.fetchPart(ctx, space, f, i, out)
		if n += read; err != nil {
			return n, err
		}
		if read != want {
			return n, holt.Errorf(holt.Corrupt, "the archive has %d bytes of %s/%s; %d were stored", read, space, f.part(i), want)
		}
	}
	return n, out.Sync() // before the rename: after a power loss too, a file under its name is complete
}

const (
	fetchesAtOnce = 4
	fetchBytes    = 1 << 20 // by each
)

func (v *Archive) fetchPart(ctx context.Context, space string, f File, i int, out *os.File) (n int64, err error) {
	ranges, err := v.Chunks.Ranges(ctx, space, f.part(i))
	if err != nil {
		return 0, err
	}
	first, last := f.bounds(i)
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(fetchesAtOnce)
	for _, r := range ranges {
		if r.Off < first || r.Off+r.Len > last {
			work.Go(func() error {
				return holt.Errorf(holt.Corrupt, "the archive has bytes beyond the end of %s/%s", space, f.part(i))
			})
			break
		}
		n += r.Len
		for at := r.Off; at < r.Off+r.Len && ctx.Err() == nil; at += fetchBytes {
			work.Go(func() error {
				b := make([]byte, min(fetchBytes, r.Off+r.Len-at))
				if err := v.Chunks.ReadAt(ctx, space, f.part(i), b, at); err != nil {
					return err
				}
				return WriteSparse(out, b, at)
			})
		}
	}
	return n, work.Wait()
}

// WriteSparse writes the pages that are not zero to a file that is all holes.
func WriteSparse(out io.WriterAt, b []byte, off int64) error {
	for at := 0; at < len(b); {
		end := at
		for end < len(b) && !zeros(b[end:min(end+PageBytes, len(b))]) {
			end = min(end+PageBytes, len(b))
		}
		if end > at {
			if _, err := out.WriteAt(b[at:end], off+int64(at)); err != nil {
				return err
			}
		}
		at = end + PageBytes // the page at end is zero
	}
	return nil
}
