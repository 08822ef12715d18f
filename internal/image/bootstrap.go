package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"holt"
)

// bootstrapOptions are options of mmdebstrap that do not depend on the build.
func bootstrapOptions(from string) []string {
	variant := "--variant=minbase"
	if from != "" { // the hook unpacks the OCI image and installs the packages
		variant = "--variant=custom"
	}
	return []string{variant, "--format=directory", "--skip=update", "--verbose"}
}

// bootstrap makes the tree of the root disk.
func (b *build) bootstrap(ctx context.Context, k kernel) error {
	t := b.scratch
	brought, err := b.fetchBase(ctx)
	if err != nil {
		return err
	}
	if err := writeOverlay(t.path("overlay.tar"), b.plan.Overlay, brought, k, filepath.Join(b.kernelDir(), kernelModules)); err != nil {
		return err
	}
	dpkg, err := ground.ReadFile("ground/etc/dpkg/dpkg.cfg.d/holt")
	if err != nil {
		return err
	}
	acquire := strings.Join(append(withoutPasswords(b.apt.acquire, b.plan.From != ""), `Acquire::Languages "none";`), "\n") + "\n"
	files := map[string]string{
		"release": k.Release, "dpkg.cfg": string(dpkg), "apt.conf": acquire,
		"holt.sources": string(formatSources(b.apt.sources)),
	}
	for name, text := range files {
		if err := os.WriteFile(t.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(t.path("hook"), []byte(hookScript), 0o755); err != nil {
		return err
	}
	mode := "root"
	if t.ids {
		mode = "unshare"
	}
	bootstrap := b.plan.Bootstrap
	if b.plan.From == "" {
		bootstrap = append(bootstrap, "--include="+strings.Join(b.plan.Packages, ","))
	}
	args := append(bootstrap,
		"--mode="+mode, "--architectures="+b.plan.Arch,
		"--aptopt="+t.path("apt.conf"), "--dpkgopt="+t.path("dpkg.cfg"),
		"--setup-hook="+t.path("hook"), "--customize-hook="+t.path("hook"),
		suite, t.path("tree"), t.path("holt.sources"))
	watch := &watcher{report: b.report, log: b.log}
	if err := b.exec(ctx, t.ids, nil, watch.line, "mmdebstrap", args...); err != nil {
		return b.explain(err, watch)
	}
	return nil
}

// workFull is noSpace for the directory where mmdebstrap works.
func (b *build) workFull(err error) error {
	if b.scratch.ids && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		return holt.Errorf(holt.OutOfSpace, "the disk of %s is full: %w", filepath.Dir(b.scratch.work), err).
			WithHint("free space there, or set TMPDIR to another directory")
	}
	return noSpace(err, b.store.dir)
}

// fetchBase fetches the OCI image of the recipe, if it has one. It returns the
// image's environment and the plan's, in the format of /etc/environment.
func (b *build) fetchBase(ctx context.Context) ([]byte, error) {
	if b.plan.From == "" {
		return nil, nil
	}
	o, err := parseOrigin(b.plan.From)
	if err != nil {
		return nil, err
	}
	b.report("image", "fetching "+b.plan.From, 0.055)
	from, err := o.unpack(ctx, b.scratch.path("from.tar"), int64(b.plan.DiskMB)<<20, func(part float64) {
		b.report("image", "unpacking "+b.plan.From, 0.055+part*0.02)
	})
	if err != nil {
		return nil, b.workFull(err)
	}
	b.log("holt: " + b.plan.From + " is " + from.digest)
	packages := strings.Join(b.plan.Packages, "\n") + "\n"
	err = os.WriteFile(b.scratch.path("packages"), []byte(packages), 0o644)
	return []byte(strings.Join(slices.Concat(from.env, b.plan.Env), "\n") + "\n"), b.workFull(err)
}

// withoutPasswords leaves out proxies with a password if programs of a foreign image would
// see it. The build fails later if packages cannot be fetched without the proxy.
func withoutPasswords(lines []string, foreign bool) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		_, url, ok := strings.Cut(line, "://")
		host, _, _ := strings.Cut(url, "/")
		return foreign && ok && strings.Contains(host, "@")
	})
}

// exec runs a program and calls line with each line that it or its children print.
// It returns when all of them have ended: as root they run in a PID namespace,
// which ends with them or with this process, and in a mount namespace, which removes
// their mounts. Descriptor 3 is the build's lock, 4 is file unless that is nil. With
// ids the program runs in a user namespace with the scratch directory's user ids, so
// that programs of packages or of a foreign image have no rights on the host.
// Without root mmdebstrap makes the user namespace.
func (b *build) exec(ctx context.Context, ids bool, file *os.File, line func(string), name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = b.scratch.work
	cmd.Env = append(withoutPasswords(buildEnv(), b.plan.From != ""), "TMPDIR="+b.scratch.work)
	cmd.ExtraFiles = []*os.File{b.scratch.lock, file}
	contain(cmd)
	if ids && os.Geteuid() == 0 {
		mapped := []syscall.SysProcIDMap{{HostID: b.scratch.first, Size: idsOfOne}}
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = mapped, mapped, true
		cmd.SysProcAttr.Credential = &syscall.Credential{}
	}
	out := &lineWriter{line: line}
	cmd.Stdout, cmd.Stderr = out, out
	runtime.LockOSThread() // Pdeathsig is sent when the thread that forked ends
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	out.flush()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// contain ends cmd and its children with this thread, and the children with cmd: as
// root cmd is PID 1 of a namespace.
func contain(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
		return
	}
	// mmdebstrap makes its own namespaces, and ends them on SIGTERM.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
}

// explain returns an error with the cause of a failure of mmdebstrap.
func (b *build) explain(err error, w *watcher) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if free, ferr := freeBytes(b.scratch.work); w.noSpace || ferr == nil && free < leastFree {
		return b.workFull(fmt.Errorf("install packages: %w", syscall.ENOSPC))
	}
	var out *holt.Error
	switch {
	case w.unreachable != "":
		out = holt.Errorf(holt.Unavailable, "packages cannot be fetched: %s", w.unreachable).
			WithHint("check that apt-get update works on this host, then build again")
	case strings.HasPrefix(w.step, "setup "):
		out = holt.Errorf(holt.InvalidArgument, "%s of recipe %s failed", strings.Replace(w.step, "setup ", "setup command ", 1), b.plan.Name)
	default:
		out = holt.Errorf(holt.Internal, "install packages for %s: %w", b.plan.Name, err)
	}
	if out.Hint == "" {
		out.Hint = "the log is " + b.logPath
	}
	out.Detail = map[string]any{"log": b.logPath, "printed": b.tail()}
	return out
}

// lineWriter calls line for each line written to it. It truncates lines to maxLine
// bytes.
type lineWriter struct {
	line    func(string)
	pending []byte
}

const maxLine = 4096

func (w *lineWriter) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c == '\n' || c == '\r':
			w.flush()
		case len(w.pending) < maxLine:
			w.pending = append(w.pending, c)
		}
	}
	return len(p), nil
}

func (w *lineWriter) flush() {
	if len(w.pending) > 0 {
		w.line(string(w.pending))
		w.pending = w.pending[:0]
	}
}

// treeBytes returns the disk usage of a tree, without what cannot be read.
func treeBytes(dir string) int64 {
	var n int64
	filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil {
			if info, err := d.Info(); err == nil {
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					n += st.Blocks * 512
				}
			}
		}
		return nil
	})
	return n
}
