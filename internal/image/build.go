package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"holt"
)

// build is a build in progress.
type build struct {
	store   *Store
	plan    plan
	scratch *scratch
	apt     *apt

	logPath string
	logFile *os.File

	mu       sync.Mutex // guards what follows
	progress func(Progress)
	last     Progress
	lines    []string // the last lines of the log
}

// leastBuildBytes is the free space that a build needs to start.
const leastBuildBytes = 64 << 20

// Build returns the image of a template, and builds it if it does not exist; if it
// does, Build takes milliseconds. template is the name of an embedded recipe or a
// path (with a slash) to a recipe file. Builds of one template run one at a time.
// progress may be nil; it is called from one goroutine at a time.
//
// Errors: NotFound (the template), InvalidArgument (the recipe), Unsupported (the
// host lacks tools; the hint names packages), OutOfSpace, Unavailable (packages
// cannot be fetched), AlreadyExists (another OCI image has the same template name).
func (s *Store) Build(ctx context.Context, template string, progress func(Progress)) (Image, error) {
	r, err := loadRecipe(template)
	if err != nil {
		return Image{}, err
	}
	p, err := newPlan(r, s.opt, s.log)
	if err != nil {
		return Image{}, err
	}
	digest, err := p.digest()
	if err != nil {
		return Image{}, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	b := &build{store: s, plan: p, progress: progress}
	release, err := s.lock(ctx, p.Name, func() { b.report("waiting", "another build of "+p.Name+" is in progress", 0) })
	if err != nil {
		return Image{}, err
	}
	defer release()
	if old, err := s.find(p.Name); err == nil && holt.OCIReference(template) && old.From != p.From {
		return Image{}, holt.Errorf(holt.AlreadyExists, "the template of %s has the name %s, which another image has", clip(template), p.Name).
			WithHint(`delete that image: holt image delete %s; or write a recipe with another name: {"name": "mine", "extends": "base", "from": "…"}`, p.Name)
	}
	rec, err := s.record(digest)
	changed := false
	if errors.Is(err, fs.ErrNotExist) {
		s.sweep()
		rec, err = b.root(ctx, digest)
	} else if err == nil && !(slices.Equal(rec.Args, p.Args) && slices.Equal(rec.Units, p.Units) && rec.Engine == p.Engine) { // they are not on the disk
		rec.Args, rec.Units, rec.Engine, changed = p.Args, p.Units, p.Engine, true
		err = writeJSON(filepath.Join(s.rootDir(digest), rootRecord), rec)
	}
	if err != nil {
		return Image{}, fmt.Errorf("build %s: %w", p.Name, err)
	}
	if err := s.setTemplate(ctx, p.Name, digest, changed); err != nil {
		return Image{}, noSpace(err, s.dir)
	}
	image, err := s.image(rec, true)
	if err == nil {
		b.report("done", "", 1)
	}
	return image, err
}

// root builds the root disk and returns its record. If it fails nothing of the root
// disk is left.
func (b *build) root(ctx context.Context, digest string) (rec record, err error) {
	if err := checkTools(exec.LookPath); err != nil {
		return rec, err
	}
	if free, err := freeBytes(b.store.dir); err != nil {
		return rec, err
	} else if free < leastBuildBytes {
		return rec, holt.Errorf(holt.OutOfSpace, "the disk of %s has only %d MiB free", b.store.dir, free>>20).
			WithHint("free space there, or put images elsewhere with %s", holt.EnvImageDir)
	}
	if err := b.openLog(); err != nil {
		return rec, noSpace(err, b.store.dir)
	}
	defer b.logFile.Close()
	if b.scratch, err = b.store.newScratch(b.plan.From != ""); err != nil {
		return rec, noSpace(err, b.store.dir)
	}
	defer func() {
		if rerr := b.scratch.remove(); err == nil && rerr != nil {
			b.store.log.Warn("remove build directory", "error", rerr)
		}
	}()
	rec, err = b.makeRoot(ctx, digest)
	return rec, noSpace(err, b.store.dir)
}

// makeRoot runs the steps of a build.
func (b *build) makeRoot(ctx context.Context, digest string) (rec record, err error) {
	b.report("kernel", "updating package lists", 0.005)
	if b.apt, err = newApt(ctx, b.scratch.path("apt"), b.plan.Sources, b.log); err != nil {
		return rec, err
	}
	if err := b.checkPackages(ctx); err != nil {
		return rec, err
	}
	k, err := b.kernel(ctx)
	if err != nil {
		return rec, err
	}
	b.report("packages", "preparing", 0.05)
	if err := b.bootstrap(ctx, k); err != nil {
		return rec, err
	}
	out := filepath.Join(b.scratch.dir, "root")
	if err := b.linkKernel(out, k); err != nil {
		return rec, err
	}
	rootFile := filepath.Join(out, rootDisk)
	if err := b.disk(ctx, rootFile); err != nil {
		return rec, err
	}
	rec = record{
		Template: b.plan.Name, Summary: b.plan.Summary, From: b.plan.From, Digest: digest, Kernel: k.Version, BootModules: k.Boot,
		DiskMB: b.plan.DiskMB, Args: b.plan.Args, Units: b.plan.Units, Engine: b.plan.Engine, Bytes: allocated(rootFile), BuiltAt: time.Now().UTC(),
	}
	if err := writeJSON(filepath.Join(out, rootRecord), rec); err != nil {
		return rec, err
	}
	return rec, publish(out, b.store.rootDir(digest))
}

// checkPackages finds unknown packages before the packages are installed. Virtual
// packages count as unknown.
func (b *build) checkPackages(ctx context.Context) error {
	out, _ := b.apt.output(ctx, b.scratch.work, "apt-cache", append([]string{"show", "--no-all-versions"}, b.plan.Packages...)...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	known := map[string]bool{}
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "Package: "); ok {
			known[strings.TrimSpace(name)] = true
		}
	}
	if len(known) == 0 { // not even a package that every image has
		return fetchError("apt-cache show", out)
	}
	for _, name := range b.plan.Packages {
		if !known[name] {
			return holt.Errorf(holt.InvalidArgument, "recipe %s has a package %q that is not in Debian %s", b.plan.Name, name, suite).
				WithHint("apt-cache search finds packages")
		}
	}
	return nil
}

// linkKernel makes hard links to the kernel and its modules in the image.
func (b *build) linkKernel(out string, k kernel) error {
	for _, name := range append([]string{kernelBoot}, under(kernelModules, k.Boot)...) {
		if err := linkFile(filepath.Join(b.kernelDir(), name), filepath.Join(out, name)); err != nil {
			return err
		}
	}
	return nil
}

// Missing returns the programs and files that a build needs and this host lacks,
// and the Debian packages that have them. look finds a program, as
// [exec.LookPath] does.
func Missing(look func(string) (string, error)) (programs, packages []string) {
	tools := [][2]string{
		{"mmdebstrap", "mmdebstrap"}, {"mkfs.ext4", "e2fsprogs"}, {"tune2fs", "e2fsprogs"}, {"dpkg-deb", "dpkg"},
		{"apt-get", "apt"}, {"tar", "tar"},
	}
	if os.Geteuid() != 0 {
		tools = append(tools, [2]string{"newuidmap", "uidmap"}) // for mmdebstrap's user namespace
	}
	for _, t := range tools {
		if _, err := look(t[0]); err != nil {
			programs, packages = append(programs, t[0]), append(packages, t[1])
		}
	}
	if _, err := os.Stat(debianKeyring); err != nil {
		programs, packages = append(programs, debianKeyring), append(packages, "debian-archive-keyring")
	}
	return programs, uniq(packages)
}

func checkTools(look func(string) (string, error)) error {
	programs, packages := Missing(look)
	if len(programs) == 0 {
		return nil
	}
	err := holt.Errorf(holt.Unsupported, "images cannot be built here: missing %s", strings.Join(programs, ", ")).
		WithHint("apt-get install %s", strings.Join(packages, " "))
	err.Detail = map[string]any{"install": packages}
	return err
}

// report calls progress. The fraction never decreases.
func (b *build) report(stage, detail string, fraction float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	step := map[string]int{"kernel": 1, "image": 2, "packages": 2, "setup": 3, "disk": 4}[stage]
	p := Progress{Step: step, Stage: stage, Detail: detail, Fraction: max(fraction, b.last.Fraction)}
	if p != b.last {
		b.last = p
		b.progress(p)
	}
}

func under(dir string, names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, filepath.Join(dir, name))
	}
	return out
}

func (b *build) openLog() (err error) {
	b.logPath = b.store.logFile(b.plan.Name)
	b.logFile, err = os.Create(b.logPath)
	return err
}

// log writes a line to the build's log. It ignores errors of a full disk, since the
// last lines are in the build's error too.
func (b *build) log(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const kept = 20
	b.lines = append(b.lines, line)
	b.lines = slices.Delete(b.lines, 0, max(0, len(b.lines)-kept))
	fmt.Fprintln(b.logFile, line)
}

func (b *build) tail() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lines)
}
