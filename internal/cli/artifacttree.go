package cli

import (
	"archive/tar"
	"context"
	"io"
	"io/fs"
	"os"
	"path"

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

// getDirectory writes what is in an artifact that is a directory into a new directory.
func (a *app) getDirectory(ctx context.Context, c *client.Client, art holt.Artifact, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return here(err, to)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(c.Artifacts.Read(ctx, string(art.ID), 0, -1, w)) }()
	defer r.Close()
	files, err := unpack(r, to)
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.Out, art)
	}
	a.say("%s, %s, %s", visible(to), holt.CountOf(files, "file"), size(art.Size))
	return nil
}

// unpack writes a tar stream into a directory. Nothing is written outside of it, whatever names and links the stream has.
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
		mode := fs.FileMode(h.Mode) & 0o777
		if err = root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return files, located(err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, mode|0o700)
		case tar.TypeSymlink:
			err = root.Symlink(h.Linkname, name)
		case tar.TypeLink:
			err = root.Link(h.Linkname, name)
		case tar.TypeReg:
			files++
			err = unpackFile(root, name, mode, in)
			if err == nil {
				err = root.Chtimes(name, h.ModTime, h.ModTime)
			}
		}
		if err != nil {
			return files, located(err)
		}
	}
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

// tarOf is a directory of this machine as a tar stream.
func tarOf(dir string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		out := tar.NewWriter(w)
		err := out.AddFS(os.DirFS(dir))
		if err == nil {
			err = out.Close()
		}
		w.CloseWithError(located(err))
	}()
	return r
}
