package workspace

import (
	"errors"
	"strings"
	"syscall"

	"holt"
)

// Home is where a computer has its workspace mounted: absolute symbolic links
// that begin with it lead into the workspace.
const Home = "/home/agent"

// mostFollowed is how many symbolic links Linux follows in one path.
const mostFollowed = 40

// ErrEscapes says that a symbolic link leads out of the workspace.
var ErrEscapes = errors.New("a symbolic link escapes the workspace")

// Resolve finds the inode of a path; "/" is the top. Symbolic links on the way
// are followed, one at the end only with follow. ".." at the top leads out.
// Errors are errnos, or say that a link leads out of the workspace.
func (t *Tree) Resolve(path string, follow bool) (Attr, error) { return find(t, path, follow) }

// find is Resolve in any state.
func find(r reading, path string, follow bool) (Attr, error) {
	at, err := resolve(r, []Ino{Root}, pathNames(path), follow)
	if err != nil {
		return Attr{}, err
	}
	return r.GetAttr(at[len(at)-1])
}

// resolve returns the inodes from the top to what names lead to from at on.
func resolve(r reading, at []Ino, names []string, follow bool) ([]Ino, error) {
	return resolveFrom(r, at, 1, names, follow)
}

// resolveFrom is resolve of who cannot leave the first floor of at.
func resolveFrom(r reading, at []Ino, floor int, names []string, follow bool) ([]Ino, error) {
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == ".." {
			if len(at) == floor {
				return nil, ErrEscapes
			}
			at = at[:len(at)-1]
			continue
		}
		a, err := r.lookup(at[len(at)-1], name)
		if err != nil {
			return nil, err
		}
		if a.Mode&syscall.S_IFMT != syscall.S_IFLNK || len(names) == 0 && !follow {
			at = append(at, a.Ino)
			continue
		}
		if links++; links > mostFollowed {
			return nil, syscall.ELOOP
		}
		target, err := r.Readlink(a.Ino)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(target, "/") {
			inside, ok := strings.CutPrefix(target, Home)
			if !ok || inside != "" && inside[0] != '/' || floor > 1 {
				return nil, ErrEscapes
			}
			at, target = at[:1], inside
		}
		names = append(pathNames(target), names...)
	}
	return at, nil
}

// parent finds the directory that the last name of the caller's path lies in.
func (f Files) parent(path string) (Attr, string, error) {
	t, names := f.Tree, pathNames(strings.TrimPrefix(path, f.Under))
	if len(names) == 0 || names[len(names)-1] == ".." {
		return Attr{}, "", syscall.EINVAL
	}
	last := len(names) - 1
	at, err := f.walk(names[:last], true)
	if err != nil {
		return Attr{}, "", err
	}
	d, err := t.GetAttr(at[len(at)-1])
	if err == nil && !d.IsDir() {
		err = syscall.ENOTDIR
	}
	return d, names[last], err
}

// pathNames splits a path into its names, without empty ones and ".".
func pathNames(path string) []string {
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// fileError gives what a call on a path returned its code.
func fileError(doing, path string, err error) error {
	if err == nil {
		return nil
	}
	var known *holt.Error
	if errors.As(err, &known) {
		return err
	}
	path = strings.ToValidUTF8(path, "\uFFFD")
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return holt.Errorf(holt.InvalidArgument, "%s %s: %w", doing, path, err)
	}
	switch errno {
	case syscall.ENOENT:
		return holt.Errorf(holt.NotFound, "there is no %s", path).WithHint("list its parent directory to see what exists")
	case syscall.EEXIST:
		return holt.Errorf(holt.AlreadyExists, "%s exists", path)
	case syscall.ENOTEMPTY:
		return holt.Errorf(holt.Conflict, "%s is not empty", path).WithHint("remove it recursively")
	case syscall.EDQUOT:
		return holt.Errorf(holt.OutOfSpace, "%s %s: the workspace's quota is used up", doing, path).
			WithHint("remove files, or raise the quota: holt workspace quota")
	case syscall.ENOSPC:
		return holt.Errorf(holt.OutOfSpace, "%s %s: %w", doing, path, errno).WithHint("free space on the host's disk")
	case syscall.EIO:
		return holt.Errorf(holt.Corrupt, "%s %s: %w", doing, path, errno).WithHint("holt workspace check says what is damaged")
	}
	return holt.Errorf(holt.InvalidArgument, "%s %s: %w", doing, path, errno)
}
