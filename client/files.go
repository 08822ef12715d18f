package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strconv"

	"holt"
	"holt/internal/api"
)

// Files reads and changes files of computers and workspaces, and reads files of artifacts that are directories.
type Files struct {
	c          *Client
	workspaces bool
	artifacts  bool
}

// of returns the calls about the files of a computer, a workspace, or a workspace at a checkpoint (see [holt.AtCheckpoint]).
func (n Files) of(ref string) (api.FileCalls, api.FileOwner) {
	if n.artifacts {
		return api.ArtifactFiles, api.FileOwner{Artifact: ref}
	}
	if !n.workspaces {
		return api.ComputerFiles, api.FileOwner{Computer: ref}
	}
	if workspace, checkpoint := holt.CutCheckpoint(ref); checkpoint != "" {
		return api.CheckpointFiles, api.FileOwner{Workspace: workspace, Checkpoint: checkpoint}
	}
	return api.WorkspaceFiles, api.FileOwner{Workspace: ref}
}

// writable is [Files.of] for calls that change something, which a checkpoint does not have.
func (n Files) writable(ref string) (api.FileCalls, api.FileOwner) {
	if n.workspaces {
		return api.WorkspaceFiles, api.FileOwner{Workspace: ref}
	}
	return n.of(ref)
}

// Stat describes a file.
func (n Files) Stat(ctx context.Context, of, path string) (holt.FileInfo, error) {
	calls, owner := n.of(of)
	return do(ctx, n.c, calls.Stat, api.OneFile{owner, path})
}

// List returns a page of the entries of a directory; those of one page are in
// the order of their names.
func (n Files) List(ctx context.Context, of, path string, spec holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	calls, owner := n.of(of)
	return do(ctx, n.c, calls.List, api.FilesOf{api.OneFile{owner, path}, api.Paging{spec.Most(), spec.Cursor}})
}

// Pages goes through a directory page by page: memory is that of one,
// however large the directory is. Nothing comes after an error.
func (n Files) Pages(ctx context.Context, of, path string) iter.Seq2[[]holt.FileInfo, error] {
	return func(yield func([]holt.FileInfo, error) bool) {
		spec := holt.PageSpec{}
		for {
			page, err := n.List(ctx, of, path, spec)
			if err == nil && page.Next == spec.Cursor && page.Next != "" {
				err = holt.Errorf(holt.Corrupt, "the daemon listed a page of %s twice", path)
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
	calls, owner := n.of(of)
	in := api.FileRead{OneFile: api.OneFile{owner, path}}
	if length > 0 {
		in.Range = fmt.Sprintf("bytes=%d-%d", off, off+length-1)
	} else if off > 0 {
		in.Range = fmt.Sprintf("bytes=%d-", off)
	}
	return n.c.copyPart(ctx, callOf(calls.Read, in), off, length, w)
}

// Write gives a file the content of r once all of it has arrived. It is never sent twice.
func (n Files) Write(ctx context.Context, of, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	calls, owner := n.writable(of)
	return send(ctx, n.c, calls.Write, api.FileWrite{OneFile: api.OneFile{owner, path}, Mode: octal(spec.Mode), NewMode: octal(spec.NewMode), User: spec.User, Parents: spec.Parents}, r)
}

// octal is permission bits as text; "": none.
func octal(mode uint32) string {
	if mode == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(mode), 8)
}

// send makes a call whose body is r, once.
func send[In, Out any](ctx context.Context, c *Client, e api.Call[In, Out], in In, r io.Reader) (Out, error) {
	return sendSized(ctx, c, e, in, r, 0)
}

// sendSized is send of a number of bytes; 0: unknown.
func sendSized[In, Out any](ctx context.Context, c *Client, e api.Call[In, Out], in In, r io.Reader, size int64) (Out, error) {
	k := callOf(e, in)
	k.raw, k.size = struct{ io.Reader }{r}, size // a failed attempt closes what it can
	return sent(ctx, c, func() (out Out, err error) {
		err = c.once(ctx, k, &out)
		return out, err
	})
}

// Mkdir makes a directory.
func (n Files) Mkdir(ctx context.Context, of string, spec holt.MkdirSpec, key string) (holt.FileInfo, error) {
	calls, owner := n.writable(of)
	return do(ctx, n.c, calls.Mkdir, api.MakeDir{owner, api.Keyed{key}, spec})
}

// Symlink makes a symbolic link; a file or link at its path is replaced.
func (n Files) Symlink(ctx context.Context, of string, spec holt.SymlinkSpec, key string) (holt.FileInfo, error) {
	calls, owner := n.writable(of)
	return do(ctx, n.c, calls.Symlink, api.MakeLink{owner, api.Keyed{key}, spec})
}

// Remove removes a file or an empty directory; recursive: any directory.
func (n Files) Remove(ctx context.Context, of, path string, recursive bool, key string) error {
	calls, owner := n.writable(of)
	return doNone(ctx, n.c, calls.Remove, api.FileRemoval{api.OneFile{owner, path}, api.Keyed{key}, recursive})
}

// Rename moves a file; an existing one at the new path is replaced.
func (n Files) Rename(ctx context.Context, of string, spec holt.RenameSpec, key string) error {
	calls, owner := n.writable(of)
	return doNone(ctx, n.c, calls.Rename, api.FileRename{owner, api.Keyed{key}, spec})
}

// Tar writes all that is in a directory as a tar stream.
func (n Files) Tar(ctx context.Context, of, path string, w io.Writer) error {
	calls, owner := n.of(of)
	return n.c.copyTo(ctx, callOf(calls.Tar, api.OneFile{owner, path}), w)
}

// Untar puts what a tar stream holds into a directory; user owns it, "": see [holt.WriteSpec]. It is never sent twice.
func (n Files) Untar(ctx context.Context, of, path, user string, r io.Reader) (holt.TarReport, error) {
	calls, owner := n.writable(of)
	return send(ctx, n.c, calls.Untar, api.FileUntar{api.OneFile{owner, path}, user}, r)
}
