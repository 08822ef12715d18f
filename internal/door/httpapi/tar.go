package httpapi

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

const (
	mostTarDepth = 256       // directories in each other
	mostTarItems = 1_000_000 // entries of one stream
	mostLeftOut  = 100       // that are named
	mostKnown    = 10_000    // directories that need no second look
)

func (s fileRoutes) tar(ctx context.Context, in *api.OneFile) (*huma.StreamResponse, error) {
	ref, dir := in.Ref(), in.Path
	info, err := s.nouns.Stat(ctx, ref, dir)
	if err != nil {
		return nil, err
	}
	if info.Kind != "dir" {
		return nil, holt.Errorf(holt.InvalidArgument, "%s is not a directory", clip(dir)).WithHint("…/files/content reads a file")
	}
	return s.raw(ctx, s.calls.Tar.Answer.Type, func(ctx context.Context, w *rawWriter) error {
		out := tar.NewWriter(w)
		if err := s.packDir(ctx, out, ref, dir, "", 0); err != nil {
			return err
		}
		return out.Close()
	}), nil
}

// packDir writes what is in a directory; name is what it is called in the stream.
func (s fileRoutes) packDir(ctx context.Context, out *tar.Writer, ref, dir, name string, depth int) error {
	if depth > mostTarDepth {
		return holt.Errorf(holt.TooMany, "directories are nested deeper than %d", mostTarDepth)
	}
	spec := holt.PageSpec{Limit: holt.MostPerPage}
	for {
		page, err := s.nouns.List(ctx, ref, dir, spec)
		if err != nil {
			return gone(err)
		}
		for _, info := range page.Items {
			if err := s.pack(ctx, out, ref, path.Join(dir, string(info.Name)), path.Join(name, string(info.Name)), info, depth); err != nil {
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

func (s fileRoutes) pack(ctx context.Context, out *tar.Writer, ref, file, name string, info holt.FileInfo, depth int) error {
	h := &tar.Header{Name: name, Mode: int64(info.Mode), Uid: int(info.UID), Gid: int(info.GID), ModTime: info.ModTime}
	switch info.Kind {
	case "dir":
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		return s.packDir(ctx, out, ref, file, name, depth+1)
	case "symlink":
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(info.Target)
		return out.WriteHeader(h)
	case "file":
		h.Typeflag, h.Size = tar.TypeReg, info.Size
		if err := out.WriteHeader(h); err != nil || h.Size == 0 {
			return err
		}
		exact := &exactWriter{w: out, left: h.Size}
		err := s.nouns.Read(ctx, ref, file, 0, h.Size, exact)
		if err == nil && exact.left > 0 {
			err = holt.Errorf(holt.Conflict, "%s was truncated while it was read", clip(file))
		}
		return err
	}
	return nil
}

func (s fileRoutes) untar(ctx context.Context, in *api.FileUntar) (holt.TarReport, error) {
	u := &unpacking{s: s, ctx: ctx, ref: in.Ref(), dir: in.Path, user: in.User, known: map[string]bool{}}
	if err := u.all(tar.NewReader(body(ctx))); err != nil {
		e := *holt.AsError(err)
		e.Detail = u.report
		return holt.TarReport{}, &e
	}
	return u.report, nil
}

// unpacking is one tar stream on its way into a directory.
type unpacking struct {
	s              fileRoutes
	ctx            context.Context
	ref, dir, user string
	known          map[string]bool // directories below dir that are no links
	report         holt.TarReport
}

func (u *unpacking) all(in *tar.Reader) error {
	if _, err := u.s.nouns.Mkdir(u.ctx, u.ref, holt.MkdirSpec{Path: holt.OSString(u.dir), User: u.user, Parents: true}, ""); err != nil {
		return err
	}
	for items := 0; ; items++ {
		h, err := in.Next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, tar.ErrHeader):
			return holt.Errorf(holt.InvalidArgument, "the tar stream is damaged: %w", err)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return holt.Errorf(holt.InvalidArgument, "the tar stream ends too early")
		case err != nil:
			return holt.Errorf(holt.Unavailable, "the tar stream was interrupted: %w", err)
		case items >= mostTarItems:
			return holt.Errorf(holt.TooMany, "the tar stream has more than %d entries", mostTarItems).WithHint("send it in parts, or send a workspace as a parcel: holt workspace import")
		}
		if err := u.one(h, in); err != nil {
			return err
		}
	}
}

// one takes one entry.
func (u *unpacking) one(h *tar.Header, in io.Reader) error {
	name, err := nameWithin(h.Name)
	if err != nil || name == "." {
		return err
	}
	at := path.Join(u.dir, name)
	if strings.Count(name, "/") > mostTarDepth {
		return holt.Errorf(holt.TooMany, "%s: directories are nested deeper than %d", clip(name), mostTarDepth)
	}
	mode := uint32(h.Mode) & 0o777 // no set-id bits out of an archive
	switch {
	case h.Typeflag == tar.TypeDir:
		u.report.Dirs++
		return u.mkdirs(name, mode)
	case h.Typeflag == tar.TypeSymlink:
		if err := u.mkdirs(path.Dir(name), 0); err != nil {
			return err
		}
		if h.Linkname == "" || strings.ContainsRune(h.Linkname, 0) || len(h.Linkname) > 4095 {
			return holt.Errorf(holt.InvalidArgument, "%s is an invalid link", clip(name))
		}
		if holt.BeneathOf(u.ctx) != "" { // a link would lead others out of the directory
			return holt.Errorf(holt.Forbidden, "%s is a symbolic link: a token for a directory cannot make links", clip(name))
		}
		u.report.Links++
		_, err := u.s.nouns.Symlink(u.ctx, u.ref, holt.SymlinkSpec{Path: holt.OSString(at), Target: holt.OSString(h.Linkname), User: u.user}, "")
		return err
	case h.Typeflag == tar.TypeReg && !sparse(h):
		return u.file(name, at, mode, h, in)
	}
	if u.report.Left++; len(u.report.LeftOut) < mostLeftOut {
		u.report.LeftOut = append(u.report.LeftOut, holt.OSString(name).Text())
	}
	return nil
}

// sparse says that few bytes of the stream stand for any number of zeros.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

func (u *unpacking) file(name, at string, mode uint32, h *tar.Header, in io.Reader) error {
	if err := u.mkdirs(path.Dir(name), 0); err != nil {
		return err
	}
	// Whoever writes to a link writes where that leads.
	if info, err := u.s.nouns.Stat(u.ctx, u.ref, at); err == nil && info.Kind == "symlink" {
		if err := u.s.nouns.Remove(u.ctx, u.ref, at, false, ""); err != nil {
			return err
		}
	}
	info, err := u.s.nouns.Write(u.ctx, u.ref, at, holt.WriteSpec{NewMode: mode, User: u.user}, in)
	if err != nil {
		return err
	}
	u.report.Files++
	u.report.Bytes += info.Size
	return nil
}

// mkdirs makes a directory and those above it, up to the one that everything goes to. None may be a link.
func (u *unpacking) mkdirs(name string, mode uint32) error {
	if name == "." || u.known[name] && mode == 0 {
		return nil
	}
	if err := u.mkdirs(path.Dir(name), 0); err != nil {
		return err
	}
	at := path.Join(u.dir, name)
	info, err := u.s.nouns.Stat(u.ctx, u.ref, at)
	switch {
	case holt.CodeOf(err) == holt.NotFound:
		if mode == 0 {
			mode = 0o755
		}
		_, err = u.s.nouns.Mkdir(u.ctx, u.ref, holt.MkdirSpec{Path: holt.OSString(at), Mode: mode, User: u.user}, "")
	case err == nil && info.Kind != "dir":
		err = holt.Errorf(holt.InvalidArgument, "%s is a %s, not a directory", clip(at), info.Kind).WithHint("holt does not unpack through links; remove it, or unpack elsewhere")
	}
	if err != nil {
		return err
	}
	if len(u.known) >= mostKnown {
		clear(u.known)
	}
	u.known[name] = true
	return nil
}

// nameWithin returns a name of a tar stream as a clean path below its top.
func nameWithin(name string) (string, error) {
	bad := func(why string) (string, error) {
		return "", holt.Errorf(holt.InvalidArgument, "invalid name %q in the tar stream: %s", clip(name), why).WithHint("names must be relative and stay below the directory")
	}
	switch {
	case name == "":
		return bad("that is no name")
	case strings.HasPrefix(name, "/"):
		return bad("it is absolute")
	case strings.ContainsRune(name, 0) || len(name) > 4096:
		return bad("no file can be called so")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return bad("it leads out of the directory")
		}
		if len(part) > 255 {
			return bad(fmt.Sprintf("a name in it has %d bytes, and Linux takes 255", len(part)))
		}
	}
	return path.Clean(name), nil
}
