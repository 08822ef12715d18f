package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"holt"
)

// listed is an entry of a directory on its way to the host.
type listed struct {
	holt.FileInfo
	// After is where the directory goes on behind it: what its file system
	// calls the offset (d_off of getdents64(2)), which any descriptor may seek to.
	After int64 `json:"after"`
}

// listDir streams entries of a directory, from an offset on; a directory of
// any size takes no memory here.
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
	buf := make([]byte, direntBytes)
	left := args.Length
	if left <= 0 { // a host of before pages: all of it
		left = math.MaxInt64
	}
	for ctx.Err() == nil {
		n, err := unix.Getdents(int(dir.Fd()), buf)
		batch := make([]listed, 0, listBatch)
		for b := buf[:max(n, 0)]; len(b) > 0 && left > 0; {
			var e dirent
			if e, b = cutDirent(b); e.name == "." || e.name == ".." {
				continue
			}
			info, err := describeFile(filepath.Join(string(args.Path), e.name))
			if err != nil {
				continue // it has just gone
			}
			batch = append(batch, listed{info, e.after})
			if left--; len(batch) == listBatch || left == 0 {
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
		switch {
		case err == unix.EINTR:
		case err != nil:
			return writeAnswer(st, nil, fileError("list", string(args.Path), err))
		case n == 0 || left == 0:
			return writeAnswer(st, []listed{}, nil)
		}
	}
	return ctx.Err()
}

// openDir opens a directory where an offset says.
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

// direntBytes is how much of a directory is read at a time.
const direntBytes = 16 << 10

// dirent is an entry as getdents64(2) gives it.
type dirent struct {
	name  string
	after int64
}

// cutDirent takes the first entry from what the kernel wrote: ino (8 bytes),
// off (8), reclen (2), type (1), name and a NUL.
func cutDirent(b []byte) (dirent, []byte) {
	size := binary.NativeEndian.Uint16(b[16:])
	name, _, _ := bytes.Cut(b[19:size], []byte{0})
	return dirent{string(name), int64(binary.NativeEndian.Uint64(b[8:]))}, b[size:]
}
