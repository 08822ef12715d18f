package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"holt"
)

// Files are the files inside computers, or of workspaces.
type Files struct {
	c    *Client
	noun string // computers or workspaces
}

func at(path string) url.Values { return url.Values{"path": {path}} }

// path is where the files of one computer or workspace are, or those of a
// workspace at a checkpoint (see [holt.AtCheckpoint]).
func (n Files) path(of string, rest ...string) string {
	segments := []string{n.noun, of}
	if n.noun == "workspaces" {
		if workspace, checkpoint := holt.CutCheckpoint(of); checkpoint != "" {
			segments = []string{n.noun, workspace, "checkpoints", checkpoint}
		}
	}
	return join(append(append(segments, "files"), rest...)...)
}

// Stat describes a file.
func (n Files) Stat(ctx context.Context, of, path string) (out holt.FileInfo, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: n.path(of, "stat"), query: at(path)}, &out)
	return out, err
}

// List returns a page of the entries of a directory; those of one page are in
// the order of their names.
func (n Files) List(ctx context.Context, of, path string, spec holt.PageSpec) (page holt.Page[holt.FileInfo], err error) {
	query := at(path)
	query.Set("limit", strconv.Itoa(spec.Most()))
	if spec.Cursor != "" {
		query.Set("cursor", spec.Cursor)
	}
	err = n.c.json(ctx, call{method: http.MethodGet, path: n.path(of), query: query}, &page)
	return page, err
}

// Pages goes through a directory page by page: memory is that of one,
// however large the directory is. Nothing comes after an error.
func (n Files) Pages(ctx context.Context, of, path string) iter.Seq2[[]holt.FileInfo, error] {
	return func(yield func([]holt.FileInfo, error) bool) {
		spec := holt.PageSpec{}
		for {
			page, err := n.List(ctx, of, path, spec)
			if err == nil && page.Next == spec.Cursor && page.Next != "" {
				err = holt.Errorf(holt.Corrupt, "the daemon lists a page of %s twice", path)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(page.Items, nil) || page.Next == "" {
				return
			}
			spec.Cursor = page.Next
		}
	}
}

// Read writes n bytes of a file from offset off to w; n < 0: up to the end.
func (n Files) Read(ctx context.Context, of, path string, off, length int64, w io.Writer) error {
	if length == 0 {
		return nil
	}
	k := call{method: http.MethodGet, path: n.path(of, "content"), query: at(path), header: http.Header{}}
	if length > 0 {
		k.header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+length-1))
	} else if off > 0 {
		k.header.Set("Range", fmt.Sprintf("bytes=%d-", off))
	}
	return n.c.copyPart(ctx, k, off, length, w)
}

// Write gives a file the content of r once all of it has arrived. It is never sent twice.
func (n Files) Write(ctx context.Context, of, path string, spec holt.WriteSpec, r io.Reader) (out holt.FileInfo, err error) {
	query := at(path)
	if spec.Mode != 0 {
		query.Set("mode", strconv.FormatUint(uint64(spec.Mode), 8))
	}
	if spec.NewMode != 0 {
		query.Set("new_mode", strconv.FormatUint(uint64(spec.NewMode), 8))
	}
	if spec.User != "" {
		query.Set("user", spec.User)
	}
	if spec.Parents {
		query.Set("parents", "true")
	}
	body := struct{ io.Reader }{r} // a failed attempt closes what it can
	return sent(ctx, n.c, func() (out holt.FileInfo, err error) {
		err = n.c.once(ctx, call{method: http.MethodPut, path: n.path(of, "content"), query: query, raw: body}, &out)
		return out, err
	})
}

// Mkdir makes a directory.
func (n Files) Mkdir(ctx context.Context, of string, spec holt.MkdirSpec, key string) (out holt.FileInfo, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: n.path(of, "mkdir"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Symlink makes a symbolic link; a file or link at its path is replaced.
func (n Files) Symlink(ctx context.Context, of string, spec holt.SymlinkSpec, key string) (out holt.FileInfo, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join(n.noun, of, "files", "symlink"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Remove removes a file or an empty directory; recursive: any directory.
func (n Files) Remove(ctx context.Context, of, path string, recursive bool, key string) error {
	query := at(path)
	if recursive {
		query.Set("recursive", "true")
	}
	return n.c.json(ctx, call{method: http.MethodDelete, path: n.path(of), query: query, keyed: true, key: key}, nil)
}

// Rename moves a file; an existing one at the new path is replaced.
func (n Files) Rename(ctx context.Context, of string, spec holt.RenameSpec, key string) error {
	return n.c.json(ctx, call{method: http.MethodPost, path: n.path(of, "rename"), body: spec, keyed: true, key: key}, nil)
}

// Tar writes all that is in a directory as a tar stream.
func (n Files) Tar(ctx context.Context, of, path string, w io.Writer) error {
	return n.c.copyTo(ctx, call{method: http.MethodGet, path: n.path(of, "tar"), query: at(path)}, w)
}

// Untar puts what a tar stream holds into a directory; user owns it, "": see [holt.WriteSpec]. It is never sent twice.
func (n Files) Untar(ctx context.Context, of, path, user string, r io.Reader) (out holt.TarReport, err error) {
	query := at(path)
	if user != "" {
		query.Set("user", user)
	}
	body := struct{ io.Reader }{r} // a failed attempt closes what it can
	return sent(ctx, n.c, func() (out holt.TarReport, err error) {
		err = n.c.once(ctx, call{method: http.MethodPut, path: n.path(of, "tar"), query: query, raw: body}, &out)
		return out, err
	})
}
