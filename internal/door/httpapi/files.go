package httpapi

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
	"holt/internal/httppart"
	"holt/internal/nouns"
)

// fileRoutes answer the calls about the files of one kind of owner.
type fileRoutes struct {
	*Server
	reads nouns.FileReader
	nouns nouns.Files // nil: nothing can be changed
	calls api.FileCalls
}

func (s *Server) files() {
	n := s.opt.Nouns
	for _, r := range []fileRoutes{{s, n.Files, n.Files, api.ComputerFiles}, {s, n.WorkspaceFiles, n.WorkspaceFiles, api.WorkspaceFiles}} {
		r.readable()
		r.writable()
	}
	fileRoutes{s, n.WorkspaceFiles, nil, api.CheckpointFiles}.readable()
	fileRoutes{s, n.ArtifactFiles, nil, api.ArtifactFiles}.readable()
}

func (s fileRoutes) readable() {
	bind(s.Server, s.calls.List, func(ctx context.Context, in *api.FilesOf) (holt.Page[holt.FileInfo], error) {
		return s.reads.List(ctx, in.Ref(), in.Path, holt.PageSpec{Limit: in.Limit, Cursor: in.Cursor})
	})
	bindReply(s.Server, s.calls.Stat, func(ctx context.Context, in *api.OneFile) (holt.FileInfo, error) {
		return s.reads.Stat(ctx, in.Ref(), in.Path)
	}, withETag)
	bindStream(s.Server, s.calls.Read, s.read)
	bindStream(s.Server, s.calls.Tar, s.tar)
}

func (s fileRoutes) writable() {
	bind(s.Server, s.calls.Remove, func(ctx context.Context, in *api.FileRemoval) (api.None, error) {
		return api.None{}, s.nouns.Remove(ctx, in.Ref(), in.Path, in.Recursive, in.Key)
	})
	bind(s.Server, s.calls.Mkdir, func(ctx context.Context, in *api.MakeDir) (holt.FileInfo, error) {
		return s.nouns.Mkdir(ctx, in.Ref(), in.Body, in.Key)
	})
	bind(s.Server, s.calls.Symlink, func(ctx context.Context, in *api.MakeLink) (holt.FileInfo, error) {
		if strings.ContainsRune(string(in.Body.Target), 0) {
			return holt.FileInfo{}, holt.Errorf(holt.InvalidArgument, "the link target contains a NUL byte")
		}
		return s.nouns.Symlink(ctx, in.Ref(), in.Body, in.Key)
	})
	bind(s.Server, s.calls.Rename, func(ctx context.Context, in *api.FileRename) (api.None, error) {
		return api.None{}, s.nouns.Rename(ctx, in.Ref(), in.Body, in.Key)
	})
	bindReply(s.Server, s.calls.Write, s.write, withETag)
	bind(s.Server, s.calls.Untar, s.untar)
}

func (s fileRoutes) write(ctx context.Context, in *api.FileWrite) (info holt.FileInfo, err error) {
	spec := holt.WriteSpec{User: in.User, Parents: in.Parents}
	if spec.Mode, err = octal(in.Mode); err != nil {
		return info, err
	}
	if spec.NewMode, err = octal(in.NewMode); err != nil {
		return info, err
	}
	if in.IfMatch == "" && in.IfNoneMatch == "" {
		return s.nouns.Write(ctx, in.Ref(), in.Path, spec, body(ctx))
	}
	return s.writeIf(ctx, in.Ref(), in.Path, spec, in.Preconditions, body(ctx))
}

// octal reads permission bits; "" is 0.
func octal(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	mode, err := strconv.ParseUint(s, 8, 12)
	if err != nil {
		return 0, holt.Errorf(holt.InvalidArgument, "%q is not an octal mode", clip(s))
	}
	return uint32(mode), nil
}

// fileReply is a file with its ETag.
type fileReply struct {
	ETag string `header:"ETag"`
	Body holt.FileInfo
}

func withETag(info holt.FileInfo) fileReply { return fileReply{info.ETag(), info} }

// read sends a file, a range of it, or, to HEAD, the headers alone.
func (s fileRoutes) read(ctx context.Context, in *api.FileRead) (*huma.StreamResponse, error) {
	info, err := s.reads.Stat(ctx, in.Ref(), in.Path)
	if err != nil {
		return nil, err
	}
	if info.Kind == "dir" {
		return nil, holt.Errorf(holt.InvalidArgument, "%s is a directory", clip(in.Path)).WithHint("use …/files to list it, …/files/tar to get all of it")
	}
	q := requestOf(ctx)
	header := q.Header()
	if in.IfNoneMatch != "" && info.Kind == "file" && httppart.Matches(in.IfNoneMatch, info.ETag()) {
		header.Set("ETag", info.ETag())
		return s.empty(ctx, http.StatusNotModified), nil
	}
	want, err := wanted(in, info, header)
	if err != nil {
		return nil, err
	}
	if info.Kind == "file" { // a link has neither the size nor the time of its target
		header.Set("ETag", info.ETag())
	}
	header.Set("Last-Modified", info.ModTime.UTC().Format(http.TimeFormat))
	if want.N >= 0 {
		header.Set("Accept-Ranges", "bytes")
		header.Set("Content-Length", strconv.FormatInt(want.N, 10))
	}
	if q.r.Method == http.MethodHead {
		header.Set("Content-Type", s.calls.Read.Answer.Type)
		return s.empty(ctx, httppart.Status(header)), nil
	}
	return s.raw(ctx, s.calls.Read.Answer.Type, func(ctx context.Context, w *rawWriter) error {
		exact := &exactWriter{w: w, left: want.N}
		err := s.reads.Read(ctx, in.Ref(), in.Path, want.Off, want.N, exact)
		if err == nil && exact.left > 0 {
			err = holt.Errorf(holt.Conflict, "%s was truncated while it was read", clip(in.Path))
		}
		return err
	}), nil
}

// wanted returns the part of a file that a call asks for, and sets Content-Range if that is not all of it. n is negative if the
// size is not known: the size of a link is not that of its target, and files of /proc have none.
func wanted(in *api.FileRead, info holt.FileInfo, header http.Header) (httppart.Part, error) {
	if info.Kind != "file" || info.Size == 0 {
		return httppart.Part{Off: 0, N: -1}, nil
	}
	if in.IfRange != "" && in.IfRange != info.ETag() {
		return httppart.Part{Off: 0, N: info.Size}, nil
	}
	return ranged(in.Range, info.Size, header)
}

// ranged is [httppart.Of], whose error has the status 416.
func ranged(asked string, size int64, header http.Header) (httppart.Part, error) {
	part, err := httppart.Of(asked, size, header)
	if err != nil {
		err = answer{holt.AsError(err), http.StatusRequestedRangeNotSatisfiable}
	}
	return part, err
}

// exactWriter passes on at most left bytes; below 0: any number.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if e.left >= 0 && int64(len(p)) > e.left {
		return 0, holt.Errorf(holt.Internal, "the file has more bytes than the request asked for")
	}
	n, err := e.w.Write(p)
	if e.left >= 0 {
		e.left -= int64(n)
	}
	return n, err
}
