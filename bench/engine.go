package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

const engineAbout = `
Package workspace called directly: no FUSE, no other process. *Behind* says how many of the journal's operations the
index had not taken in when the process was killed; the daemon's own settings keep that below a fraction of a second's work.
The questions are asked of a workspace of %s files in directories of 100, of which one in a hundred matches the dates.
On a *bad afternoon* one run deleted half of a project, another wrote into a file of it, and a third moved the rest; undo takes back only the first.`

const engineColumn = "engine"

// engineRoom is where the engine is measured.
type engineRoom struct {
	b   *bench
	dir string
	lib string // a workspace of b.queryFiles files, closed
}

// engineGroup measures the workspace without a mount.
func engineGroup(ctx context.Context, b *bench) (*section, error) {
	dir, err := b.sub("engine")
	if err != nil {
		return nil, err
	}
	room := &engineRoom{b: b, dir: dir, lib: filepath.Join(dir, "library")}
	s := &section{
		title: "The workspace without a mount", columns: []string{engineColumn},
		about: fmt.Sprintf(engineAbout, number(float64(b.queryFiles))),
	}
	for _, w := range engineWorks(b.sizes) {
		if !b.wants("engine", w.name) {
			continue
		}
		f, err := rounds(ctx, b, b.rounds, w, []column[*engineRoom]{{engineColumn, room}})
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, nil
}

func engineWorks(z sizes) []work[*engineRoom] {
	n := number(float64(z.engineFiles))
	works := []work[*engineRoom]{
		{name: "create + write 4 KiB, one caller", unit: perSecond, measure: measureFill},
		{
			name: "open after kill -9 under load", unit: millis, before: killed(z.engineFiles, "on"),
			measure: measureOpen, after: clearRoom,
		},
		{
			name: fmt.Sprintf("open after kill -9, %s files behind", n), unit: millis, before: killed(z.engineFiles, "behind"),
			measure: measureOpen, after: clearRoom,
		},
	}
	for _, q := range []struct{ name, sql string }{
		{"changed since a date", "SELECT path FROM files WHERE mtime > '2026-06-09'"},
		{"size of each directory", "SELECT dir, sum(size) FROM files GROUP BY dir ORDER BY 2 DESC"},
		{"what agents wrote lately", "SELECT path FROM files WHERE writer = 'agent' AND mtime > date('now','-7 days')"},
	} {
		works = append(works, work[*engineRoom]{
			name: "SQL: " + q.name, unit: millis, targets: []target{{engineColumn, "", 50}}, setup: makeLibrary, measure: measureQuery(q.sql),
		})
	}
	works = append(works, pastWorks(z)...)
	works = append(works, importWork(z))
	works = append(works, afternoonWorks(z)...)
	works = append(works, forkWorks(z)...)
	large := slices.Max(z.forks)
	most := number(float64(large))
	return append(works,
		work[*engineRoom]{
			name: fmt.Sprintf("memory of a cached inode, of %s", most), unit: bytesEach, targets: []target{{engineColumn, "", 200}},
			setup: makeFamily(large), measure: measureMemory(large, statAll), most: 2,
		},
		work[*engineRoom]{
			name: "memory of a cached inode and its name", unit: bytesEach, setup: makeFamily(large), measure: measureMemory(large, lookUpAll), most: 2,
		},
		work[*engineRoom]{
			name: fmt.Sprintf("resident size after %s files were made", number(float64(z.resident))), unit: megabytesHeld, most: 2,
			measure: measureResident(z.resident), after: clearRoom,
		},
		work[*engineRoom]{name: "check of the files of the questions", unit: seconds, setup: makeLibrary, measure: measureCheck},
	)
}

func (r *engineRoom) path() string { return filepath.Join(r.dir, "workspace") }

func clearRoom(_ context.Context, r *engineRoom) error { return os.RemoveAll(r.path()) }

// filler makes files of 4 KiB in a workspace.
type filler struct {
	tree    *workspace.Tree
	caller  workspace.Caller
	perDir  int
	content []byte
	made    int
	dir     workspace.Attr
}

func newFiller(ws *workspace.Workspace) *filler {
	return &filler{tree: ws.Tree(), caller: callerOf("agent"), perDir: 1000, content: make([]byte, 4<<10)}
}

func callerOf(name string) workspace.Caller {
	return workspace.Caller{Writer: workspace.Writer{Kind: "person", Name: name}}
}

// next makes one file.
func (f *filler) next() (err error) {
	if f.made%f.perDir == 0 {
		if f.dir, err = f.tree.Mkdir(f.caller, workspace.Root, fmt.Sprintf("d%04d", f.made/f.perDir), 0o755); err != nil {
			return err
		}
	}
	file, err := f.tree.Create(f.caller, f.dir.Ino, fmt.Sprintf("f%06d", f.made), 0o644)
	if err != nil {
		return err
	}
	f.made++
	if len(f.content) > 0 {
		_, err = f.tree.Write(f.caller, file.Ino, 0, f.content)
	}
	return err
}

func measureFill(ctx context.Context, r *engineRoom) (v float64, err error) {
	ws, err := workspace.Create(r.path(), workspace.Options{Log: r.b.log})
	if err != nil {
		return nan, err
	}
	defer func() { err = errors.Join(err, ws.Close(), clearRoom(ctx, r)) }()
	f := newFiller(ws)
	start := time.Now()
	for f.made < r.b.engineFiles && ctx.Err() == nil {
		if err := f.next(); err != nil {
			return nan, err
		}
	}
	return float64(f.made) / time.Since(start).Seconds(), ctx.Err()
}

// childArg makes this program the one that is killed: see killedChild.
const childArg = "-child"

// killedChild makes n files in a workspace, says so, and goes on with its work
// ("on") or waits ("behind", with an index that has taken in nothing, or
// "idle", with one that has taken in all) until it is killed.
func killedChild(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: bench -child DIR N on|behind|idle")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var opt workspace.Options
	if args[2] == "behind" {
		opt.FlushOps, opt.FlushInterval, opt.MaxDirty = 1<<30, time.Hour, 1<<30
	}
	ws, err := workspace.Create(args[0], opt)
	if err != nil {
		return err
	}
	f := newFiller(ws)
	if args[2] == "idle" {
		f.content = []byte("a few bytes")
	}
	for f.made < n || args[2] == "on" {
		if err := f.next(); err != nil {
			return err
		}
		if f.made < n {
			continue
		}
		if args[2] == "idle" {
			if err := ws.Flush(); err != nil {
				return err
			}
		}
		if f.made == n {
			fmt.Println("made")
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// killed leaves a workspace whose daemon was killed after n files.
func killed(n int, how string) func(context.Context, *engineRoom) error {
	return func(ctx context.Context, r *engineRoom) error {
		return r.child(ctx, n, how, func(int) error { return nil })
	}
}

// child starts a killedChild, and kills it after a look at it.
func (r *engineRoom) child(ctx context.Context, n int, how string, look func(pid int) error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, childArg, r.path(), strconv.Itoa(n), how)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = look(cmd.Process.Pid)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return err
}

// measureResident returns the resident size of a process that made n files
// with the daemon's own caches, MB.
func measureResident(n int) func(context.Context, *engineRoom) (float64, error) {
	return func(ctx context.Context, r *engineRoom) (v float64, err error) {
		err = r.child(ctx, n, "idle", func(pid int) error {
			v, err = resident(pid)
			return err
		})
		return v, err
	}
}

// measureOpen opens what was killed and looks whether all is there.
func measureOpen(_ context.Context, r *engineRoom) (v float64, err error) {
	start := time.Now()
	ws, err := workspace.Open(r.path(), workspace.Options{Log: r.b.log})
	if err != nil {
		return nan, err
	}
	took := time.Since(start)
	if s := ws.Stat(); s.Files < int64(r.b.engineFiles) {
		err = fmt.Errorf("%d files of %d came back", s.Files, r.b.engineFiles)
	}
	return float64(took.Microseconds()) / 1e3, errors.Join(err, ws.Close())
}

// makeLibrary makes the workspace that the questions are asked of, once.
func makeLibrary(ctx context.Context, r *engineRoom) error {
	if _, err := os.Stat(r.lib); err == nil {
		return nil
	}
	now := time.Now()
	day := now
	ws, err := workspace.Create(r.lib, workspace.Options{Log: r.b.log, Now: func() time.Time { return day }})
	if err != nil {
		return err
	}
	f := newFiller(ws)
	f.perDir, f.content = 100, []byte("a few bytes")
	old := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range r.b.queryFiles {
		f.caller = callerOf([]string{"agent", "ada"}[i/200%2])
		switch i % 200 {
		case 0:
			day = now.Add(-48 * time.Hour)
		case 100:
			day = time.Date(2026, 6, 20, 12, 0, 0, 0, time.UTC)
		default:
			day = old.Add(time.Duration(i) * time.Minute)
		}
		if err := errors.Join(f.next(), ctx.Err()); err != nil {
			return errors.Join(err, ws.Close())
		}
	}
	return ws.Close()
}

// library opens the library for a measurement.
func (r *engineRoom) library(opt workspace.Options, use func(*workspace.Workspace) (float64, error)) (v float64, err error) {
	opt.Log = r.b.log
	ws, err := workspace.Open(r.lib, opt)
	if err != nil {
		return nan, err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	return use(ws)
}

func measureQuery(sql string) func(context.Context, *engineRoom) (float64, error) {
	return func(ctx context.Context, r *engineRoom) (float64, error) {
		return r.library(workspace.Options{}, func(ws *workspace.Workspace) (float64, error) {
			if _, err := ws.Query(ctx, "SELECT path FROM files LIMIT 1", workspace.Limits{}); err != nil { // opens a connection
				return nan, err
			}
			start := time.Now()
			got, err := ws.Query(ctx, sql, workspace.Limits{})
			took := time.Since(start)
			if err == nil && len(got.Rows) == 0 {
				err = errors.New("nothing was found")
			}
			return float64(took.Microseconds()) / 1e3, err
		})
	}
}

func measureCheck(ctx context.Context, r *engineRoom) (float64, error) {
	return r.library(workspace.Options{}, func(ws *workspace.Workspace) (float64, error) {
		start := time.Now()
		report, err := ws.Check(ctx)
		took := time.Since(start)
		if err == nil && len(report.Problems) > 0 {
			err = fmt.Errorf("check found %d problems: %s", len(report.Problems), report.Problems[0])
		}
		return took.Seconds(), err
	})
}

// measureMemory has every file of a family cached and weighs what that leaves on the heap.
func measureMemory(n int, visit func(*workspace.Workspace) error) func(context.Context, *engineRoom) (float64, error) {
	opt := workspace.Options{CacheInodes: 2 * n, CacheEntries: 4 * n}
	return onFamily(n, opt, func(_ context.Context, _ *engineRoom, ws *workspace.Workspace) (float64, error) {
		before, cached := heap(), ws.Stat().CachedInodes
		if err := visit(ws); err != nil {
			return nan, err
		}
		weight := float64(heap()) - float64(before)
		cached = ws.Stat().CachedInodes - cached
		if cached < n {
			return nan, fmt.Errorf("only %d inodes are cached", cached)
		}
		return weight / float64(cached), nil
	})
}

// statAll asks for every inode by its number, without a name. Nothing was ever
// removed from a family, so the numbers have no gaps.
func statAll(ws *workspace.Workspace) error {
	for i := range ws.Stat().Inodes {
		if _, err := ws.Tree().GetAttr(workspace.Root + workspace.Ino(i)); err != nil {
			return fmt.Errorf("stat inode %d: %w", i+1, err)
		}
	}
	return nil
}

// lookUpAll looks up every name two levels below the root.
func lookUpAll(ws *workspace.Workspace) error {
	tree := ws.Tree()
	dirs, err := list(tree, workspace.Root)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		files, err := list(tree, d.Ino)
		if err != nil {
			return err
		}
		for _, f := range files {
			if _, err := tree.Lookup(workspace.Caller{}, d.Ino, f.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func list(tree *workspace.Tree, dir workspace.Ino) (out []workspace.DirEntry, err error) {
	err = tree.ReadDir(workspace.Caller{}, dir, 0, false, func(e workspace.DirEntry) bool {
		if e.Name != "." && e.Name != ".." {
			out = append(out, e)
		}
		return true
	})
	return out, err
}

// heap returns the bytes of live objects.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a finalizer freed
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
