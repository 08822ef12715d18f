package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Disk is the file system interface of the journal, which tests replace to
// inject faults. Names are paths.
type Disk interface {
	// OpenFile opens a file for reading and writing. With create the file must not exist.
	OpenFile(name string, create bool) (File, error)
	// ReadDir returns the base names in dir, sorted.
	ReadDir(dir string) ([]string, error)
	Rename(from, to string) error
	// Link creates a hard link.
	Link(from, to string) error
	Remove(name string) error
	// SyncDir makes creations, renames and removals in dir survive power loss.
	SyncDir(dir string) error
}

// File is an open segment.
type File interface {
	// ReadVec fills bufs from off. It returns io.EOF or io.ErrUnexpectedEOF if the
	// file is too short.
	ReadVec(bufs [][]byte, off int64) error
	// WriteVec writes bufs at off with one system call and returns the number of
	// bytes written. A short write returns an error.
	WriteVec(bufs [][]byte, off int64) (int, error)
	Truncate(size int64) error
	Size() (int64, error)
	// Sync is fdatasync(2).
	Sync() error
	Close() error
}

// OS is the real disk.
type OS struct{}

// OpenFile implements [Disk].
func (OS) OpenFile(name string, create bool) (File, error) {
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f, fd: int(f.Fd())}, nil
}

// ReadDir implements [Disk].
func (OS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, err
}

// Rename implements [Disk].
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Link implements [Disk].
func (OS) Link(from, to string) error { return os.Link(from, to) }

// Remove implements [Disk].
func (OS) Remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SyncDir implements [Disk].
func (OS) SyncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// osFile is a real file. The journal closes it only while no call runs.
type osFile struct {
	f  *os.File // keeps fd open
	fd int
}

func (o *osFile) ReadVec(bufs [][]byte, off int64) error { return transfer(o, unix.Preadv, bufs, off) }

func (o *osFile) WriteVec(bufs [][]byte, off int64) (int, error) {
	var n int
	err := transfer(o, func(fd int, iov [][]byte, off int64) (int, error) {
		m, err := unix.Pwritev(fd, iov, off)
		n += max(m, 0)
		return m, err
	}, bufs, off)
	return n, err
}

func (o *osFile) Truncate(size int64) error {
	return retry(func() error { return unix.Ftruncate(o.fd, size) })
}
func (o *osFile) Sync() error  { return retry(func() error { return unix.Fdatasync(o.fd) }) }
func (o *osFile) Close() error { return o.f.Close() }

func (o *osFile) Size() (int64, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstat(o.fd, &st) })
	return st.Size, err
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// transfer repeats a vectored call until bufs are done.
func transfer(o *osFile, call func(int, [][]byte, int64) (int, error), bufs [][]byte, off int64) error {
	defer runtime.KeepAlive(o)
	left := 0
	for _, b := range bufs {
		left += len(b)
	}
	for left > 0 {
		n, err := call(o.fd, bufs, off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return errShort
		case n == left:
			return nil
		}
		left, off = left-n, off+int64(n)
		bufs = advance(bufs, n)
	}
	return nil
}

// advance returns bufs without the first n bytes. It does not modify bufs.
func advance(bufs [][]byte, n int) [][]byte {
	rest := slices.Clone(bufs)
	for n > 0 {
		m := min(n, len(rest[0]))
		rest[0], n = rest[0][m:], n-m
		if len(rest[0]) == 0 {
			rest = rest[1:]
		}
	}
	return rest
}
