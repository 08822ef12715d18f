package chunk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"holt"
)

// Dir is a [Store] in a local directory: an object is a file, its name is the
// path. A file is written and synced under a temporary name and then linked
// with link(2), so that an incomplete file is never visible and concurrent puts
// of one name are safe.
type Dir struct{ root string }

// tempDir holds files that are being written. No object's name begins with a dot.
const tempDir = ".tmp"

// OpenDir creates the directory if needed and removes temporary files of a
// crashed process. Only one process may have it open; the caller ensures that.
func OpenDir(root string) (*Dir, error) {
	if err := os.RemoveAll(filepath.Join(root, tempDir)); err != nil {
		return nil, diskError("open store", err)
	}
	if err := os.MkdirAll(filepath.Join(root, tempDir), 0o700); err != nil {
		return nil, diskError("open store", err)
	}
	return &Dir{root}, errors.Join(syncDir(root), syncDir(filepath.Dir(root)))
}

func (d *Dir) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

// Put implements [Store].
func (d *Dir) Put(ctx context.Context, name string, b []byte) error {
	if err := ready(ctx, name); err != nil {
		return err
	}
	path := d.path(name)
	if _, err := os.Lstat(path); err == nil {
		return errObjectExists(name)
	}
	temp, err := d.write(b)
	if err != nil {
		return diskError("put "+name, err)
	}
	defer os.Remove(temp)
	if err := d.makeDirs(filepath.Dir(path)); err != nil {
		return diskError("put "+name, err)
	}
	err = os.Link(temp, path)
	if errors.Is(err, fs.ErrExist) {
		return errObjectExists(name)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return diskError("put "+name, err)
}

// write writes b to a synced temporary file and returns its path.
func (d *Dir) write(b []byte) (string, error) {
	f, err := os.CreateTemp(filepath.Join(d.root, tempDir), "")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// makeDirs creates dir and its missing parents, durably.
func (d *Dir) makeDirs(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := d.makeDirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// Get implements [Store].
func (d *Dir) Get(ctx context.Context, name string, p []byte, off int64) error {
	if err := ready(ctx, name); err != nil {
		return err
	}
	f, err := os.Open(d.path(name))
	if err != nil {
		return objectError("get", name, err)
	}
	defer f.Close()
	if off < 0 {
		return inRange(name, p, off, 0)
	}
	n, err := f.ReadAt(p, off)
	if err == io.EOF && n < len(p) {
		return errShortObject(name, off+int64(len(p)), off+int64(n))
	}
	if err == io.EOF {
		err = nil
	}
	return objectError("get", name, err)
}

// Stat implements [Store].
func (d *Dir) Stat(ctx context.Context, name string) (int64, error) {
	if err := ready(ctx, name); err != nil {
		return 0, err
	}
	fi, err := os.Lstat(d.path(name))
	if err != nil {
		return 0, objectError("stat", name, err)
	}
	if !fi.Mode().IsRegular() {
		return 0, errNoObject(name)
	}
	return fi.Size(), nil
}

// List implements [Store].
func (d *Dir) List(ctx context.Context, prefix string, fn func(Object) error) error {
	return d.list(ctx, "", prefix, fn)
}

// list walks one directory in the order of object names, which differs from
// that of file names: "a/b" comes after "a-b".
func (d *Dir) list(ctx context.Context, dir, prefix string, fn func(Object) error) error {
	entries, err := os.ReadDir(d.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("list "+dir, err)
	}
	key := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(key(a), key(b)) })
	for _, e := range entries {
		if err := ended(ctx); err != nil {
			return err
		}
		name := dir + key(e)
		short := min(len(name), len(prefix))
		if name[:short] != prefix[:short] || e.Name() == tempDir {
			continue
		}
		if e.IsDir() {
			if err := d.list(ctx, name, prefix, fn); err != nil {
				return err
			}
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || len(name) < len(prefix) || err == nil && !fi.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return diskError("list "+name, err)
		}
		if err := fn(Object{name, fi.Size()}); err != nil {
			return err
		}
	}
	return ended(ctx)
}

// Delete implements [Store].
func (d *Dir) Delete(ctx context.Context, name string) error {
	if err := ready(ctx, name); err != nil {
		return err
	}
	err := os.Remove(d.path(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	if err == nil {
		err = syncDir(filepath.Dir(d.path(name)))
	}
	return diskError("delete "+name, err)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// objectError is diskError for calls that expect an existing object.
func objectError(verb, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) {
		return errNoObject(name)
	}
	return diskError(verb+" "+name, err)
}

// diskError adds the error code for an error of the local disk.
func diskError(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return holt.Errorf(holt.OutOfSpace, "%s: %w", doing, err).WithHint("free some space on the host's disk")
	}
	return holt.Errorf(holt.Unavailable, "%s: %w", doing, err)
}
