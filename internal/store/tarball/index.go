package tarball

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"holt"
)

// Index says where in a tar stream each file is.
type Index struct {
	Entries []Entry `json:"entries"` // by path
}

// Entry is a file, a directory or a symbolic link of a stream.
type Entry struct {
	Path    holt.OSString `json:"p"` // relative to the top
	Kind    string        `json:"k"` // file, dir or symlink
	Mode    uint32        `json:"m"`
	UID     uint32        `json:"u,omitempty"`
	GID     uint32        `json:"g,omitempty"`
	ModTime int64         `json:"t"`           // seconds since 1970
	Size    int64         `json:"s,omitempty"` // bytes
	Off     int64         `json:"o,omitempty"` // of its content in the stream
	Target  holt.OSString `json:"l,omitempty"`
}

// Bounds of an index.
const (
	mostIndexed      = 100_000
	mostIndexedBytes = 8 << 20  // of paths and targets
	mostIndex        = 16 << 20 // bytes of it as JSON
	linkedFactor     = 4        // files by hard links have at most this many times the bytes of the stream before them,
	mostLinked       = 1 << 30  // and these: a zip archive has them all
)

// Bounds of what is shown as a time: JSON has years of four digits (RFC 3339).
var (
	firstTime = time.Time{}.Unix()
	lastTime  = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).Unix() - 1
)

// Read reads a tar stream up to its end, and returns its index. Devices, sockets and pipes are not in it. Of two entries of one
// path, the later counts.
//
// Errors: InvalidArgument (no tar stream, a name that leads out, a sparse file), TooMany (entries, names, hard links), those of r.
func Read(r io.Reader) (*Index, error) {
	at := &counted{r: r}
	in := tar.NewReader(at)
	found := map[string]Entry{}
	var names, linked int64
	for {
		h, err := in.Next()
		switch {
		case err == io.EOF:
			x := &Index{}
			for _, e := range found {
				x.Entries = append(x.Entries, e)
			}
			slices.SortFunc(x.Entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
			_, err := io.Copy(io.Discard, at) // what pads it
			return x, err
		case at.err != nil: // Next describes it as an error of the stream
			return nil, at.err
		case err != nil:
			return nil, Damaged(err)
		}
		e, known, err := entryOf(h, at.n, found)
		if err != nil {
			return nil, err
		}
		if !known {
			continue
		}
		if names += int64(len(e.Path) + len(e.Target)); len(found) >= mostIndexed || names > mostIndexedBytes {
			return nil, tooLarge()
		}
		if h.Typeflag == tar.TypeLink {
			linked += e.Size
		}
		if linked > linkedFactor*at.n+mostLinked {
			return nil, holt.Errorf(holt.TooMany, "the hard links of the tar stream stand for more than %d times its bytes and %d GiB", linkedFactor, mostLinked>>30).WithHint("store a tar archive of it as a file")
		}
		found[string(e.Path)] = e
	}
}

func tooLarge() error {
	return holt.Errorf(holt.TooMany, "the directory is too large for an index: the maximum is %d entries, %d MiB of names, and %d MiB of index", mostIndexed, mostIndexedBytes>>20, mostIndex>>20).
		WithHint("store a tar or zip archive of it as a file")
}

// Damaged describes an error of a [tar.Reader].
func Damaged(err error) error {
	switch {
	case errors.Is(err, tar.ErrHeader):
		return holt.Errorf(holt.InvalidArgument, "the tar stream is damaged: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return holt.Errorf(holt.InvalidArgument, "the tar stream ends too early")
	case holt.CodeOf(err) != holt.Internal:
		return err
	}
	return holt.Errorf(holt.Unavailable, "the tar stream was interrupted: %w", err)
}

// entryOf is the entry of a header whose content begins at off; known is false for what is not indexed.
func entryOf(h *tar.Header, off int64, found map[string]Entry) (e Entry, known bool, err error) {
	name, err := Name(h.Name)
	if err != nil || name == "." {
		return e, false, err
	}
	e = Entry{Path: holt.OSString(name), Mode: uint32(h.Mode) & 0o7777, UID: uint32(h.Uid), GID: uint32(h.Gid),
		ModTime: min(max(h.ModTime.Unix(), firstTime), lastTime)}
	switch {
	case Sparse(h):
		return e, false, holt.Errorf(holt.InvalidArgument, "%s is a sparse file in the tar stream", holt.Clip(name, 80)).WithHint("make the stream without --sparse")
	case h.Typeflag == tar.TypeDir:
		e.Kind = "dir"
	case h.Typeflag == tar.TypeSymlink:
		e.Kind, e.Target = "symlink", holt.OSString(h.Linkname)
	case h.Typeflag == tar.TypeReg:
		e.Kind, e.Size, e.Off = "file", h.Size, off
	case h.Typeflag == tar.TypeLink: // has the bytes of an earlier entry
		target, err := Name(h.Linkname)
		if err != nil {
			return e, false, err
		}
		first, ok := found[target]
		if !ok || first.Kind != "file" {
			return e, false, nil
		}
		e.Kind, e.Size, e.Off = "file", first.Size, first.Off
	default:
		return e, false, nil
	}
	return e, true, nil
}

// counted counts what is read, and keeps the error.
type counted struct {
	r   io.Reader
	n   int64
	err error // but io.EOF
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += int64(n); err != io.EOF {
		c.err = err
	}
	return n, err
}

// Encode returns the index as JSON.
//
// Errors: TooMany (bytes).
func (x *Index) Encode() ([]byte, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	err := to.Encode(x)
	if err == nil && b.Len() > mostIndex {
		err = tooLarge()
	}
	return b.Bytes(), err
}

// Decode is the inverse of Encode.
func Decode(b []byte) (*Index, error) {
	var x Index
	return &x, json.Unmarshal(b, &x)
}

// Find returns the entry of a path; "." is the top. A directory need not have an entry of its own. A symbolic link is not followed.
//
// Errors: NotFound.
func (x *Index) Find(name string) (Entry, error) {
	if name = path.Clean(strings.TrimLeft(name, "/")); name == "." {
		return Entry{Path: ".", Kind: "dir", Mode: 0o755}, nil
	}
	i, ok := slices.BinarySearchFunc(x.Entries, name, func(e Entry, name string) int { return cmp.Compare(string(e.Path), name) })
	if ok {
		return x.Entries[i], nil
	}
	// Sorted by bytes, what is below it follows names such as "a-b" and "a.b".
	below := name + "/"
	if i, _ = slices.BinarySearchFunc(x.Entries, below, func(e Entry, name string) int { return cmp.Compare(string(e.Path), name) }); i < len(x.Entries) && strings.HasPrefix(string(x.Entries[i].Path), below) {
		return Entry{Path: holt.OSString(name), Kind: "dir", Mode: 0o755}, nil
	}
	return Entry{}, holt.Errorf(holt.NotFound, "there is no %s in the artifact", holt.Clip(name, 80)).WithHint("list its directory to see what exists")
}

// List returns the entries of a directory by name.
func (x *Index) List(dir string) []Entry {
	below := ""
	if dir = path.Clean(strings.TrimLeft(dir, "/")); dir != "." {
		below = dir + "/"
	}
	i, _ := slices.BinarySearchFunc(x.Entries, below, func(e Entry, name string) int { return cmp.Compare(string(e.Path), name) })
	found := map[string]Entry{}
	for ; i < len(x.Entries) && strings.HasPrefix(string(x.Entries[i].Path), below); i++ {
		e := x.Entries[i]
		name, _, deeper := strings.Cut(string(e.Path)[len(below):], "/")
		if _, ok := found[name]; ok && deeper {
			continue
		}
		if deeper {
			e = Entry{Path: holt.OSString(below + name), Kind: "dir", Mode: 0o755, ModTime: e.ModTime}
		}
		found[name] = e
	}
	out := make([]Entry, 0, len(found))
	for _, e := range found {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

// Info is the entry as files are shown.
func (e Entry) Info() holt.FileInfo {
	return holt.FileInfo{Path: e.Path, Name: holt.OSString(path.Base(string(e.Path))), Kind: e.Kind, Size: e.Size, Mode: e.Mode, UID: e.UID, GID: e.GID,
		ModTime: time.Unix(e.ModTime, 0).UTC(), Target: e.Target}
}
