package cli

import (
	"context"
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
relative to the workspace, /home/agent. A directory needs --recursive. A symlink
that is named is followed, one that lies in a directory is copied as it is. What
is neither file, directory nor symlink is left out, named, and makes the exit
status 1.`,
		Example: `  holt computer cp notes.md einstein:notes.md
  holt computer cp -r einstein:/home/agent/results ./results`,
		Args:              exactly(2),
		ValidArgsFunction: a.completeSpots(inComputers, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.copy(cmd.Context(), args[0], args[1], recursive, inComputers, nil)
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "also directories")
	a.copyJSONFlag(cmd)
	return cmd
}

// end is one side of a copy.
type end struct {
	owner, path string // owner: a computer or a workspace
	slash       bool   // named with a slash at the end: it must be a directory
}

func (n copyNoun) parseEnd(s string) end {
	name, p, found := strings.Cut(s, ":")
	if !found || strings.ContainsRune(name, '/') || name == "" {
		return end{path: s}
	}
	e := end{owner: name, path: p, slash: strings.HasSuffix(p, "/")}
	if !path.IsAbs(p) {
		e.path = path.Join(n.home, p)
	}
	return e
}

// in returns the end below a directory.
func (e end) in(name string) end { return end{owner: e.owner, path: path.Join(e.path, name)} }

// copier copies files one after the other.
type copier struct {
	a         *app
	files     client.Files
	uploads   client.Uploads
	noun      copyNoun
	recursive bool
	bar       *bar
	left      int // how many were left out
}

// leave says that something in a directory is not copied.
func (k *copier) leave(name, kind string) {
	k.left++
	k.a.say("holt: left out %s: it is a %s", shown(name), kind)
}

// put copies from this machine into a computer.
func (k *copier) put(ctx context.Context, from string, to end) error {
	if from == "-" {
		_, err := k.files.Write(ctx, to.owner, to.path, holt.WriteSpec{}, k.a.In)
		return k.noDirectory(err, to)
	}
	info, err := os.Stat(from)
	if err != nil {
		return here(err, from)
	}
	switch {
	case info.IsDir() && !k.recursive:
		return isDirectory(from)
	case !info.IsDir() && !info.Mode().IsRegular(): // to open a named pipe could take for ever
		return holt.Errorf(holt.InvalidArgument, "%s is not a file or directory", from).
			WithHint("pass what it holds through standard input: holt %s cp - %s:%s", k.noun.word, to.owner, to.path)
	}
	there, err := k.files.Stat(ctx, to.owner, to.path)
	switch {
	case err == nil && there.Kind == "dir":
		if to = to.in(filepath.Base(from)); filepath.Base(from) == ".." {
			return holt.Errorf(holt.InvalidArgument, "%q has no name to copy it under", from).WithHint("give the name, too: NAME:PATH/NEW")
		}
	case err != nil && holt.CodeOf(err) != holt.NotFound:
		return err
	case err != nil && to.slash && !info.IsDir():
		return k.noDirectory(holt.Errorf(holt.NotFound, "%s has no directory %s", to.owner, to.path), to.in("x"))
	}
	if !info.IsDir() {
		return k.putFile(ctx, from, info, to)
	}
	if from, err = filepath.EvalSymlinks(from); err != nil { // WalkDir does not follow one
		return here(err, from)
	}
	return k.putDir(ctx, from, to)
}

// putDir copies a directory and all in it.
func (k *copier) putDir(ctx context.Context, from string, to end) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return here(err, p)
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		target := to.in(filepath.ToSlash(rel))
		info, err := d.Info()
		switch {
		case err != nil:
			return here(err, p)
		case d.IsDir():
			_, err = k.files.Mkdir(ctx, target.owner, holt.MkdirSpec{Path: holt.OSString(target.path), Mode: uint32(info.Mode().Perm()), Parents: true}, "")
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return k.putLink(ctx, p, target)
		case !info.Mode().IsRegular():
			k.leave(p, kindHere(info.Mode()))
			return nil
		}
		return k.putFile(ctx, p, info, target)
	})
}

// noDirectory says what to do when the directory above a target is missing.
func (k *copier) noDirectory(err error, to end) error {
	if holt.CodeOf(err) != holt.NotFound || holt.AsError(err).Hint != "" {
		return err
	}
	dir := shellWord(path.Dir(to.path))
	if k.noun == inWorkspaces {
		return holt.Errorf(holt.NotFound, "%w", err).WithHint("make the directory first: holt workspace mkdir -p %s:%s", to.owner, dir)
	}
	return holt.Errorf(holt.NotFound, "%w", err).WithHint("make the directory first: holt computer run %s -- mkdir -p %s", to.owner, dir)
}

// kindHere names what kind of file something on this machine is, as
// [holt.FileInfo] does.
func kindHere(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// putLink copies a symlink, not what it leads to.
func (k *copier) putLink(ctx context.Context, from string, to end) error {
	target, err := os.Readlink(from)
	if err != nil {
		return here(err, from)
	}
	_, err = k.files.Symlink(ctx, to.owner, holt.SymlinkSpec{Path: holt.OSString(to.path), Target: holt.OSString(target)}, "")
	return err
}

func (k *copier) putFile(ctx context.Context, from string, info fs.FileInfo, to end) error {
	f, err := os.Open(from)
	if err != nil {
		return here(err, from)
	}
	defer f.Close()
	m := &meter{bar: k.bar, name: path.Base(to.path), total: info.Size(), r: f}
	if info.Size() > mostAtOnce {
		return k.noDirectory(k.send(ctx, f, info, to, m), to)
	}
	_, err = k.files.Write(ctx, to.owner, to.path, holt.WriteSpec{Mode: uint32(info.Mode().Perm())}, m)
	return k.noDirectory(err, to)
}

// mostAtOnce is how large a file is that is sent with one call, bytes. A larger one is sent in pieces, which go on where
// the connection broke.
const mostAtOnce = 8 << 20

func (k *copier) send(ctx context.Context, f *os.File, info fs.FileInfo, to end, m *meter) error {
	spec := holt.UploadSpec{Path: holt.OSString(to.path), Size: info.Size(), Mode: uint32(info.Mode().Perm())}
	if k.noun == inWorkspaces {
		spec.Workspace = to.owner
	} else {
		spec.Computer = to.owner
	}
	_, err := k.uploads.Send(ctx, spec, f, func(offset int64) { m.passed(int(offset - m.done)) })
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
