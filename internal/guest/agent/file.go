package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// File operations run as root: authorisation is checked on the host. Paths are
// absolute; symbolic links in them are followed as usual.

func checkPath(path string) error {
	if !filepath.IsAbs(path) {
		return holt.Errorf(holt.InvalidArgument, "path %q is not absolute", clip(path))
	}
	if strings.Contains(path, "\x00") {
		return holt.Errorf(holt.InvalidArgument, "path %q contains a zero byte", clip(path))
	}
	return nil
}

func fileArguments(raw json.RawMessage) (fileArgs, error) {
	args, err := decode[fileArgs](raw)
	if err == nil {
		err = checkPath(string(args.Path))
	}
	return args, err
}

// user returns the account that is to own the file; nil if the caller names none.
func (a fileArgs) user() (*account, error) {
	if a.User == "" {
		return nil, nil
	}
	named, err := findAccount(a.User)
	return &named, err
}

// fileError adds the error code for an error of the operating system.
func fileError(verb, path string, err error) error {
	var known *holt.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the message has the path already
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		err = le.Err
	}
	code := holt.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = holt.NotFound
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EBUSY):
		code = holt.Conflict
	case errors.Is(err, fs.ErrExist): // ENOTEMPTY also matches fs.ErrExist
		code = holt.AlreadyExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		code = holt.Forbidden
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = holt.OutOfSpace
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EFBIG), errors.Is(err, errEscapes):
		code = holt.InvalidArgument
	case errors.Is(err, unix.ENOTCONN):
		code = holt.Unavailable
	}
	return holt.Errorf(code, "%s %s: %w", verb, path, err)
}

func readFile(ctx context.Context, st *serverStream) error {
	args, err := fileArguments(st.args)
	if err != nil {
		return err
	}
	if args.Offset < 0 {
		return holt.Errorf(holt.InvalidArgument, "offset %d is negative", args.Offset)
	}
	// Non-blocking, so that a FIFO without a writer does not block the agent.
	f, err := os.OpenFile(string(args.Path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fileError("read", string(args.Path), err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return holt.Errorf(holt.InvalidArgument, "read %s: it is a directory", string(args.Path))
	}
	if args.Offset > 0 {
		if _, err := f.Seek(args.Offset, io.SeekStart); err != nil {
			return fileError("read", string(args.Path), err)
		}
	}
	if err := st.agree(nil); err != nil {
		return err
	}
	ctx, cancel := st.untilClosed(ctx)
	defer cancel()
	var r io.Reader = f
	if args.Length >= 0 {
		r = io.LimitReader(f, args.Length)
	}
	w := newChunkWriter(st, maxChunk)
	if _, err = w.ReadFrom(r); ctx.Err() != nil {
		return ctx.Err()
	}
	if err := w.end(); err != nil {
		return err
	}
	return writeAnswer(st, nil, fileError("read", string(args.Path), err))
}

// writeFile receives chunks into a temporary file in the path's directory, and
// then moves the content to the path; see [put].
func writeFile(ctx context.Context, st *serverStream) error {
	args, err := fileArguments(st.args)
	if err != nil {
		return err
	}
	user, err := args.user()
	if err != nil {
		return err
	}
	at, err := args.reach(args.Path, true)
	if err != nil {
		return fileError("write", string(args.Path), err)
	}
	defer at.end()
	if info, err := describeFile(at.path); err == nil && info.Kind != "dir" && info.Kind != "file" {
		return holt.Errorf(holt.InvalidArgument, "write %s: %w (%s)", args.Path, errNotFile, info.Kind) // replacing /dev/null would break the guest
	}
	f, err := createTemp(at.path)
	if err != nil {
		return fileError("write", string(args.Path), err)
	}
	defer os.Remove(f.Name()) // fails after a rename, which is fine
	defer f.Close()
	if err := st.agree(nil); err != nil {
		return err
	}
	err = receive(f, &chunkReader{r: st})
	if err == nil {
		err = put{temp: f, path: at.path, user: user, mode: args.Mode, newMode: args.NewMode}.do()
	}
	return writeAnswer(st, nil, fileError("write", string(args.Path), err))
}

// mostFollowed is the maximum number of symbolic links that Linux follows in a path.
const mostFollowed = 40

// followLinks resolves symbolic links at the end of a path, including links to
// links and to missing files, as open(2) does: writing replaces the target, not
// the link.
func followLinks(path string) (string, error) {
	for range mostFollowed + 1 {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // the caller's operation returns the error
		}
		if !filepath.IsAbs(target) {
			target = parentOf(path) + target
		}
		path = target
	}
	return "", unix.ELOOP
}

// parentOf returns a path up to its last name. It keeps "..", since the name
// before it may be a link.
func parentOf(path string) string { return path[:strings.LastIndexByte(path, '/')+1] }

// createTemp creates a unique file in the directory of path.
func createTemp(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, unix.EISDIR
	}
	return os.OpenFile(tempName(path), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

func tempName(path string) string {
	var b [8]byte
	rand.Read(b[:])
	return parentOf(path) + ".holt-" + hex.EncodeToString(b[:])
}

func statFile(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := fileArguments(raw)
	if err != nil {
		return nil, err
	}
	at, err := args.reach(args.Path, false)
	if err != nil {
		return nil, fileError("stat", string(args.Path), err)
	}
	defer at.end()
	info, err := describeFile(at.path)
	info.Path, info.Name = args.Path, holt.OSString(filepath.Base(string(args.Path)))
	return info, fileError("stat", string(args.Path), err)
}

// describeFile returns the result of lstat in the API's form.
func describeFile(path string) (holt.FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return holt.FileInfo{}, err
	}
	info := holt.FileInfo{
		Path: holt.OSString(path), Name: holt.OSString(filepath.Base(path)), Kind: fileKind(st.Mode), Size: st.Size,
		Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		ModTime: time.Unix(st.Mtim.Unix()).UTC(),
	}
	if info.Kind == "symlink" {
		target, _ := os.Readlink(path)
		info.Target = holt.OSString(target)
	}
	return info, nil
}

func fileKind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR:
		return "char"
	case unix.S_IFBLK:
		return "block"
	}
	return "file"
}

func makeDir(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := fileArguments(raw)
	if err != nil {
		return nil, err
	}
	user, err := args.user()
	if err != nil {
		return nil, err
	}
	if args.Mode == 0 {
		args.Mode = 0o755
	}
	args.Path = holt.OSString(filepath.Clean(string(args.Path)))
	if args.Beneath != "" && args.Recursive {
		if err := args.makeParents(user); err != nil {
			return nil, fileError("mkdir", string(args.Path), err)
		}
	}
	at, err := args.reach(args.Path, false)
	if err != nil {
		return nil, fileError("mkdir", string(args.Path), err)
	}
	defer at.end()
	return nil, fileError("mkdir", string(args.Path), mkdir(at.path, args.Mode, user, args.Recursive))
}

// mkdir creates a directory and, with parents, missing parents; see [ownerOfNew] for their owner.
func mkdir(path string, mode uint32, user *account, parents bool) error {
	err := os.Mkdir(path, 0o700)
	switch {
	case err == nil:
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0) // it may have been replaced by a link
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		owner, err := ownerOfNew(path, user)
		if err != nil {
			return err
		}
		if err := unix.Fchown(fd, owner.uid, owner.gid); err != nil {
			return err
		}
		return unix.Fchmod(fd, mode&0o7777|owner.setGID)
	case !parents:
		return err
	case errors.Is(err, fs.ErrExist):
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return nil
		}
		return err
	case errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path):
		if err := mkdir(filepath.Dir(path), 0o755, user, true); err != nil {
			return err
		}
		return mkdir(path, mode, user, true)
	}
	return err
}

// makeSymlink creates a link under a temporary name and renames it.
func makeSymlink(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := fileArguments(raw)
	if err != nil {
		return nil, err
	}
	if args.To == "" || len(args.To) >= unix.PathMax || strings.Contains(string(args.To), "\x00") {
		return nil, holt.Errorf(holt.InvalidArgument, "invalid target of a symbolic link: %q", clip(string(args.To)))
	}
	user, err := args.user()
	if err != nil {
		return nil, err
	}
	args.Path = holt.OSString(filepath.Clean(string(args.Path)))
	at, err := args.reach(args.Path, false)
	if err != nil {
		return nil, fileError("link", string(args.Path), err)
	}
	defer at.end()
	owner, err := ownerOfNew(at.path, user)
	if err != nil {
		return nil, fileError("link", string(args.Path), err)
	}
	temp := tempName(at.path)
	if err := unix.Symlink(string(args.To), temp); err != nil {
		return nil, fileError("link", string(args.Path), err)
	}
	err = os.Lchown(temp, owner.uid, owner.gid)
	if err == nil {
		err = unix.Rename(temp, at.path)
	}
	if err != nil {
		os.Remove(temp)
	}
	return nil, fileError("link", string(args.Path), err)
}

func removeFile(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := fileArguments(raw)
	if err != nil {
		return nil, err
	}
	if filepath.Clean(string(args.Path)) == "/" {
		return nil, holt.Errorf(holt.InvalidArgument, "the root directory cannot be removed")
	}
	at, err := args.reach(args.Path, false)
	if err != nil {
		return nil, fileError("remove", string(args.Path), err)
	}
	defer at.end()
	remove := os.Remove
	if args.Recursive {
		remove = os.RemoveAll
	}
	return nil, fileError("remove", string(args.Path), remove(at.path))
}

func renameFile(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := fileArguments(raw)
	if err == nil {
		err = checkPath(string(args.To))
	}
	if err != nil {
		return nil, err
	}
	both := fmt.Sprintf("%s to %s", string(args.Path), string(args.To))
	from, err := args.reach(args.Path, false)
	if err != nil {
		return nil, fileError("rename", both, err)
	}
	defer from.end()
	to, err := args.reach(args.To, false)
	if err != nil {
		return nil, fileError("rename", both, err)
	}
	defer to.end()
	return nil, fileError("rename", both, unix.Rename(from.path, to.path))
}
