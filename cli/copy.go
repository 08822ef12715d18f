package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) computerCopy() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files into or out of a computer",
		Long: `Copies a file between this machine and a computer. One side is NAME:PATH,
the other a path here, or - for standard input or output. PATH is absolute or
relative to the workspace, /home/agent. A directory needs --recursive.`,
		Example: `  holt computer cp notes.md einstein:notes.md
  holt computer cp -r einstein:/home/agent/results ./results`,
		Args: exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := parseEnd(args[0]), parseEnd(args[1])
			if (from.computer == "") == (to.computer == "") {
				return holt.Errorf(holt.InvalidArgument, "one of %q and %q must be in a computer", args[0], args[1]).
					WithHint("as einstein:path; put ./ before a path here that holds a colon")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			k := &copier{a: a, c: c, recursive: recursive, bar: a.begin("copying")}
			defer k.bar.end()
			if to.computer != "" {
				return k.put(cmd.Context(), from.path, to)
			}
			return k.get(cmd.Context(), from, to.path)
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "also directories")
	return cmd
}

// end is one side of a copy.
type end struct{ computer, path string }

func parseEnd(s string) end {
	name, p, found := strings.Cut(s, ":")
	if !found || strings.ContainsRune(name, '/') || name == "" {
		return end{path: s}
	}
	if !path.IsAbs(p) {
		p = path.Join("/home/agent", p)
	}
	return end{name, p}
}

// copier copies files one after the other.
type copier struct {
	a         *app
	c         *client.Client
	recursive bool
	bar       *bar
}

// put copies from this machine into a computer.
func (k *copier) put(ctx context.Context, from string, to end) error {
	if from == "-" {
		_, err := k.c.Files.Write(ctx, to.computer, to.path, holt.WriteSpec{}, k.a.In)
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return here(err)
	}
	there, err := k.c.Files.Stat(ctx, to.computer, to.path)
	if err == nil && there.Kind == "dir" {
		to.path = path.Join(to.path, filepath.Base(from))
	} else if err != nil && holt.CodeOf(err) != holt.NotFound {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() { // to open a named pipe could take for ever
		return holt.Errorf(holt.InvalidArgument, "%s is not a file or directory", from).
			WithHint("pass what it holds through standard input: holt computer cp - %s:%s", to.computer, to.path)
	}
	if !info.IsDir() {
		return k.putFile(ctx, from, info, to)
	}
	if !k.recursive {
		return isDirectory(from)
	}
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return here(err)
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		target := end{to.computer, path.Join(to.path, filepath.ToSlash(rel))}
		info, err := d.Info()
		switch {
		case err != nil:
			return here(err)
		case d.IsDir():
			_, err = k.c.Files.Mkdir(ctx, target.computer, holt.MkdirSpec{Path: target.path, Mode: uint32(info.Mode().Perm()), Parents: true}, "")
			return err
		case !info.Mode().IsRegular():
			k.a.say("holt: left out %s, which is not a file or directory", visible(p))
			return nil
		}
		return k.putFile(ctx, p, info, target)
	})
}

func (k *copier) putFile(ctx context.Context, from string, info fs.FileInfo, to end) error {
	f, err := os.Open(from)
	if err != nil {
		return here(err)
	}
	defer f.Close()
	m := &meter{bar: k.bar, name: path.Base(to.path), total: info.Size(), r: f}
	_, err = k.c.Files.Write(ctx, to.computer, to.path, holt.WriteSpec{Mode: uint32(info.Mode().Perm())}, m)
	return err
}

// get copies from a computer to this machine.
func (k *copier) get(ctx context.Context, from end, to string) error {
	if to == "-" {
		return k.c.Files.Read(ctx, from.computer, from.path, 0, -1, k.a.Out)
	}
	info, err := k.c.Files.Stat(ctx, from.computer, from.path)
	if err != nil {
		return err
	}
	if there, err := os.Stat(to); err == nil && there.IsDir() {
		to = filepath.Join(to, path.Base(from.path))
	}
	if info.Kind == "dir" && !k.recursive {
		return isDirectory(from.path)
	}
	return k.getAny(ctx, from, info, to)
}

func (k *copier) getAny(ctx context.Context, from end, info holt.FileInfo, to string) error {
	switch info.Kind {
	case "file":
		return k.getFile(ctx, from, info, to)
	case "dir":
	default:
		k.a.say("holt: left out %s, which is not a file or directory", visible(from.path))
		return nil
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return here(err)
	}
	entries, err := k.c.Files.List(ctx, from.computer, from.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") { // the guest is hostile
			return holt.Errorf(holt.Corrupt, "the computer sent the file name %q", e.Name)
		}
		if err := k.getAny(ctx, end{from.computer, path.Join(from.path, e.Name)}, e, filepath.Join(to, e.Name)); err != nil {
			return err
		}
	}
	return nil
}

// getFile writes beside the target and renames, so that a copy that is cut off
// leaves what was there. It never writes through a link that stands there.
func (k *copier) getFile(ctx context.Context, from end, info holt.FileInfo, to string) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".holt-cp-*")
	if err != nil {
		return here(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	m := &meter{bar: k.bar, name: info.Name, total: info.Size, w: f}
	if err := k.c.Files.Read(ctx, from.computer, from.path, 0, -1, m); err != nil {
		return err
	}
	return here(errors.Join(f.Chmod(fs.FileMode(info.Mode).Perm()), f.Close(), os.Rename(f.Name(), to)))
}

func isDirectory(name string) error {
	return holt.Errorf(holt.InvalidArgument, "%s is a directory", name).WithHint("add --recursive")
}

// here makes an error of this machine's files one with a code.
func here(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return holt.Errorf(holt.NotFound, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return holt.Errorf(holt.Denied, "%w", err)
	}
	return err
}

// meter shows how much of a file has passed.
type meter struct {
	bar         *bar
	name        string
	done, total int64
	r           io.Reader
	w           io.Writer
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.passed(n)
	return n, err
}

func (m *meter) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	m.passed(n)
	return n, err
}

func (m *meter) passed(n int) {
	m.done += int64(n)
	if m.bar.bar != nil {
		m.bar.show(Progress{Stage: m.name, Detail: size(m.done), Fraction: float64(m.done) / float64(max(m.total, m.done, 1))})
	}
}
