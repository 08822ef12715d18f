package computer

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"

	"holt"
	"holt/workspace"
)

// offline reads the workspace of a stopped computer without starting it.
type offline struct {
	t       *workspace.Tree
	release func()
}

// view returns the workspace of a computer that is off, if path lies in it and
// can be read there. A path that a symlink leads out of the workspace cannot.
func (f *Files) view(ctx context.Context, computer, path string) (v *offline, ok bool, err error) {
	if path != workspaceDir && !strings.HasPrefix(path, workspaceDir+"/") {
		return nil, false, nil
	}
	r, err := f.s.table.find(ctx, computer)
	if err != nil {
		return nil, false, err
	}
	if r.State != holt.ComputerStopped {
		return nil, false, nil
	}
	ws, release, err := f.s.cfg.Workspaces.View(ctx, r.workspaceID)
	if err != nil {
		return nil, false, err
	}
	v = &offline{ws.Tree(), release}
	if _, err := v.walk(path, false); errors.Is(err, errLeaves) {
		release()
		return nil, false, nil
	}
	return v, true, nil
}

func (v *offline) close() { v.release() }

// errLeaves says that a path leads out of the workspace.
var errLeaves = errors.New("the path leads out of the workspace")

// mostLinks is how many symlinks Linux follows in one path.
const mostLinks = 40

// walk finds the inode of a cleaned path under workspaceDir. A symlink at its
// end is followed if follow is set.
func (v *offline) walk(path string, follow bool) (workspace.Attr, error) {
	rest := names(path)[len(names(workspaceDir)):]
	at := []workspace.Ino{workspace.Root}
	attr, err := v.t.GetAttr(workspace.Root)
	for links := 0; err == nil && len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			if len(at) == 1 {
				return attr, errLeaves
			}
			at = at[:len(at)-1]
			attr, err = v.t.GetAttr(at[len(at)-1])
			continue
		}
		if attr, err = v.t.Lookup(workspace.Caller{}, at[len(at)-1], name); err != nil {
			break
		}
		if attr.Mode&syscall.S_IFMT != syscall.S_IFLNK || len(rest) == 0 && !follow {
			at = append(at, attr.Ino)
			continue
		}
		if links++; links > mostLinks {
			return attr, syscall.ELOOP
		}
		target, err := v.t.Readlink(attr.Ino)
		if err != nil {
			return attr, err
		}
		if strings.HasPrefix(target, "/") {
			clean := names(target)
			home := names(workspaceDir)
			if len(clean) < len(home) || clean[0] != home[0] || clean[1] != home[1] {
				return attr, errLeaves
			}
			at, rest = at[:1], append(clean[len(home):], rest...)
		} else {
			rest = append(names(target), rest...)
		}
		if attr, err = v.t.GetAttr(at[len(at)-1]); err != nil {
			return attr, err
		}
	}
	return attr, err
}

// names splits a path into its names, without empty ones and ".".
func names(path string) []string {
	var list []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			list = append(list, name)
		}
	}
	return list
}

func (v *offline) stat(path string) (holt.FileInfo, error) {
	attr, err := v.walk(path, false)
	if err != nil {
		return holt.FileInfo{}, fileError(path, err)
	}
	return v.describe(path, attr)
}

func (v *offline) describe(path string, attr workspace.Attr) (holt.FileInfo, error) {
	info := holt.FileInfo{
		Path: path, Name: path[strings.LastIndexByte(path, '/')+1:], Kind: workspace.KindName(attr.Mode), Size: attr.Size,
		Mode: attr.Mode & 0o7777, UID: attr.UID, GID: attr.GID, ModTime: time.Unix(0, attr.Mtime).UTC(),
	}
	if info.Kind != "symlink" {
		return info, nil
	}
	target, err := v.t.Readlink(attr.Ino)
	if err != nil {
		return info, fileError(path, err)
	}
	info.Target = strings.ToValidUTF8(target, "\uFFFD")
	return info, nil
}

func (v *offline) list(path string) ([]holt.FileInfo, error) {
	attr, err := v.walk(path, true)
	if err != nil {
		return nil, fileError(path, err)
	}
	if !attr.IsDir() {
		return nil, fileError(path, syscall.ENOTDIR)
	}
	var entries []workspace.DirEntry
	err = v.t.ReadDir(workspace.Caller{}, attr.Ino, 0, true, func(e workspace.DirEntry) bool {
		if e.Name != "." && e.Name != ".." {
			entries = append(entries, e)
		}
		return true
	})
	if err != nil {
		return nil, fileError(path, err)
	}
	list := make([]holt.FileInfo, 0, len(entries))
	for _, e := range entries {
		info, err := v.describe(path+"/"+strings.ToValidUTF8(e.Name, "\uFFFD"), e.Attr)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

func (v *offline) read(ctx context.Context, path string, off, n int64, w io.Writer) error {
	attr, err := v.walk(path, true)
	if err != nil {
		return fileError(path, err)
	}
	if attr.IsDir() {
		return fileError(path, syscall.EISDIR)
	}
	if !attr.IsRegular() {
		return fileError(path, syscall.ENXIO)
	}
	if n < 0 {
		n = attr.Size
	}
	buf := make([]byte, 1<<20)
	for n > 0 && ctx.Err() == nil {
		got, err := v.t.Read(attr.Ino, off, buf[:min(n, int64(len(buf)))])
		if err != nil {
			return fileError(path, err)
		}
		if got == 0 {
			return nil
		}
		if _, err := w.Write(buf[:got]); err != nil {
			return err
		}
		off, n = off+int64(got), n-int64(got)
	}
	return ctx.Err()
}

// fileError turns what the workspace says into what the guest's agent would.
func fileError(path string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return holt.Errorf(holt.Internal, "read %s: %w", path, err)
	}
	switch errno {
	case syscall.ENOENT:
		return holt.Errorf(holt.NotFound, "there is no %s", path).WithHint("list the directory above it to see what is there")
	case syscall.EIO:
		return holt.Errorf(holt.Corrupt, "read %s: %w", path, errno).WithHint("holt workspace check says what is damaged")
	default:
		return holt.Errorf(holt.InvalidArgument, "read %s: %w", path, errno)
	}
}
