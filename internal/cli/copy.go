package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
	"holt/internal/store/parcel"
)

func (a *app) computerCopy() *cobra.Command {
	var k copier
	cmd := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files into or out of a computer",
		Long: `Copies a file between this machine and a computer. One side is NAME:PATH,
the other a path here, or - for standard input or output. PATH is absolute or
relative to the workspace, /home/agent. A directory needs --recursive. A symlink
given as an argument is followed. One inside a directory is copied as a symlink.
Pipes, sockets, devices and files that cannot be read are left out. Standard error
names them, and the exit status is 1.

The other side can also be an artifact, as artifact:BUCKET/NAME: between an artifact
and the workspace, a file of any size is copied at once, since both share its bytes.
A directory needs no --recursive then, and --exclude does not apply.

` + whatCopyKeeps,
		Example: `  holt computer cp notes.md einstein:notes.md
  holt computer cp --mode 755 tool einstein:/usr/local/bin/tool
  holt computer cp -r --exclude node_modules ./site einstein:
  holt computer cp -r einstein:/home/agent/results ./results
  holt computer cp artifact:inputs/data.parquet einstein:
  holt computer cp einstein:report.pdf artifact:artifacts/report.pdf`,
		Args:              exactly(2),
		ValidArgsFunction: a.completeSpots(inComputers, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			k.noun = inComputers
			if done, err := a.copyArtifact(cmd, args, &k); done || err != nil {
				return err
			}
			return a.copy(cmd.Context(), args[0], args[1], &k, nil)
		},
	}
	k.recursiveFlags(cmd)
	k.flags(cmd)
	a.copyJSONFlag(cmd)
	return cmd
}

// whatCopyKeeps is said in the help of the commands that write files.
const whatCopyKeeps = `An existing file keeps its owner, group, mode, extended attributes and hard links,
unless --user or --mode is given. Its content is overwritten after all of the new
content has arrived. If the copy is interrupted before that, nothing changes. A
program that reads the file while it is overwritten may see a part of both contents.
A new file gets the owner of its directory, or agent in a directory where everybody
may write, such as /tmp. It gets the mode of its source less the umask 022. Holes
stay holes.`

// flags adds the flags that say how what is written shall be.
func (k *copier) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.mode, "mode", "", "permission bits, octal, such as 640 (default: an existing file keeps its mode, a new file gets the mode of its source less 022)")
	cmd.Flags().StringVarP(&k.spec.User, "user", "u", "", "Linux user who will own the files (default: an existing file keeps its owner, a new file gets the owner of its directory)")
}

// recursiveFlags adds the flags of copies of directories.
func (k *copier) recursiveFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&k.recursive, "recursive", "r", false, "copy directories too")
	excludeFlag(cmd, &k.exclude)
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
	mode      string         // --mode
	spec      holt.WriteSpec // of what is written
	exclude   []string
	bar       *bar
	left      int // how many were left out
	not       notSent
}

// fill reads the flags.
func (k *copier) fill(into bool) error {
	if !into && (k.mode != "" || k.spec.User != "" || len(k.exclude) > 0) {
		return holt.Errorf(holt.InvalidArgument, "--mode, --user and --exclude apply only to copies into a %s", k.noun.word).WithHint("leave them out")
	}
	return k.parseMode()
}

// parseMode reads --mode.
func (k *copier) parseMode() error {
	if k.mode == "" {
		return nil
	}
	mode, err := strconv.ParseUint(k.mode, 8, 12)
	if err != nil || mode == 0 {
		return holt.Errorf(holt.InvalidArgument, "--mode %q is not a file mode", k.mode).WithHint("give octal permission bits, such as 640")
	}
	k.spec.Mode = uint32(mode)
	return nil
}

// copyOf is how a copy of a file with that mode is written.
func (k *copier) copyOf(info fs.FileInfo) holt.WriteSpec {
	spec := k.spec
	spec.NewMode = uint32(info.Mode().Perm())
	return spec
}

// leave says that something in a directory is not copied.
func (k *copier) leave(name, kind string) {
	k.left++
	k.a.say("holt: left out %s: it is a %s", shown(name), kind)
}

// put copies from this machine into a computer.
func (k *copier) put(ctx context.Context, from string, to end) error {
	if from == "-" {
		_, err := k.files.Write(ctx, to.owner, to.path, k.spec, k.a.In)
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
			WithHint("pass its content through standard input: holt %s cp - %s:%s", k.noun.word, to.owner, to.path)
	}
	if to, err = k.target(ctx, to, filepath.Base(from), info.IsDir()); err != nil {
		return err
	}
	if !info.IsDir() {
		f, err := os.Open(from)
		if err != nil {
			return here(err, from)
		}
		defer f.Close()
		return k.putFile(ctx, f, info, to)
	}
	if from, err = filepath.EvalSymlinks(from); err != nil { // WalkDir does not follow one
		return here(err, from)
	}
	return k.putDir(ctx, from, to)
}

// target returns what a copy to an end writes: in a directory that exists, or that a symlink leads to, the name.
func (k *copier) target(ctx context.Context, to end, name string, dir bool) (end, error) {
	followed, there, err := k.named(ctx, to)
	switch {
	case err == nil && there.Kind == "dir" && name == "..":
		return to, holt.Errorf(holt.InvalidArgument, "%q has no file name", name).WithHint("add the name of the new file: NAME:PATH/NEW")
	case err == nil && there.Kind == "dir":
		return followed.in(name), nil
	case err != nil && holt.CodeOf(err) != holt.NotFound:
		return to, err
	case err != nil && to.slash && !dir:
		return to, k.noDirectory(holt.Errorf(holt.NotFound, "%s has no directory %s", to.owner, to.path), to.in("x"))
	}
	return to, nil
}

// putDir copies a directory and all in it.
func (k *copier) putDir(ctx context.Context, from string, to end) error {
	sel, err := selectFrom(from, k.exclude)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil && p != from {
			sel.unread(p, err)
			return nil
		}
		if err != nil {
			return here(err, p)
		}
		if p != from {
			skip, err := sel.skip(p, parcel.KindOfFile(d.Type()))
			if skip && d.IsDir() {
				return filepath.SkipDir
			}
			if skip || err != nil {
				return err
			}
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
			mode := holt.WriteSpec{NewMode: uint32(info.Mode().Perm())}.ModeOfNew()
			_, err = k.files.Mkdir(ctx, target.owner, holt.MkdirSpec{Path: holt.OSString(target.path), Mode: mode, User: k.spec.User, Parents: true}, "")
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return k.putLink(ctx, p, target)
		case !info.Mode().IsRegular():
			k.leave(p, kindHere(info.Mode()))
			return nil
		}
		f, err := os.Open(p)
		if err != nil {
			sel.unread(p, errors.Unwrap(err))
			return nil
		}
		defer f.Close()
		return k.putFile(ctx, f, info, target)
	})
	k.not, k.left = sel.not, k.left+sel.not.lost
	return err
}

// noDirectory says what to do when the directory above a target is missing.
func (k *copier) noDirectory(err error, to end) error {
	if holt.CodeOf(err) != holt.NotFound || holt.AsError(err).Hint != "" {
		return err
	}
	dir := shellWord(path.Dir(to.path))
	if k.noun == inWorkspaces {
		return holt.Errorf(holt.NotFound, "%w", err).WithHint("create it first: holt workspace mkdir -p %s:%s", to.owner, dir)
	}
	return holt.Errorf(holt.NotFound, "%w", err).WithHint("create it first: holt computer run %s -- mkdir -p %s", to.owner, dir)
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
	_, err = k.files.Symlink(ctx, to.owner, holt.SymlinkSpec{Path: holt.OSString(to.path), Target: holt.OSString(target), User: k.spec.User}, "")
	return err
}

func (k *copier) putFile(ctx context.Context, f *os.File, info fs.FileInfo, to end) error {
	m := &meter{bar: k.bar, name: path.Base(to.path), total: info.Size(), r: f}
	if stored(info) > mostAtOnce {
		return k.noDirectory(k.send(ctx, f, info, to, m), to)
	}
	_, err := k.files.Write(ctx, to.owner, to.path, k.copyOf(info), m)
	return k.noDirectory(err, to)
}

// stored is how many bytes a file takes here: less than its size if it has holes.
func stored(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(info.Size(), st.Blocks*512)
	}
	return info.Size()
}

// mostAtOnce is how many bytes of a file, holes left aside, are sent with one call. A larger one is sent in pieces, which continue where
// the connection broke.
const mostAtOnce = 8 << 20

func (k *copier) send(ctx context.Context, f *os.File, info fs.FileInfo, to end, m *meter) error {
	w := k.copyOf(info)
	spec := holt.UploadSpec{Path: holt.OSString(to.path), Size: info.Size(), Mode: w.Mode, NewMode: w.NewMode, User: w.User}
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
