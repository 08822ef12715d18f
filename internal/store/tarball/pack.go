// Package tarball writes directories as tar streams (POSIX.1-2001, pax), and finds the files in one. It does not unpack them.
package tarball

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"holt"
)

// Bounds of a stream.
const (
	MostDepth   = 256       // directories in each other
	MostEntries = 1_000_000 // of one stream; Pack counts pages of listings too
)

// Source is the files that Pack reads, of what ref names.
type Source interface {
	List(ctx context.Context, ref, dir string, page holt.PageSpec) (holt.Page[holt.FileInfo], error)
	Read(ctx context.Context, ref, path string, off, n int64, w io.Writer) error
}

// Pack writes what is in a directory of what ref names as a tar stream. Names are relative to the directory. What is deleted meanwhile is left out,
// and so are devices, sockets and pipes.
//
// Errors: TooMany (directories nested too deeply, entries), Conflict (a file became shorter while it was read, or a listing is
// incomplete), InvalidArgument (a listed name is none), those of src and w.
func Pack(ctx context.Context, src Source, ref, dir string, w io.Writer) error {
	p := &packing{src: src, ref: ref, out: tar.NewWriter(w)}
	if err := p.dir(ctx, dir, "", 0); err != nil {
		return err
	}
	return p.out.Close()
}

type packing struct {
	src    Source
	ref    string
	out    *tar.Writer
	listed int // entries and pages
}

// dir writes what is in a directory; name is what it is called in the stream.
func (p *packing) dir(ctx context.Context, dir, name string, depth int) error {
	if depth > MostDepth {
		return holt.Errorf(holt.TooMany, "directories are nested deeper than %d", MostDepth)
	}
	spec := holt.PageSpec{Limit: holt.MostPerPage}
	for {
		page, err := p.src.List(ctx, p.ref, dir, spec)
		if err != nil {
			return gone(err)
		}
		if p.listed += 1 + len(page.Items); p.listed > MostEntries {
			return holt.Errorf(holt.TooMany, "the directory has more than %d entries", MostEntries).WithHint("pack its directories one by one")
		}
		if len(page.Items) == 0 && page.Next != "" {
			return holt.Errorf(holt.Conflict, "the listing of %s is incomplete: a page of it is empty", holt.Clip(dir, 80)).WithHint("try again")
		}
		for _, info := range page.Items {
			// The agent of a computer lists them, and may be hostile.
			if n := string(info.Name); n == "" || n == "." || n == ".." || strings.ContainsAny(n, "/\x00") {
				return holt.Errorf(holt.InvalidArgument, "the listing of %s has the invalid name %q", holt.Clip(dir, 80), holt.Clip(n, 80))
			}
			if err := p.entry(ctx, path.Join(dir, string(info.Name)), path.Join(name, string(info.Name)), info, depth); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		spec.Cursor = page.Next
	}
}

// gone is no error: what was listed may have gone since.
func gone(err error) error {
	if holt.CodeOf(err) == holt.NotFound {
		return nil
	}
	return err
}

func (p *packing) entry(ctx context.Context, file, name string, info holt.FileInfo, depth int) error {
	h := &tar.Header{Name: name, Mode: int64(info.Mode), Uid: int(info.UID), Gid: int(info.GID), ModTime: info.ModTime}
	switch info.Kind {
	case "dir":
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := p.out.WriteHeader(h); err != nil {
			return err
		}
		return p.dir(ctx, file, name, depth+1)
	case "symlink":
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(info.Target)
		return p.out.WriteHeader(h)
	case "file":
		h.Typeflag, h.Size = tar.TypeReg, info.Size
		if err := p.out.WriteHeader(h); err != nil || h.Size == 0 {
			return err
		}
		exact := &exactWriter{w: p.out, left: h.Size}
		err := p.src.Read(ctx, p.ref, file, 0, h.Size, exact)
		if err == nil && exact.left > 0 {
			err = holt.Errorf(holt.Conflict, "%s was truncated while it was read", holt.Clip(file, 80))
		}
		return err
	}
	return nil
}

// exactWriter takes left bytes and drops what follows: a file may grow while it is read.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	n, err := e.w.Write(p[:min(int64(len(p)), e.left)])
	if e.left -= int64(n); err != nil {
		return n, err
	}
	return len(p), nil
}

// Sparse reports whether few bytes of the stream stand for any number of zeros of an entry.
func Sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// Name returns the name of an entry as a clean path below the top of the stream; "." is the top.
//
// Errors: InvalidArgument (it is absolute, leads out, or is no name of a file).
func Name(name string) (string, error) {
	bad := func(why string) (string, error) {
		return "", holt.Errorf(holt.InvalidArgument, "invalid name %q in the tar stream: %s", holt.Clip(name, 80), why).WithHint("names must be relative and stay below the directory")
	}
	switch {
	case name == "":
		return bad("it is empty")
	case strings.HasPrefix(name, "/"):
		return bad("it is absolute")
	case strings.ContainsRune(name, 0) || len(name) > 4096:
		return bad("no file can have this name")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return bad("it leads out of the directory")
		}
		if len(part) > 255 {
			return bad(fmt.Sprintf("a name in it has %d bytes; the maximum of Linux is 255", len(part)))
		}
	}
	return path.Clean(name), nil
}
