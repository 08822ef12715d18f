package tarball

import (
	"archive/zip"
	"io"
	"io/fs"
	"time"
)

// Zip writes what an index has as a zip archive. read writes n bytes of the tar stream from an offset on.
func (x *Index) Zip(w io.Writer, read func(off, n int64, w io.Writer) error) error {
	out := zip.NewWriter(w)
	for _, e := range x.Entries {
		h := &zip.FileHeader{Name: string(e.Path), Modified: time.Unix(e.ModTime, 0), Method: zip.Deflate}
		mode := fs.FileMode(e.Mode & 0o777)
		switch e.Kind {
		case "dir":
			h.Name, h.Method = h.Name+"/", zip.Store
			mode |= fs.ModeDir
		case "symlink":
			mode |= fs.ModeSymlink
		}
		h.SetMode(mode)
		f, err := out.CreateHeader(h)
		if err == nil && e.Kind == "symlink" {
			_, err = io.WriteString(f, string(e.Target))
		} else if err == nil && e.Kind == "file" {
			err = read(e.Off, e.Size, f)
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}
