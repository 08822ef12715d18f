package artifact

import (
	"bytes"
	"context"
	"io"
	"path"

	"holt"
	"holt/internal/store/tarball"
)

// A directory is one artifact: a tar stream. While it is stored it is read through once more, for an index of its files
// ([tarball.Index]), which is the part "index" of the artifact's space. That of a small one is made when it is needed.

const indexPart = "index"

// indexed has read write the tar stream of a directory, and returns its index.
func indexed(w io.Writer, read func(io.Writer) error) (*tarball.Index, error) {
	r, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := read(in)
		in.CloseWithError(err)
		done <- err
	}()
	x, err := tarball.Read(io.TeeReader(r, w))
	r.CloseWithError(err)
	if failed := <-done; err == nil {
		err = failed
	}
	return x, err
}

// keepIndex stores the index of a directory, unless its bytes are in its row, and returns its size.
func (s *Store) keepIndex(ctx context.Context, a row, x *tarball.Index, inline bool) (n int64, err error) {
	b, err := x.Encode()
	if err != nil || inline {
		return int64(len(b)), err
	}
	w := s.cfg.Archive.Create(string(a.ID), indexPart)
	defer w.Abort()
	if err := w.Append(ctx, 0, b); err != nil {
		return 0, err
	}
	_, err = w.Commit(ctx)
	return int64(len(b)), err
}

// index returns where the files of a directory are.
//
// Errors: NotFound (the artifact), InvalidArgument (it is a file).
func (s *Store) index(ctx context.Context, ref string) (row, *tarball.Index, error) {
	a, err := s.find(ctx, ref)
	if err == nil && !a.Tree {
		err = holt.Errorf(holt.InvalidArgument, "the artifact %s/%s is a file, not a directory", a.Bucket, a.Name).WithHint("read it: holt artifact get %s", a.ID)
	}
	if err != nil {
		return a, nil, err
	}
	if a.inline {
		var content bytes.Buffer
		if err := s.readRow(ctx, a, 0, a.Size, &content); err != nil {
			return a, nil, err
		}
		x, err := tarball.Read(&content)
		return a, x, err
	}
	b := make([]byte, a.indexSize)
	if err := s.cfg.Archive.ReadAt(ctx, string(a.ID), indexPart, b, 0); err != nil {
		return a, nil, err
	}
	x, err := tarball.Decode(b)
	return a, x, err
}

// Zip writes a directory as a zip archive.
//
// Errors: those of index and w.
func (s *Store) Zip(ctx context.Context, ref string, w io.Writer) error {
	a, x, err := s.index(ctx, ref)
	if err != nil {
		return err
	}
	return x.Zip(w, func(off, n int64, w io.Writer) error { return s.Read(ctx, string(a.ID), off, n, w) })
}

// Files are the files of artifacts that are directories. Paths are absolute; / is the directory.
type Files struct{ s *Store }

// Files returns them.
func (s *Store) Files() Files { return Files{s} }

func shownAt(e tarball.Entry) holt.FileInfo {
	info := e.Info()
	if info.Path = holt.OSString(path.Join("/", string(info.Path))); info.Path == "/" {
		info.Name = ""
	}
	return info
}

// Stat describes a file.
func (f Files) Stat(ctx context.Context, ref, file string) (holt.FileInfo, error) {
	_, x, err := f.s.index(ctx, ref)
	if err != nil {
		return holt.FileInfo{}, err
	}
	e, err := x.Find(file)
	return shownAt(e), err
}

// List returns a page of the entries of a directory, by name.
func (f Files) List(ctx context.Context, ref, dir string, spec holt.PageSpec) (page holt.Page[holt.FileInfo], err error) {
	_, x, err := f.s.index(ctx, ref)
	if err != nil {
		return page, err
	}
	e, err := x.Find(dir)
	if err == nil && e.Kind != "dir" {
		err = holt.Errorf(holt.InvalidArgument, "%s is a %s, not a directory", holt.Clip(dir, 80), e.Kind)
	}
	if err != nil {
		return page, err
	}
	page.Items = []holt.FileInfo{}
	for _, e := range x.List(dir) {
		info := shownAt(e)
		if spec.Cursor != "" && string(info.Name) <= spec.Cursor {
			continue
		}
		if len(page.Items) == spec.Most() {
			page.Next = string(page.Items[len(page.Items)-1].Name)
			break
		}
		page.Items = append(page.Items, info)
	}
	return page, nil
}

// Read writes n bytes of a file from offset off to w; n < 0: up to its end. Symbolic links are followed.
func (f Files) Read(ctx context.Context, ref, file string, off, n int64, w io.Writer) error {
	a, x, err := f.s.index(ctx, ref)
	if err != nil {
		return err
	}
	at, _, err := holt.Follow(path.Join("/", file), func(file string) (holt.FileInfo, error) {
		e, err := x.Find(file)
		return shownAt(e), err
	})
	if err != nil {
		return err
	}
	e, err := x.Find(at)
	switch {
	case err != nil:
		return err
	case e.Kind != "file":
		return holt.Errorf(holt.InvalidArgument, "%s is a %s, not a file", holt.Clip(file, 80), e.Kind)
	case off < 0 || off > e.Size:
		return holt.Errorf(holt.InvalidArgument, "invalid offset %d: the file has %s", off, holt.CountOf(int(e.Size), "byte"))
	}
	if n < 0 || n > e.Size-off {
		n = e.Size - off
	}
	if n == 0 {
		return nil
	}
	return f.s.Read(ctx, string(a.ID), e.Off+off, n, w)
}
