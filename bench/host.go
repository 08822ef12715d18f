package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

const hostAbout = `
The file system as a program on the host meets it. *bare* is the same FUSE server with an in-memory file system of
a few lines behind it: the ceiling for any file system in user space. *workspace* is what ` + "`holt workspace mount`" + `
serves: journal, index and all; everything it has answered survives ` + "`kill -9`" + ` of the daemon.
*Kernel cold* drops the kernel's pages, names and inodes before; *all cold* also restarts the server (except
bare, which would lose its files). A file's *pages dropped* leaves what lies below the mount in the host's cache.`

// hostGroup measures file work on mounts of the host's own kernel.
func hostGroup(ctx context.Context, b *bench) ([]*section, error) {
	dir, err := b.sub("host")
	if err != nil {
		return nil, err
	}
	src, err := makeSources(ctx, b, dir)
	if err != nil {
		return nil, err
	}
	disk := fileSystem(dir)
	columns, err := openPlaces(ctx, b, dir, opener{disk, openDirect}, opener{bareColumn, openBare}, opener{workspaceColumn, openWorkspace})
	if err != nil {
		return nil, err
	}
	s := &section{
		title: "Files on the host", about: hostAbout, columns: []string{disk, bareColumn, workspaceColumn},
		ratios: [][2]string{{workspaceColumn, bareColumn}, {workspaceColumn, disk}},
	}
	for _, w := range hostWorks(b.sizes, disk, src) {
		if !b.wants("host", w.name) {
			continue
		}
		f, err := rounds(ctx, b, b.rounds, w, columns)
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	others, err := besideOthers(ctx, b, filepath.Join(dir, "others"))
	return []*section{s, others}, err
}

// sources are what is unpacked and cloned.
type sources struct {
	tar string // path of an archive
	git string // URL of a repository that holds the same files
	npm string // directory of a package, its lock file, and npm's cache of what it depends on
}

// npmPackages are installed, with what they depend on: some 70 packages with 800 files.
var npmPackages = []string{"express@4.21.2", "typescript@5.6.3", "prettier@3.3.3"}

// npmArgs have npm do its work and nothing else.
func npmArgs(src string, args ...string) []string {
	return append(args, "--silent", "--no-audit", "--no-fund", "--no-update-notifier", "--cache", filepath.Join(src, "cache"))
}

// makeSources makes the archive and the repository on the host's disk.
func makeSources(ctx context.Context, b *bench, dir string) (sources, error) {
	archive, repo := filepath.Join(dir, "tree.tar"), filepath.Join(dir, "repo")
	if err := makeTar(archive, b.files); err != nil {
		return sources{}, fmt.Errorf("make archive: %w", err)
	}
	for _, args := range [][]string{
		{"git", "init", "-q", repo},
		{"tar", "-xf", archive, "-C", repo},
		{"git", "-C", repo, "add", "-A"},
		{"git", "-C", repo, "-c", "gc.auto=0", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "tree"},
		{"git", "-C", repo, "gc", "-q"},
	} {
		if _, err := command(ctx, args[0], args[1:]...); err != nil {
			return sources{}, fmt.Errorf("make repository: %w", err)
		}
	}
	npm := filepath.Join(dir, "npm")
	if err := os.Mkdir(npm, 0o755); err != nil {
		return sources{}, err
	}
	for _, args := range [][]string{append([]string{"install", "--prefix", npm}, npmPackages...), {"ci", "--prefix", npm}} { // each has requests of its own
		if _, err := command(ctx, "npm", npmArgs(npm, args...)...); err != nil {
			return sources{}, fmt.Errorf("fetch packages: %w", err)
		}
	}
	return sources{tar: archive, git: "file://" + repo, npm: npm}, nil
}

type placeWork = work[*place]

func hostWorks(z sizes, disk string, src sources) []placeWork {
	return append(append(smallWorks(z), treeWorks(z, disk, src)...), largeWorks(z, disk)...)
}

// do makes a step of a run of the load generator below a place.
func do(name string, figure func(loaded) float64, args ...string) func(context.Context, *place) (float64, error) {
	return func(ctx context.Context, p *place) (float64, error) {
		where := []string{"-dir", p.path(name)}
		if args[0] == "write" || args[0] == "read" || args[0] == "random" {
			where[0] = "-file"
		}
		l, err := p.run(ctx, append([]string{args[0]}, append(where, args[1:]...)...)...)
		if err != nil {
			return nan, err
		}
		return figure(l), nil
	}
}

// ground is the same for what does not count.
func ground(name string, args ...string) func(context.Context, *place) error {
	step := do(name, loaded.perSecond, args...)
	return func(ctx context.Context, p *place) error {
		_, err := step(ctx, p)
		return err
	}
}

// clear removes a name.
func clearing(name string) func(context.Context, *place) error {
	return func(ctx context.Context, p *place) error { return p.remove(ctx, name) }
}

// both does one step after the other.
func both[P any](steps ...func(context.Context, P) error) func(context.Context, P) error {
	return func(ctx context.Context, p P) error {
		for _, s := range steps {
			if err := s(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}
}

// smallWorks are about many small files.
func smallWorks(z sizes) []placeWork {
	n := strconv.Itoa(z.files)
	files := ground("stat", "create", "-n", n)
	return []placeWork{
		{
			name: "create + write 4 KiB + close", unit: perSecond, targets: []target{{workspaceColumn, bareColumn, 0.7}},
			measure: do("new", loaded.perSecond, "create", "-n", n), after: clearing("new"),
		},
		{name: "stat, warm", unit: perSecond, setup: files, measure: do("stat", loaded.perSecond, "stat", "-n", n)},
		{
			name: "stat, kernel cold", unit: perSecond, setup: both(clearing("stat"), files),
			before: forget, measure: do("stat", loaded.perSecond, "stat", "-cold", "-n", n),
		},
		{
			name: "stat, all cold", unit: perSecond, setup: both(clearing("stat"), files),
			before: begin, measure: do("stat", loaded.perSecond, "stat", "-cold", "-n", n),
		},
	}
}

// treeWorks are what people do with source trees.
func treeWorks(z sizes, disk string, src sources) []placeWork {
	unpack := func(ctx context.Context, p *place) (float64, error) {
		return timed(ctx, "tar", "-xf", src.tar, "-C", p.path("unpacked"), "--no-same-owner")
	}
	clone := func(ctx context.Context, p *place) (float64, error) {
		return timed(ctx, "git", "clone", "-q", src.git, p.path("clone"))
	}
	cloned := func(ctx context.Context, p *place) error { _, err := clone(ctx, p); return err }
	status := func(ctx context.Context, p *place) (float64, error) {
		return timed(ctx, "git", "-C", p.path("clone"), "status", "--porcelain")
	}
	find := func(ctx context.Context, p *place) (float64, error) {
		return timed(ctx, "find", p.path("clone"), "-type", "f", "-size", "+1k")
	}
	warm := func(step func(context.Context, *place) (float64, error)) func(context.Context, *place) error {
		return func(ctx context.Context, p *place) error { _, err := step(ctx, p); return err }
	}
	fresh := both(clearing("clone"), cloned)
	there := func(ctx context.Context, p *place) error { // what looks at a clone leaves it
		if _, err := command(ctx, "test", "-d", p.path("clone")); err == nil {
			return nil
		}
		return cloned(ctx, p)
	}
	creating := []target{{workspaceColumn, bareColumn, 1.5}, {workspaceColumn, disk, 2.5}}
	looking := []target{{workspaceColumn, disk, 1.3}}
	install := func(ctx context.Context, p *place) (float64, error) {
		return timed(ctx, "npm", npmArgs(src.npm, "ci", "--offline", "--prefix", p.path("app"))...)
	}
	return []placeWork{
		{
			name: fmt.Sprintf("untar of %s files", number(float64(z.files))), unit: seconds, targets: creating,
			before: func(ctx context.Context, p *place) error {
				_, err := command(ctx, "mkdir", p.path("unpacked"))
				return err
			},
			measure: unpack, after: clearing("unpacked"),
		},
		{name: "git clone of them", unit: seconds, targets: creating, measure: clone, after: clearing("clone")},
		{
			name: "npm ci of 70 packages from npm's cache", unit: seconds, targets: creating, most: 3,
			before: func(ctx context.Context, p *place) error {
				_, err := command(ctx, "sh", "-c", `mkdir "$1" && cp "$0"/package*.json "$1"`, src.npm, p.path("app"))
				return err
			},
			measure: install, after: clearing("app"),
		},
		{name: "git status, warm", unit: seconds, targets: looking, setup: both(there, warm(status)), measure: status},
		{name: "find, warm", unit: seconds, targets: looking, setup: both(there, warm(find)), measure: find},
		{name: "find, all cold", unit: seconds, setup: there, before: begin, measure: find},
		{
			name: "rm -r of the clone", unit: seconds, before: fresh, most: 3,
			measure: func(ctx context.Context, p *place) (float64, error) { return timed(ctx, "rm", "-r", p.path("clone")) },
		},
	}
}

// largeWorks are about the bytes of one large file.
func largeWorks(z sizes, disk string) []placeWork {
	mb := strconv.Itoa(z.megabytes)
	file := ground("large", "write", "-mb", mb)
	near := []target{{workspaceColumn, bareColumn, 0.8}}
	return []placeWork{
		{
			name: fmt.Sprintf("sequential write of %s MiB", mb), unit: megabytes, targets: near,
			measure: do("large", loaded.megabytes, "write", "-mb", mb), after: clearing("large"),
		},
		{
			name: "the same with fsync", unit: megabytes,
			measure: do("large", loaded.synced, "write", "-mb", mb), after: clearing("large"),
		},
		{
			name: "sequential read, its pages dropped", unit: megabytes, targets: near, setup: file,
			measure: do("large", loaded.megabytes, "read", "-drop", "file"),
		},
		{
			name: "sequential read, all cold", unit: megabytes, setup: file, before: begin,
			measure: do("large", loaded.megabytes, "read", "-drop", "host"),
		},
		{
			name: "4 KiB random write + fsync", unit: perSecond, targets: []target{{workspaceColumn, disk, 0.5}}, setup: file,
			measure: do("large", loaded.perSecond, "random", "-mb", mb, "-n", strconv.Itoa(z.syncs)),
		},
	}
}
