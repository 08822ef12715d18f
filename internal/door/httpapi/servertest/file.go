package servertest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"holt"
)

type files struct{ m *Memory }

// place returns where on this host a computer's file is.
func (n files) place(computer, file string) (string, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	return n.placeLocked(computer, file)
}

func (n files) placeLocked(computer, file string) (string, error) {
	c, err := n.m.computer(computer)
	if err != nil {
		return "", err
	}
	c.State = holt.ComputerRunning // it wakes
	return filepath.Join(n.m.root(c), path.Clean(file)), nil
}

// spoken makes an error of this host one of a computer.
func spoken[S ~string](err error, file S) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return holt.Errorf(holt.NotFound, "%s: no such file or directory", file)
	case errors.Is(err, syscall.ENOTEMPTY): // before ErrExist, which it is too
		return holt.Errorf(holt.Conflict, "%s is not empty", file).WithHint("remove it recursively")
	case errors.Is(err, fs.ErrExist):
		return holt.Errorf(holt.AlreadyExists, "%s exists", file)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return holt.Errorf(holt.InvalidArgument, "%s: %v", file, errors.Unwrap(err))
	}
	return err
}

func describe[S ~string](file S, info fs.FileInfo) holt.FileInfo {
	kind := "file"
	switch {
	case info.IsDir():
		kind = "dir"
	case info.Mode()&fs.ModeSymlink != 0:
		kind = "symlink"
	}
	return holt.FileInfo{Path: holt.OSString(file), Name: holt.OSString(path.Base(string(file))), Kind: kind, Size: info.Size(), Mode: uint32(info.Mode().Perm()), UID: 1000, GID: 1000, ModTime: info.ModTime().UTC()}
}

func (n files) Stat(_ context.Context, computer, file string) (holt.FileInfo, error) {
	at, err := n.place(computer, file)
	if err != nil {
		return holt.FileInfo{}, err
	}
	info, err := os.Lstat(at)
	if err != nil {
		return holt.FileInfo{}, spoken(err, file)
	}
	out := describe(file, info)
	if out.Kind == "symlink" {
		err = readLink(at, &out)
	}
	return out, err
}

func readLink(at string, into *holt.FileInfo) error {
	target, err := os.Readlink(at)
	into.Target = holt.OSString(target)
	return err
}

func (n files) List(_ context.Context, computer, dir string, spec holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	page := holt.Page[holt.FileInfo]{Items: []holt.FileInfo{}}
	at, err := n.place(computer, dir)
	if err != nil {
		return page, err
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return page, spoken(err, dir)
	}
	after := string(holt.ParseOSString(spec.Cursor))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Name() <= after {
			continue
		}
		if n := len(page.Items); n == spec.Most() {
			page.Next = page.Items[n-1].Name.Text()
			break
		}
		one := describe(path.Join(dir, e.Name()), info)
		_ = readLink(filepath.Join(at, e.Name()), &one) // "" of what is no link
		page.Items = append(page.Items, one)
	}
	return page, nil
}

func (n files) Read(_ context.Context, computer, file string, off, length int64, w io.Writer) error {
	at, err := n.place(computer, file)
	if err != nil {
		return err
	}
	f, err := os.Open(at)
	if err != nil {
		return spoken(err, file)
	}
	defer f.Close()
	if length < 0 {
		length = 1 << 62
	}
	_, err = io.Copy(w, io.NewSectionReader(f, off, length))
	return spoken(err, file)
}

func (n files) Write(_ context.Context, computer, file string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	at, err := n.place(computer, file)
	if err != nil {
		return holt.FileInfo{}, err
	}
	if spec.Parents {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return holt.FileInfo{}, spoken(err, path.Dir(file))
		}
	}
	tmp, err := os.CreateTemp(filepath.Dir(at), ".new-*")
	if err != nil {
		return holt.FileInfo{}, spoken(err, file)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := io.Copy(tmp, r); err != nil {
		return holt.FileInfo{}, holt.Errorf(holt.Unavailable, "the new content did not arrive: %w", err)
	}
	mode := fs.FileMode(spec.ModeOfNew())
	if info, err := os.Stat(at); err == nil && spec.Mode == 0 {
		mode = info.Mode().Perm()
	}
	if err := errors.Join(tmp.Chmod(mode), os.Rename(tmp.Name(), at)); err != nil {
		return holt.FileInfo{}, spoken(err, file)
	}
	info, err := os.Lstat(at)
	if err != nil {
		return holt.FileInfo{}, spoken(err, file)
	}
	return describe(file, info), nil
}

func (n files) Mkdir(_ context.Context, computer string, spec holt.MkdirSpec, key string) (holt.FileInfo, error) {
	return once(n.m, key, []any{"mkdir", computer, spec}, func() (holt.FileInfo, error) {
		at, err := n.placeLocked(computer, string(spec.Path))
		if err != nil {
			return holt.FileInfo{}, err
		}
		make := os.Mkdir
		if spec.Parents {
			make = os.MkdirAll
		}
		if err := make(at, fs.FileMode(cmp.Or(spec.Mode, 0o755))); err != nil {
			return holt.FileInfo{}, spoken(err, spec.Path)
		}
		info, err := os.Lstat(at)
		if err != nil {
			return holt.FileInfo{}, spoken(err, spec.Path)
		}
		return describe(spec.Path, info), nil
	})
}

func (n files) Symlink(_ context.Context, computer string, spec holt.SymlinkSpec, key string) (holt.FileInfo, error) {
	return once(n.m, key, []any{"symlink", computer, spec}, func() (holt.FileInfo, error) {
		at, err := n.placeLocked(computer, string(spec.Path))
		if err != nil {
			return holt.FileInfo{}, err
		}
		beside := at + ".holt-link"
		if err := os.Symlink(string(spec.Target), beside); err != nil {
			return holt.FileInfo{}, spoken(err, spec.Path)
		}
		if err := os.NewSyscallError("rename", syscall.Rename(beside, at)); err != nil { // os.Rename calls a directory there existing
			return holt.FileInfo{}, errors.Join(spoken(err, spec.Path), os.Remove(beside))
		}
		info, err := os.Lstat(at)
		if err != nil {
			return holt.FileInfo{}, spoken(err, spec.Path)
		}
		made := describe(spec.Path, info)
		return made, readLink(at, &made)
	})
}

func (n files) Remove(_ context.Context, computer, file string, recursive bool, key string) error {
	_, err := once(n.m, key, []any{"remove", computer, file, recursive}, func() (struct{}, error) {
		at, err := n.placeLocked(computer, file)
		if err != nil {
			return struct{}{}, err
		}
		if _, err := os.Lstat(at); err != nil {
			return struct{}{}, spoken(err, file)
		}
		if recursive {
			return struct{}{}, spoken(os.RemoveAll(at), file)
		}
		return struct{}{}, spoken(os.Remove(at), file)
	})
	return err
}

func (n files) Rename(_ context.Context, computer string, spec holt.RenameSpec, key string) error {
	_, err := once(n.m, key, []any{"rename", computer, spec}, func() (struct{}, error) {
		from, err := n.placeLocked(computer, string(spec.From))
		if err != nil {
			return struct{}{}, err
		}
		to, err := n.placeLocked(computer, string(spec.To))
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, spoken(os.Rename(from, to), spec.From)
	})
	return err
}
