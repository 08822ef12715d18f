package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"holt"
)

// FileOwner is the computer or the workspace in a path: the same routes exist
// for the files of both. It gives the call itself too, since huma asks only one
// embedded type to resolve.
type FileOwner struct {
	ref, checkpoint string
	r               *http.Request
}

// Resolve is huma's hook for it.
func (o *FileOwner) Resolve(ctx huma.Context) []error {
	if o.ref = ctx.Param("computer"); o.ref == "" {
		o.ref, o.checkpoint = ctx.Param("workspace"), ctx.Param("checkpoint")
	}
	o.r, _ = humago.Unwrap(ctx)
	return nil
}

// OneFile names a file.
type OneFile struct {
	FileOwner
	Path string `query:"path" required:"true" maxLength:"4096" doc:"absolute, inside the computer or from the workspace's top"`
}

// parse checks both parts at the door and returns them.
func (f OneFile) parse() (ref, file string, err error) { return f.parsePath(f.Path) }

func (o FileOwner) parsePath(path string) (ref, file string, err error) {
	if ref, err = parseRef(o.ref); err != nil {
		return "", "", err
	}
	if o.checkpoint != "" {
		ref = holt.AtCheckpoint(ref, o.checkpoint)
	}
	file, err = parsePath(path)
	return ref, file, err
}

// fileRoutes are the routes of one noun's files.
type fileRoutes struct {
	*Server
	nouns Files
	at    string // the path they are under
	owner []*huma.Param
	noun  string // put before File in operation ids
}

// describe says what an operation is called.
func (s fileRoutes) describe(method, path, verb, noun, summary string) huma.Operation {
	op := describe(method, s.at+path, verb+s.noun+noun, "files", summary)
	op.Parameters = s.owner
	return op
}

// parsePath returns a clean absolute path.
func parsePath(p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", holt.Errorf(holt.InvalidArgument, "%q is not an absolute path", clip(p)).WithHint("begin it with /")
	case strings.ContainsRune(p, 0):
		return "", holt.Errorf(holt.InvalidArgument, "a path cannot hold a NUL byte").WithHint("no name on Linux holds one")
	case len(p) > 4096:
		return "", holt.Errorf(holt.InvalidArgument, "a path of %d bytes is too long", len(p)).WithHint("Linux takes at most 4096 bytes")
	}
	return path.Clean(p), nil
}

func (s *Server) files(api huma.API) {
	named := func(noun, doc string) *huma.Param {
		return &huma.Param{Name: noun, In: "path", Required: true, Description: doc, Schema: &huma.Schema{Type: "string"}}
	}
	computer, workspace := named("computer", "name or id"), named("workspace", "name or id")
	for _, r := range []fileRoutes{
		{s, s.opt.Nouns.Files, "/v1/computers/{computer}/files", []*huma.Param{computer}, ""},
		{s, s.opt.Nouns.WorkspaceFiles, "/v1/workspaces/{workspace}/files", []*huma.Param{workspace}, "Workspace"},
	} {
		r.names(api)
		r.removeFile(api)
		r.makeFiles(api)
		r.readFile(api)
		r.writeFile(api)
		r.tar(api, true)
	}
	past := fileRoutes{s, s.opt.Nouns.WorkspaceFiles, "/v1/workspaces/{workspace}/checkpoints/{checkpoint}/files",
		[]*huma.Param{workspace, named("checkpoint", "name, or # and its number")}, "Checkpoint"}
	past.names(api)
	past.readFile(api)
	past.tar(api, false)
}

func (s fileRoutes) names(api huma.API) {
	nouns := s.nouns
	op := s.describe(http.MethodGet, "", "list", "Files", "List a directory")
	op.Description = `The entries of one page come in the order of their names. Pages of a workspace, or of one in a stopped computer, follow in that
order too; those of a running computer follow as its directory has them. What is there all the while is seen once, whatever changes beside it. A cursor
counts for the directory it was given out for; 409 if the computer was stopped or started since.`
	register(api, op,
		func(ctx context.Context, in *struct {
			OneFile
			Paging
		}) (*reply[holt.Page[holt.FileInfo]], error) {
			ref, dir, err := in.parse()
			if err != nil {
				return nil, err
			}
			page, err := nouns.List(ctx, ref, dir, holt.PageSpec{Limit: in.Limit, Cursor: in.Cursor})
			return &reply[holt.Page[holt.FileInfo]]{page}, err
		})

	register(api, s.describe(http.MethodGet, "/stat", "stat", "File", "Describe a file"),
		func(ctx context.Context, in *OneFile) (*fileReply, error) {
			ref, file, err := in.parse()
			if err != nil {
				return nil, err
			}
			info, err := nouns.Stat(ctx, ref, file)
			return &fileReply{info.ETag(), info}, err
		})
}

func (s fileRoutes) removeFile(api huma.API) {
	nouns := s.nouns
	register(api, s.describe(http.MethodDelete, "", "remove", "File", "Remove a file or a directory"),
		func(ctx context.Context, in *struct {
			OneFile
			Keyed
			Recursive bool `query:"recursive" doc:"also a directory with everything in it"`
		}) (*noContent, error) {
			ref, file, err := in.parse()
			if err != nil {
				return nil, err
			}
			return &noContent{}, nouns.Remove(ctx, ref, file, in.Recursive, in.Key)
		})
}

func (s fileRoutes) makeFiles(api huma.API) {
	nouns := s.nouns
	op := s.describe(http.MethodPost, "/mkdir", "make", "Directory", "Make a directory")
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		FileOwner
		Keyed
		Body holt.MkdirSpec
	}) (*reply[holt.FileInfo], error) {
		ref, dir, err := in.parsePath(string(in.Body.Path))
		if err != nil {
			return nil, err
		}
		in.Body.Path = holt.OSString(dir)
		info, err := nouns.Mkdir(ctx, ref, in.Body, in.Key)
		return &reply[holt.FileInfo]{info}, err
	})

	op = s.describe(http.MethodPost, "/symlink", "link", "File", "Make a symbolic link; an existing file or link is replaced")
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		FileOwner
		Keyed
		Body holt.SymlinkSpec
	}) (*reply[holt.FileInfo], error) {
		ref, file, err := in.parsePath(string(in.Body.Path))
		if err != nil {
			return nil, err
		}
		if strings.ContainsRune(string(in.Body.Target), 0) {
			return nil, holt.Errorf(holt.InvalidArgument, "a link cannot hold a NUL byte")
		}
		in.Body.Path = holt.OSString(file)
		info, err := nouns.Symlink(ctx, ref, in.Body, in.Key)
		return &reply[holt.FileInfo]{info}, err
	})

	op = s.describe(http.MethodPost, "/rename", "rename", "File", "Move a file; an existing one at the new path is replaced")
	register(api, op, func(ctx context.Context, in *struct {
		FileOwner
		Keyed
		Body holt.RenameSpec
	}) (*noContent, error) {
		ref, from, err := in.parsePath(string(in.Body.From))
		if err != nil {
			return nil, err
		}
		to, err := parsePath(string(in.Body.To))
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Rename(ctx, ref, holt.RenameSpec{From: holt.OSString(from), To: holt.OSString(to)}, in.Key)
	})
}

func (s fileRoutes) writeFile(api huma.API) {
	op := s.describe(http.MethodPut, "/content", "write", "File", "Replace the content of a file")
	op.Description = "The body is the new content. It is written once all of it has arrived; a call that is cut off changes nothing. " +
		"A new file appears whole. An existing file is overwritten: it keeps its inode, owner, group, mode, extended attributes and hard links, and a program that reads it at that moment may see a part of both contents. Long runs of zeros become holes. " +
		"If-Match with the ETag that it had when it was read makes concurrent edits safe: of several callers who replace what they have all read one does, and the others get 412, code conflict."
	op.RequestBody = rawBody("the file's bytes")
	register(api, op, func(ctx context.Context, in *struct {
		OneFile
		Preconditions
		Mode    string `query:"mode" pattern:"^[0-7]{1,4}$" doc:"permission bits, octal; default: an existing file keeps its own, a new one gets new_mode"`
		NewMode string `query:"new_mode" pattern:"^[0-7]{1,4}$" doc:"permission bits of the source file, octal: a new file gets them less 022; default: 0644"`
		User    string `query:"user" maxLength:"32" doc:"Linux user who will own it; default: an existing file keeps its owner, a new one gets the owner of its directory, or agent where everybody may make files, as in /tmp"`
		Parents bool   `query:"parents" doc:"create missing directories above it"`
	}) (*fileReply, error) {
		ref, file, err := in.parse()
		if err != nil {
			return nil, err
		}
		spec := holt.WriteSpec{User: in.User, Parents: in.Parents}
		if spec.Mode, err = octal(in.Mode); err != nil {
			return nil, err
		}
		if spec.NewMode, err = octal(in.NewMode); err != nil {
			return nil, err
		}
		var info holt.FileInfo
		if in.IfMatch == "" && in.IfNoneMatch == "" {
			info, err = s.nouns.Write(ctx, ref, file, spec, in.r.Body)
		} else {
			info, err = s.writeIf(ctx, ref, file, spec, in.Preconditions, in.r.Body)
		}
		return &fileReply{info.ETag(), info}, err
	})
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

func (s fileRoutes) readFile(api huma.API) {
	op := s.describe(http.MethodGet, "/content", "read", "File", "Read a file, or a range of it")
	op.Description = "Takes one byte range (RFC 9110); several, and one of what is reached by a symbolic link at the path's end or has no size (as in /proc), are answered with the whole file. The ETag changes with the file's size and modification time; If-None-Match with it is answered with 304 while the file is that. " +
		"HEAD answers with the headers alone."
	op.Responses = rawResponse("application/octet-stream", "the file's bytes")
	op.Responses["206"] = &huma.Response{Description: "the range's bytes"}
	op.Responses["304"] = &huma.Response{Description: "it has the ETag that was given"}
	register(api, op, func(ctx context.Context, in *struct {
		OneFile
		Range       string `header:"Range" maxLength:"128" doc:"bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH"`
		IfRange     string `header:"If-Range" maxLength:"128" doc:"an ETag: the range counts only while the file is that"`
		IfNoneMatch string `header:"If-None-Match" maxLength:"1024" doc:"ETags of what the caller has"`
	}) (*huma.StreamResponse, error) {
		ref, file, err := in.parse()
		if err != nil {
			return nil, err
		}
		info, err := s.nouns.Stat(ctx, ref, file)
		if err != nil {
			return nil, err
		}
		header := requestOf(ctx).Header()
		etag := info.ETag()
		if info.Kind == "dir" {
			return nil, holt.Errorf(holt.InvalidArgument, "%s is a directory", clip(file)).WithHint("…/files lists it, …/files/tar sends all of it")
		}
		if in.IfNoneMatch != "" && info.Kind == "file" && matches(in.IfNoneMatch, etag) {
			header.Set("ETag", etag)
			return s.empty(ctx, http.StatusNotModified), nil
		}
		sized := info.Kind == "file" && info.Size > 0 // the size of a link is not that of where it leads, and files of /proc have none
		want := span{0, -1}
		if sized {
			want.n = info.Size
		}
		if in.Range != "" && (in.IfRange == "" || in.IfRange == etag) && sized {
			part, ok, err := parseRange(in.Range, info.Size)
			if err != nil {
				header.Set("Content-Range", fmt.Sprintf("bytes */%d", info.Size))
				return nil, answer{holt.Errorf(holt.InvalidArgument, "%w", err), http.StatusRequestedRangeNotSatisfiable}
			}
			if ok {
				want = part
				header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.off, part.off+part.n-1, info.Size))
			}
		}
		if info.Kind == "file" { // where a link leads shows neither in its size nor in its time
			header.Set("ETag", etag)
		}
		header.Set("Last-Modified", info.ModTime.UTC().Format(http.TimeFormat))
		if sized {
			header.Set("Accept-Ranges", "bytes")
			header.Set("Content-Length", strconv.FormatInt(want.n, 10))
		}
		if in.r.Method == http.MethodHead {
			header.Set("Content-Type", "application/octet-stream")
			status := http.StatusOK
			if header.Get("Content-Range") != "" {
				status = http.StatusPartialContent
			}
			return s.empty(ctx, status), nil
		}
		return s.raw(ctx, "application/octet-stream", func(ctx context.Context, w *rawWriter) error {
			exact := &exactWriter{w: w, left: want.n}
			err := s.nouns.Read(ctx, ref, file, want.off, want.n, exact)
			if err == nil && exact.left > 0 {
				err = holt.Errorf(holt.Conflict, "%s became shorter while it was read", clip(file))
			}
			return err
		}), nil
	})
}

// exactWriter passes on at most left bytes; below 0: any number.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if e.left >= 0 && int64(len(p)) > e.left {
		return 0, holt.Errorf(holt.Internal, "more bytes than were asked for")
	}
	n, err := e.w.Write(p)
	if e.left >= 0 {
		e.left -= int64(n)
	}
	return n, err
}

// span is a part of a file: n bytes from off on.
type span struct{ off, n int64 }

// parseRange parses the Range header of RFC 9110, section 14.2, for a file of
// the given size > 0. Not ok: a unit or a list of ranges that is better
// answered with the whole. An error: no byte of it exists.
func parseRange(s string, size int64) (part span, ok bool, err error) {
	set, found := strings.CutPrefix(s, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(set), "-")
	if !found || !dash || strings.Contains(set, ",") {
		return span{}, false, nil
	}
	from, errFrom := strconv.ParseUint(first, 10, 63)
	to, errTo := strconv.ParseUint(last, 10, 63)
	switch {
	case first == "" && errTo == nil: // the last so many bytes
		if to == 0 {
			return span{}, false, fmt.Errorf("the range %s holds no byte", s)
		}
		n := min(int64(to), size)
		return span{size - n, n}, true, nil
	case errFrom != nil || (last != "" && (errTo != nil || to < from)):
		return span{}, false, nil
	case int64(from) >= size:
		return span{}, false, fmt.Errorf("the range %s lies behind the end of %d bytes", s, size)
	case last == "":
		return span{int64(from), size - int64(from)}, true, nil
	}
	return span{int64(from), min(int64(to)+1, size) - int64(from)}, true, nil
}
