package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"holt"
)

// get copies from a computer to this machine.
func (k *copier) get(ctx context.Context, from end, to string) error {
	if to == "-" {
		return k.files.Read(ctx, from.owner, from.path, 0, -1, k.a.forContent())
	}
	from, info, err := k.named(ctx, from)
	if err != nil {
		return err
	}
	if info.Kind == "dir" && !k.recursive {
		return isDirectory(from.path)
	}
	there, err := os.Stat(to)
	switch {
	case err == nil && there.IsDir():
		to = filepath.Join(to, path.Base(string(info.Name)))
	case err == nil && !there.Mode().IsRegular() && info.Kind == "file": // as /dev/stdout
		return k.pour(ctx, from, info, to)
	case err == nil: // a link that the user named is followed, unlike those below
		if to, err = filepath.EvalSymlinks(to); err != nil {
			return here(err, to)
		}
	case strings.HasSuffix(to, "/") && info.Kind != "dir":
		return holt.Errorf(holt.NotFound, "no directory %s", to).WithHint("create it first: mkdir -p %s", shellWord(to))
	}
	if info.Kind != "dir" {
		return k.getAny(ctx, from, info, to)
	}
	if err := os.MkdirAll(to, 0o755); err != nil { // the user's names may be links, those below may not
		return here(err, to)
	}
	return k.getEntries(ctx, from, to)
}

// named returns what the user named: a symlink there is followed. The copy has
// the name that was given.
func (k *copier) named(ctx context.Context, from end) (end, holt.FileInfo, error) {
	name := path.Base(from.path)
	file, info, err := holt.Follow(from.path, func(file string) (holt.FileInfo, error) { return k.files.Stat(ctx, from.owner, file) })
	from.path, info.Name = file, holt.OSString(name)
	return from, info, err
}

func (k *copier) getAny(ctx context.Context, from end, info holt.FileInfo, to string) error {
	switch info.Kind {
	case "file":
		return k.getFile(ctx, from, info, to)
	case "symlink":
		return k.getLink(info, to)
	case "dir":
		if err := makeDir(to); err != nil {
			return err
		}
		return k.getEntries(ctx, from, to)
	}
	k.leave(from.path, info.Kind)
	return nil
}

func (k *copier) getEntries(ctx context.Context, from end, to string) error {
	for entries, err := range k.files.Pages(ctx, from.owner, from.path) {
		if err != nil {
			return err
		}
		if err := k.getPage(ctx, from, entries, to); err != nil {
			return err
		}
	}
	return nil
}

func (k *copier) getPage(ctx context.Context, from end, entries []holt.FileInfo, to string) error {
	for _, e := range entries {
		name := string(e.Name)
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") { // the guest is hostile
			return holt.Errorf(holt.Corrupt, "the %s sent the unsafe file name %q", k.noun.word, name).WithHint("such a file cannot be copied; copy the others one by one")
		}
		if err := k.getAny(ctx, from.in(name), e, filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes a directory if there is none. A link there is not followed: the
// guest may just have had it made, to lead what comes next out of the copy.
func makeDir(at string) error {
	err := os.Mkdir(at, 0o755)
	if info, no := os.Lstat(at); errors.Is(err, fs.ErrExist) && no == nil && info.IsDir() {
		return nil
	}
	return here(err, at)
}

// getLink makes a symlink as the guest has it. It is only made, never followed.
func (k *copier) getLink(info holt.FileInfo, to string) error {
	beside := filepath.Join(filepath.Dir(to), ".holt-cp-"+rand.Text())
	if err := os.Symlink(string(info.Target), beside); err != nil {
		return here(err, to)
	}
	if err := os.Rename(beside, to); err != nil {
		return here(errors.Join(err, os.Remove(beside)), to)
	}
	return nil
}

// getFile writes a file of this machine, which has the mode of the other if it is new.
func (k *copier) getFile(ctx context.Context, from end, info holt.FileInfo, to string) error {
	return writeBeside(to, fs.FileMode(info.Mode).Perm(), func(w io.Writer) error {
		return k.files.Read(ctx, from.owner, from.path, 0, -1, &meter{bar: k.bar, name: string(info.Name), total: info.Size, w: w})
	})
}

// writeBeside has fill write beside the target, so that a copy that is cut off leaves what was there. An existing file gets the
// content then, and keeps its owner, mode and other names; else what was written gets the name. It never writes through a
// link that stands there.
func writeBeside(to string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".holt-cp-*")
	if err != nil {
		return here(err, to)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sparse := &sparseWriter{f: f}
	if err := fill(sparse); err != nil {
		return here(err, to)
	}
	if err := f.Truncate(sparse.off); err != nil {
		return here(err, to)
	}
	if there, err := os.Lstat(to); err == nil && there.Mode().IsRegular() {
		if overwriteHere(to, f, sparse.off) == nil {
			return nil
		}
		mode = there.Mode().Perm() // a program that runs, say, or a disk without room for both: only the inode is another then
	}
	return here(errors.Join(f.Chmod(mode), f.Close(), os.Rename(f.Name(), to)), to)
}

// sparseWriter writes a new file; long runs of zeros become holes. The size is set at the end.
type sparseWriter struct {
	f   *os.File
	off int64
}

func (s *sparseWriter) Write(p []byte) (int, error) {
	err := holt.EachData(p, s.off, func(p []byte, off int64) error { _, err := s.f.WriteAt(p, off); return err })
	if err != nil {
		return 0, err
	}
	s.off += int64(len(p))
	return len(p), nil
}

// overwriteHere gives an existing file of this machine the content of another.
func overwriteHere(to string, from *os.File, size int64) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for off := int64(0); off < size; {
		begin, end, err := holt.NextData(int(from.Fd()), off, size)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(f, begin), io.NewSectionReader(from, begin, end-begin)); err != nil {
			return err
		}
		off = end
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// pour writes into what is no file, as a device or a pipe.
func (k *copier) pour(ctx context.Context, from end, info holt.FileInfo, to string) error {
	return pourInto(to, func(w io.Writer) error {
		return k.files.Read(ctx, from.owner, from.path, 0, -1, &meter{bar: k.bar, name: string(info.Name), total: info.Size, w: w})
	})
}

func pourInto(to string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return here(err, to)
	}
	err = fill(f)
	return here(errors.Join(err, f.Close()), to)
}

func isDirectory(name string) error {
	return holt.Errorf(holt.InvalidArgument, "%s is a directory", name).WithHint("add --recursive")
}

// hinted adds a hint to an error.
func hinted(err error, hint string) error { return holt.AsError(err).WithHint("%s", hint) }

// here makes an error of this machine's file at path one with a code. It names
// the path that the user knows, not a temporary file's.
func here(err error, path string) error {
	var errno syscall.Errno
	if coded := (*holt.Error)(nil); err == nil || errors.As(err, &coded) || !errors.As(err, &errno) {
		return err
	}
	code := holt.Internal
	switch errno {
	case syscall.ENOENT:
		code = holt.NotFound
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		code = holt.Forbidden
	case syscall.ENOSPC, syscall.EDQUOT:
		code = holt.OutOfSpace
	case syscall.EEXIST:
		code = holt.AlreadyExists
	case syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EINVAL, syscall.ENXIO:
		code = holt.InvalidArgument
	}
	return holt.Errorf(code, "%s: %w", path, errno)
}
