package cli

import (
	"archive/tar"
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
	"holt/internal/store/tarball"
)

func (a *app) artifactFiles() *cobra.Command {
	long := false
	cmd := &cobra.Command{
		Use: "files ARTIFACT [PATH]", Short: "List the files of an artifact that is a directory", Args: atLeast(1, 2),
		Example: `  holt artifact files artifacts/site
  holt artifact files artifacts/site assets -l`,
		ValidArgsFunction: a.complete(artifactNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			dir := "/"
			if len(args) > 1 {
				dir = path.Join("/", args[1])
			}
			return a.listFiles(c.ArtifactFiles.Pages(cmd.Context(), args[0], dir), long)
		},
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "show mode, owner, size and time")
	a.jsonFlag(cmd)
	return cmd
}

// getFile writes one file of an artifact that is a directory.
func (a *app) getFile(ctx context.Context, c *client.Client, art holt.Artifact, file, to string) error {
	k := copier{a: a, files: c.ArtifactFiles, noun: inComputers, recursive: true, bar: a.begin("copying")}
	defer k.bar.end()
	return k.get(ctx, end{owner: string(art.ID), path: path.Join("/", file)}, to)
}

// getDirectory writes what is in an artifact that is a directory into a new directory, which appears whole.
func (a *app) getDirectory(ctx context.Context, c *client.Client, art holt.Artifact, to string) error {
	to = filepath.Clean(to)
	if _, err := os.Lstat(to); err == nil {
		return here(syscall.EEXIST, to)
	}
	beside, err := os.MkdirTemp(filepath.Dir(to), ".holt-cp-*")
	if err != nil {
		return here(err, to)
	}
	defer os.RemoveAll(beside)
	dir := filepath.Join(beside, "dir") // has the mode that the umask gives
	if err := os.Mkdir(dir, 0o755); err != nil {
		return here(err, to)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(readCompared(ctx, c, &art, w)) }()
	defer r.Close()
	files, err := unpack(r, dir)
	if err == nil {
		_, err = io.Copy(io.Discard, r) // what pads it; then its SHA-256 is compared
	}
	if err == nil {
		err = here(os.Rename(dir, to), to)
	}
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.Out, art)
	}
	a.say("%s, %s, %s", visible(to), holt.CountOf(files, "file"), size(art.Size))
	return nil
}

// unpack writes a tar stream into a directory. Nothing is written outside of it, whatever names and links the stream has. Of two
// entries of one path, the later counts.
func unpack(r io.Reader, dir string) (files int, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return files, tarball.Damaged(err)
		}
		name, err := tarball.Name(h.Name)
		if err != nil {
			return files, err
		}
		switch h.Typeflag {
		case tar.TypeReg:
			files++
		case tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		default:
			continue
		}
		if err := unpackEntry(root, name, h, in); err != nil {
			return files, here(err, name)
		}
	}
}

func unpackEntry(root *os.Root, name string, h *tar.Header, in io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if there, err := root.Lstat(name); err == nil && !there.IsDir() { // of an earlier entry
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	mode := fs.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(h.Linkname, name)
	}
	if err := unpackFile(root, name, mode, in); err != nil {
		return err
	}
	return root.Chtimes(name, h.ModTime, h.ModTime)
}

func unpackFile(root *os.Root, name string, mode fs.FileMode, r io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// tarOf is a directory of this machine as a tar stream, without the owners of its files. At its end, not has what is left out.
func tarOf(dir string, not *notSent) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		out := tar.NewWriter(w)
		dir, err := filepath.EvalSymlinks(dir) // WalkDir does not follow one
		if err == nil {
			err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
				if err != nil || p == dir {
					return err
				}
				return tarEntry(out, dir, p, d, not)
			})
		}
		if err == nil {
			err = out.Close()
		}
		w.CloseWithError(located(err))
	}()
	return r
}

func tarEntry(out *tar.Writer, dir, p string, d fs.DirEntry, not *notSent) error {
	name, err := filepath.Rel(dir, p)
	if err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(p); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		not.add(name, "it is a "+kindHere(info.Mode()))
		return nil
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = filepath.ToSlash(name), 0, 0, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	if err := out.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = io.CopyN(out, f, h.Size); err == io.EOF {
		return holt.Errorf(holt.Conflict, "%s was truncated while it was read", p).WithHint("run the command again when no program writes to it")
	}
	return err
}
