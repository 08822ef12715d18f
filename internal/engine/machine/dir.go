package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/store/flock"
)

// Names of the files in a machine's directory.
const (
	LockFile    = "machine.lock"
	RecordFile  = "machine.json"
	ConsoleFile = "console.log"
)

// maxRecord is the maximum size of a record, bytes. Records are below 16 KiB.
const maxRecord = 1 << 20

// Record is the content of machine.json, by which another process finds a machine.
type Record struct {
	Engine    string    `json:"engine"`
	Process   Process   `json:"process"`
	Spec      Spec      `json:"spec"`
	StartedAt time.Time `json:"started_at"`
	// Hardware describes the guest's hardware, in the engine's format. A memory
	// image can be restored only with the same hardware.
	Hardware json.RawMessage `json:"hardware,omitempty"`
}

// Dir is an open machine directory.
type Dir struct {
	Path string // absolute
	fd   *os.File
}

// MakeDir creates the directory if needed and opens it. It sets mode 0700:
// access to the directory is access to the machine.
func MakeDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make machine directory: %w", err)
	}
	d, err := OpenDir(path)
	if err != nil {
		return nil, err
	}
	if err := d.fd.Chmod(0o700); err != nil {
		d.Close()
		return nil, fmt.Errorf("restrict access to machine directory: %w", err)
	}
	return d, nil
}

// OpenDir opens the directory. It returns [ErrGone] if it does not exist.
func OpenDir(path string) (*Dir, error) {
	if !filepath.IsAbs(path) {
		return nil, holt.Errorf(holt.InvalidArgument, "machine directory %q is not an absolute path", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Gone(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open machine directory: %w", err)
	}
	return &Dir{Path: path, fd: f}, nil
}

func (d *Dir) Close() error { return d.fd.Close() }

// File returns the path of a file in the directory.
func (d *Dir) File(name string) string { return filepath.Join(d.Path, name) }

// Dial connects to the unix socket of that name. The directory's path may be
// longer than a socket address.
func (d *Dir) Dial(ctx context.Context, socket string) (net.Conn, error) {
	return d.dial(ctx, "unix", socket)
}

func (d *Dir) dial(ctx context.Context, kind, socket string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, kind, d.short(socket))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("dial %s: %w", socket, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", socket, err)
	}
	return conn, nil
}

// Listen creates a listening unix socket of that name for the machine's process
// to inherit. Connections queue in it before that process accepts, so callers
// need not wait for a socket to appear.
func (d *Dir) Listen(socket string) (*os.File, error) { return d.listen(socket, unix.SOCK_STREAM) }

func (d *Dir) listen(socket string, kind int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: d.short(socket)})
	if err == nil {
		err = unix.Listen(fd, 16)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	return os.NewFile(uintptr(fd), socket), nil
}

// short returns a path to a file in the directory that fits into a socket address.
func (d *Dir) short(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd.Fd(), name) }

// Remove removes files. Missing files are no error.
func (d *Dir) Remove(names ...string) error {
	var errs []error
	for _, name := range names {
		if err := os.Remove(d.File(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Clear removes files of a machine that has ended, unless another machine has
// been started in the directory since.
func Clear(path string, names ...string) error {
	d, err := OpenDir(path)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	lock, err := d.Lock()
	if holt.CodeOf(err) == holt.Conflict {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	return d.Remove(names...)
}

// Lock takes the directory's lock, or returns [Busy]. The lock is held while
// any process has the returned file open: pass the file to the machine's
// process and close it here.
func (d *Dir) Lock() (*os.File, error) {
	f, err := flock.Open(d.File(LockFile), 0o600)
	if errors.Is(err, flock.ErrHeld) {
		return nil, Busy(d.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock machine directory: %w", err)
	}
	return f, nil
}

// Locked reports whether a process holds the lock.
func (d *Dir) Locked() (bool, error) {
	f, err := d.Lock()
	if err == nil {
		return false, f.Close()
	}
	if holt.CodeOf(err) == holt.Conflict {
		return true, nil
	}
	return false, err
}

// WriteRecord replaces the record, atomically and durably.
func (d *Dir) WriteRecord(r Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode machine record: %w", err)
	}
	if err := writeRecord(d.Path, b, true); err != nil {
		return fmt.Errorf("write machine record: %w", err)
	}
	return nil
}

// writeRecord replaces the record in dir, atomically and, if durable, synced.
func writeRecord(dir string, b []byte, durable bool) error {
	f, err := os.CreateTemp(dir, RecordFile+".")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if durable {
		err = errors.Join(err, f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, RecordFile))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// ReadRecord reads the record. It returns [ErrGone] if it is missing and Corrupt if it is invalid.
func (d *Dir) ReadRecord() (Record, error) {
	f, err := os.Open(d.File(RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, Gone(d.Path)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read machine record: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return Record{}, fmt.Errorf("read machine record: %w", err)
	}
	return parseRecord(b)
}

func parseRecord(b []byte) (Record, error) {
	if len(b) > maxRecord {
		return Record{}, holt.Errorf(holt.Corrupt, "machine record is longer than %d bytes", maxRecord)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, holt.Errorf(holt.Corrupt, "parse machine record: %w", err)
	}
	if r.Engine == "" || r.Process.PID <= 1 || r.Process.BootID == "" {
		return Record{}, holt.Errorf(holt.Corrupt, "machine record names no engine or no process")
	}
	return r, nil
}

// Find returns the machine's process and record, if the lock is held and the
// process in the record is alive and has the lock file open. Otherwise the error is [ErrGone].
//
// A process that holds the lock without a valid record is a machine whose
// starter died before it wrote the record. Find kills it, if strays lists it,
// so that another machine can be started after [ErrGone].
func (d *Dir) Find(strays func(root string) ([]Stray, error)) (*Handle, Record, error) {
	h, r, err := d.recorded()
	if err == nil || !errors.Is(err, ErrGone) {
		return h, r, err
	}
	half, strayErr := strays(d.Path)
	if strayErr != nil {
		return nil, Record{}, strayErr
	}
	for _, s := range half {
		if err := s.Kill(); err != nil {
			return nil, Record{}, err
		}
	}
	return nil, Record{}, err
}

// recorded returns the process and record, if they are valid.
func (d *Dir) recorded() (*Handle, Record, error) {
	locked, err := d.Locked()
	if err != nil {
		return nil, Record{}, err
	}
	if !locked {
		return nil, Record{}, Gone(d.Path)
	}
	r, err := d.ReadRecord()
	if err != nil {
		return nil, Record{}, err
	}
	h, err := r.Process.Open()
	if errors.Is(err, ErrGone) {
		return nil, Record{}, Gone(d.Path)
	}
	if err != nil {
		return nil, Record{}, err
	}
	if !d.HeldBy(r.Process.PID, LockFile) {
		h.Close()
		return nil, Record{}, Gone(d.Path)
	}
	return h, r, nil
}

// Sync makes a file, or the names in a directory, survive power loss.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
