package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"holt"
)

// listed is a directory entry as sent to the host.
type listed struct {
	holt.FileInfo
	// After is the directory offset behind the entry (d_off of getdents64(2)),
	// which any descriptor may seek to.
	After int64 `json:"after"`
}

// listDir streams at most args.Length entries of a directory from an offset.
// Its memory use does not depend on the size of the directory.
func listDir(ctx context.Context, st *serverStream) error {
	args, err := fileArguments(st.args)
	if err != nil {
		return err
	}
	dir, err := openDir(string(args.Path), args.Offset)
	if err != nil {
		return fileError("list", string(args.Path), err)
	}
	defer dir.Close()
	if err := st.agree(nil); err != nil {
		return err
	}
	ctx, cancel := st.untilClosed(ctx)
	defer cancel()
	batch := make([]listed, 0, listBatch)
	left := args.Length
	for e, err := range dirents(int(dir.Fd()), make([]byte, direntBytes)) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return writeAnswer(st, nil, fileError("list", string(args.Path), err))
		}
		info, err := describeFile(filepath.Join(string(args.Path), e.name))
		if err != nil {
			continue // it was removed
		}
		batch = append(batch, listed{info, e.after})
		if left--; left == 0 {
			break
		}
		if len(batch) == listBatch {
			if err := writeAnswer(st, batch, nil); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if len(batch) > 0 {
		if err := writeAnswer(st, batch, nil); err != nil {
			return err
		}
	}
	return writeAnswer(st, []listed{}, nil)
}

// openDir opens a directory at an offset.
func openDir(path string, offset int64) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil || offset == 0 {
		return dir, err
	}
	if _, err := unix.Seek(int(dir.Fd()), offset, io.SeekStart); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// direntBytes is the size of one read of a directory.
const direntBytes = 16 << 10

// dirent is an entry as getdents64(2) returns it.
type dirent struct {
	name  string
	after int64
}

// dirents yields the entries of an open directory, except . and .., from its
// offset. It reads len(buf) bytes at a time. An error is the last item.
func dirents(fd int, buf []byte) iter.Seq2[dirent, error] {
	return func(yield func(dirent, error) bool) {
		for {
			n, err := unix.Getdents(fd, buf)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				yield(dirent{}, err)
				return
			}
			if n <= 0 {
				return
			}
			for b := buf[:n]; len(b) > 0; {
				var e dirent
				if e, b = cutDirent(b); e.name != "." && e.name != ".." && !yield(e, nil) {
					return
				}
			}
		}
	}
}

// cutDirent decodes the first entry: ino (8 bytes), off (8), reclen (2), type (1), name and a NUL.
func cutDirent(b []byte) (dirent, []byte) {
	size := binary.NativeEndian.Uint16(b[16:])
	name, _, _ := bytes.Cut(b[19:size], []byte{0})
	return dirent{string(name), int64(binary.NativeEndian.Uint64(b[8:]))}, b[size:]
}
