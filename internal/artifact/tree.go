package artifact

import (
	"bytes"
	"context"
	"io"
	"path"
	"slices"
	"sync"

	"holt"
	"holt/internal/store/tarball"
)

// A directory is one artifact: a tar stream. While it is stored it is read through once more, for an index of its files
// ([tarball.Index]), which is the part "index" of the artifact's space. That of a small one is made when it is needed.

const indexPart = "index"

// indexes is the indexes that were decoded last. They never change.
type indexes struct {
	decoding chan struct{} // has an element for each that is being decoded
	mu       sync.Mutex
	last     []decoded // the latest is the last
}

type decoded struct {
	id holt.ArtifactID
	x  *tarball.Index
}

// Bounds of memory for indexes.
const (
	mostIndexes  = 4 // that are kept
	mostDecoding = 2 // at once
)

// of returns the index of an artifact; nil if it is not kept.
func (k *indexes) of(id holt.ArtifactID) *tarball.Index {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.last {
		if d.id == id {
			return d.x
		}
	}
	return nil
}

func (k *indexes) keep(d decoded) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = append(slices.DeleteFunc(k.last, func(was decoded) bool { return was.id == d.id }), d)
	if len(k.last) > mostIndexes {
		k.last = slices.Delete(k.last, 0, 1)
	}
}

// indexed has read write the tar stream of a directory, and returns its index.
func indexed(w io.Writer, read func(io.Writer) error) (*tarball.Index, error) {
	r, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := read(in)
		in.CloseWithError(err)
		done <- err
	}()
	x, err := tarball.Read(io.TeeReader(r, w)) // its error is that of read or w, if they have one
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
	if x := s.indexes.of(a.ID); x != nil {
		return a, x, nil
	}
	select {
	case s.indexes.decoding <- struct{}{}:
		defer func() { <-s.indexes.decoding }()
	case <-ctx.Done():
		return a, nil, context.Cause(ctx)
	}
	if x := s.indexes.of(a.ID); x != nil { // decoded meanwhile
		return a, x, nil
	}
	b := make([]byte, a.indexSize)
	if err := s.cfg.Archive.ReadAt(ctx, string(a.ID), indexPart, b, 0); err != nil {
		return a, nil, err
	}
	x, err := tarball.Decode(b)
	if err == nil {
		s.indexes.keep(decoded{a.ID, x})
	}
	return a, x, err
}

// readStored writes n bytes of a directory's stream from offset off to w.
func (s *Store) readStored(ctx context.Context, a row, off, n int64, w io.Writer) error {
	if a.inline {
		return s.readRow(ctx, a, off, n, w)
	}
	for n > 0 {
		m := min(n, mostPart-off%mostPart)
		if err := s.readPart(ctx, a.ID, partOf(off/mostPart), off%mostPart, m, w); err != nil {
			return err
		}
		off, n = off+m, n-m
	}
	return nil
}

// Zip writes a directory as a zip archive.
//
// Errors: those of index and w.
func (s *Store) Zip(ctx context.Context, ref string, w io.Writer) error {
	a, x, err := s.index(ctx, ref)
	if err != nil {
		return err
	}
	return x.Zip(w, func(off, n int64, w io.Writer) error { return s.readStored(ctx, a, off, n, w) })
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
	after := holt.ParseOSString(spec.Cursor)
	for _, e := range x.List(dir) {
		info := shownAt(e)
		if info.Name <= after {
			continue
		}
		if len(page.Items) == spec.Most() {
			page.Next = page.Items[len(page.Items)-1].Name.Text()
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
	var e tarball.Entry
	_, _, err = holt.Follow(path.Join("/", file), func(file string) (holt.FileInfo, error) {
		var err error
		e, err = x.Find(file)
		return shownAt(e), err
	})
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
	return f.s.readStored(ctx, a, e.Off+off, n, w)
}
