package httpapi

import (
	"archive/tar"
	"context"
	"io"
	"path"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
	"holt/internal/store/tarball"
)

const (
	mostLeftOut = 100    // that are named
	mostKnown   = 10_000 // directories that need no second look
)

func (s fileRoutes) tar(ctx context.Context, in *api.OneFile) (*huma.StreamResponse, error) {
	ref, dir := in.Ref(), in.Path
	info, err := s.reads.Stat(ctx, ref, dir)
	if err != nil {
		return nil, err
	}
	if info.Kind != "dir" {
		return nil, holt.Errorf(holt.InvalidArgument, "%s is not a directory", clip(dir)).WithHint("…/files/content reads a file")
	}
	return s.raw(ctx, s.calls.Tar.Answer.Type, func(ctx context.Context, w *rawWriter) error {
		return tarball.Pack(ctx, s.reads, ref, dir, w)
	}), nil
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
		case err != nil:
			return tarball.Damaged(err)
		case items >= tarball.MostEntries:
			return holt.Errorf(holt.TooMany, "the tar stream has more than %d entries", tarball.MostEntries).WithHint("send it in parts, or send a workspace as a parcel: holt workspace import")
		}
		if err := u.one(h, in); err != nil {
			return err
		}
	}
}

// one takes one entry.
func (u *unpacking) one(h *tar.Header, in io.Reader) error {
	name, err := tarball.Name(h.Name)
	if err != nil || name == "." {
		return err
	}
	at := path.Join(u.dir, name)
	if strings.Count(name, "/") > tarball.MostDepth {
		return holt.Errorf(holt.TooMany, "%s: directories are nested deeper than %d", clip(name), tarball.MostDepth)
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
	case h.Typeflag == tar.TypeReg && !tarball.Sparse(h):
		return u.file(name, at, mode, h, in)
	}
	if u.report.Left++; len(u.report.LeftOut) < mostLeftOut {
		u.report.LeftOut = append(u.report.LeftOut, holt.OSString(name).Text())
	}
	return nil
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
