package workspace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"

	"holt"
)

// Files is a workspace by paths, for callers that are no kernel: the API. All
// paths are absolute in the workspace, or with Under where that is; symbolic
// links on the way are followed, unless they lead out ([ErrEscapes]). Errors are
// [holt.Error].
//
// It takes effect at once, also under a mount; Changed says what the mount's
// kernel must be told.
type Files struct {
	Tree   *Tree
	Caller Caller
	Under  string // where the caller has the top, as [Home]; "" for "/"
	// Inherit gives what is made the owner of its directory. In a directory where everybody may make files, and without
	// Inherit, it belongs to the Caller.
	Inherit bool
	// Beneath, if set, is a directory that the caller cannot leave: paths must begin with it.
	Beneath string
	// Changed is told what a kernel that has the workspace mounted may no longer
	// believe: the entry name of a directory, or with name "" an inode itself.
	Changed func(ino Ino, name string)
	// At, if set, is what Stat, List and Read look at instead of the present.
	At *View
}

// state is what is read.
func (f Files) state() reading {
	if f.At != nil {
		return f.At
	}
	return f.Tree
}

// resolve finds the inode of the caller's path.
func (f Files) resolve(path string, follow bool) (Attr, error) {
	at, err := f.walk(pathNames(strings.TrimPrefix(path, f.Under)), follow)
	if err != nil {
		return Attr{}, err
	}
	return f.state().GetAttr(at[len(at)-1])
}

func (f Files) changed(ino Ino, name string) {
	if f.Changed != nil {
		f.Changed(ino, name)
		f.Changed(ino, "")
	}
}

// Stat describes what a path names; a symbolic link at its end is not followed.
func (f Files) Stat(path string) (holt.FileInfo, error) {
	a, err := f.resolve(path, false)
	if err != nil {
		return holt.FileInfo{}, fileError("look at", path, err)
	}
	info, err := f.describe(path, a)
	return info, fileError("look at", path, err)
}

func (f Files) describe(path string, a Attr) (holt.FileInfo, error) {
	name := path[strings.LastIndexByte(path, '/')+1:]
	info := holt.FileInfo{Path: holt.OSString(path), Name: holt.OSString(name), Kind: KindName(a.Mode), Mode: a.Mode & 07777,
		UID: a.UID, GID: a.GID, Size: a.Size, ModTime: time.Unix(0, a.Mtime).UTC()}
	if info.Kind != "symlink" {
		return info, nil
	}
	target, err := f.state().Readlink(a.Ino)
	info.Target = holt.OSString(target)
	return info, err
}

// KindName is the kind of an inode with that mode, as the view files has it.
func KindName(mode uint32) string {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return "dir"
	case syscall.S_IFLNK:
		return "symlink"
	case syscall.S_IFIFO:
		return "fifo"
	case syscall.S_IFSOCK:
		return "socket"
	case syscall.S_IFCHR:
		return "char"
	case syscall.S_IFBLK:
		return "block"
	}
	return "file"
}

// List returns a page of the entries of a directory, in the order of their
// names. The cursor is the last name of the page before, so what is there all
// the while is seen once, whatever changes beside it.
func (f Files) List(path string, spec holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	page := holt.Page[holt.FileInfo]{Items: []holt.FileInfo{}}
	after := string(holt.ParseOSString(spec.Cursor))
	if strings.Contains(after, "/") {
		return page, holt.Errorf(holt.Conflict, "the cursor does not belong to a listing of %s", path).WithHint("start again at the first page")
	}
	d, err := f.resolve(path, true)
	if err == nil && !d.IsDir() {
		err = syscall.ENOTDIR
	}
	var entries []DirEntry
	if err == nil {
		entries, err = f.state().names(d.Ino, after, spec.Most()+1)
	}
	if err != nil {
		return page, fileError("list", path, err)
	}
	if most := spec.Most(); len(entries) > most {
		entries = entries[:most]
		page.Next = holt.OSString(entries[most-1].Name).Text()
	}
	for _, e := range entries {
		info, err := f.describe(strings.TrimSuffix(path, "/")+"/"+e.Name, e.Attr)
		if err == syscall.ENOENT { // removed meanwhile
			continue
		}
		if err != nil {
			return page, fileError("list", path, err)
		}
		page.Items = append(page.Items, info)
	}
	return page, nil
}

// Read writes n bytes of a file from offset off to w; n < 0: up to its end.
func (f Files) Read(ctx context.Context, path string, off, n int64, w io.Writer) error {
	a, err := f.resolve(path, true)
	switch {
	case err != nil:
	case off < 0:
		err = syscall.EINVAL
	case a.IsDir():
		err = syscall.EISDIR
	case !a.IsRegular():
		err = syscall.ENXIO
	}
	if err != nil {
		return fileError("read", path, err)
	}
	buf := make([]byte, chunk)
	for n != 0 && ctx.Err() == nil {
		want := int64(len(buf))
		if n > 0 {
			want = min(want, n)
		}
		got, err := f.state().Read(a.Ino, off, buf[:want])
		if err != nil {
			return fileError("read", path, err)
		}
		if got == 0 {
			return nil
		}
		if _, err := w.Write(buf[:got]); err != nil {
			return err
		}
		if off += int64(got); n > 0 {
			n -= int64(got)
		}
	}
	return ctx.Err()
}

// follow returns where a path leads whose last name may be a symbolic link, also
// one to another link or to what is not there yet, as open(2) does: writing
// replaces what they name, not a link.
func (f Files) follow(path string) (string, error) {
	for range mostFollowed + 1 {
		a, err := f.resolve(path, false)
		if err != nil || a.Mode&syscall.S_IFMT != syscall.S_IFLNK {
			return path, nil // the operation on it reports the error
		}
		target, err := f.Tree.Readlink(a.Ino)
		if err != nil {
			return "", err
		}
		switch inside, ok := strings.CutPrefix(target, Home+"/"); {
		case ok:
			path = f.Under + "/" + inside
		case strings.HasPrefix(target, "/"):
			return "", ErrEscapes
		default:
			path = parentOf(path) + "/" + target
		}
	}
	return "", syscall.ELOOP
}

// Follow returns where a path leads whose last name may be a symbolic link. InvalidArgument if it leads out of the workspace.
func (f Files) Follow(path string) (string, error) {
	at, err := f.follow(path)
	return at, fileError("look at", path, err)
}

func parentOf(path string) string {
	return path[:max(0, strings.LastIndexByte(strings.TrimRight(path, "/"), '/'))]
}

// Mkdir makes a directory; with parents, those above it too, and then one that
// is there is no error.
func (f Files) Mkdir(path string, mode uint32, parents bool) (holt.FileInfo, error) {
	if mode == 0 {
		mode = 0o755
	}
	var err error
	if parents {
		err = f.mkdirs(path, mode)
	} else {
		var d Attr
		var name string
		if d, name, err = f.parent(path); err == nil {
			if _, err = f.Tree.Mkdir(f.maker(d), d.Ino, name, mode); err == nil {
				f.changed(d.Ino, name)
			}
		}
	}
	if err != nil {
		return holt.FileInfo{}, fileError("make", path, err)
	}
	return f.Stat(path)
}

// Symlink makes a symbolic link; a file or link at its path is replaced as one step.
func (f Files) Symlink(path, target string) (holt.FileInfo, error) {
	d, name, err := f.parent(path)
	if err == nil {
		err = f.replaceLink(d, name, target)
	}
	if err != nil {
		return holt.FileInfo{}, fileError("link", path, err)
	}
	f.changed(d.Ino, name)
	return f.Stat(path)
}

func (f Files) replaceLink(dir Attr, name, target string) error {
	beside := tempName()
	if _, err := f.Tree.Symlink(f.maker(dir), dir.Ino, beside, target); err != nil {
		return err
	}
	if err := f.Tree.Rename(f.Caller, dir.Ino, beside, dir.Ino, name, 0); err != nil {
		return errors.Join(err, f.Tree.Unlink(f.Caller, dir.Ino, beside))
	}
	return nil
}

// tempName is a name that nothing else has, for what is renamed to its own later.
func tempName() string {
	var random [8]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	return ".holt-put-" + hex.EncodeToString(random[:])
}

// mkdirs makes every directory of a path that is not there.
func (f Files) mkdirs(path string, mode uint32) error {
	at, names, err := f.floor(pathNames(strings.TrimPrefix(path, f.Under)))
	if err != nil {
		return err
	}
	floor := len(at)
	for _, name := range names {
		next, err := resolveFrom(f.Tree, at, floor, []string{name}, true)
		in := at[len(at)-1]
		if err == syscall.ENOENT {
			var dir, a Attr
			if dir, err = f.Tree.GetAttr(in); err != nil {
				return err
			}
			if a, err = f.Tree.Mkdir(f.maker(dir), in, name, mode); err == nil {
				f.changed(in, name)
				next = append(at, a.Ino)
			}
		}
		if err != nil {
			return err
		}
		at = next
	}
	a, err := f.Tree.GetAttr(at[len(at)-1])
	if err == nil && !a.IsDir() {
		err = syscall.ENOTDIR
	}
	return err
}

// Remove removes a file or an empty directory; recursive: a whole tree. A
// symbolic link is removed itself.
func (f Files) Remove(ctx context.Context, path string, recursive bool) error {
	d, name, err := f.parent(path)
	if err == syscall.EINVAL {
		return holt.Errorf(holt.InvalidArgument, "%s cannot be removed", path).WithHint("remove its contents, or delete the workspace")
	}
	var a Attr
	if err == nil {
		a, err = f.Tree.Lookup(Caller{}, d.Ino, name)
	}
	if err == nil && a.IsDir() && recursive {
		err = f.removeIn(ctx, a.Ino, 0)
	}
	if err == nil {
		err = f.remove(d.Ino, name, a)
	}
	f.changed(d.Ino, name)
	return fileError("remove", path, err)
}

func (f Files) remove(dir Ino, name string, a Attr) error {
	if a.IsDir() {
		return f.Tree.Rmdir(f.Caller, dir, name)
	}
	return f.Tree.Unlink(f.Caller, dir, name)
}

// removeIn empties a directory.
func (f Files) removeIn(ctx context.Context, dir Ino, depth int) error {
	if depth > 10_000 {
		return syscall.ELOOP
	}
	for {
		var page []DirEntry
		err := f.Tree.ReadDir(Caller{}, dir, cookieDotDot, true, func(e DirEntry) bool {
			page = append(page, e)
			return len(page) < pageOfDir
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, e := range page {
			err := ctx.Err()
			if err == nil && e.Attr.IsDir() {
				err = f.removeIn(ctx, e.Ino, depth+1)
			}
			if err == nil {
				err = f.remove(dir, e.Name, e.Attr)
			}
			if err != nil && err != syscall.ENOENT {
				return err
			}
			if f.Changed != nil {
				f.Changed(dir, e.Name)
			}
		}
	}
}

// Rename moves a name; a file at the new one is replaced.
func (f Files) Rename(from, to string) error {
	d, name, err := f.parent(from)
	if err != nil {
		return fileError("move", from, err)
	}
	d2, name2, err := f.parent(to)
	if err == nil {
		err = f.Tree.Rename(f.Caller, d.Ino, name, d2.Ino, name2, 0)
	}
	if err == syscall.ENOENT {
		return fileError("move", from, err)
	}
	if err != nil {
		return fileError("move", to, err)
	}
	f.changed(d.Ino, name)
	f.changed(d2.Ino, name2)
	return nil
}
