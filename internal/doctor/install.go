package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holt"
)

var packageRE = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// Install installs Debian packages with apt-get, as root. progress may be nil; it
// gets a description of the step and the fraction done, 0 to 1.
//
// Errors: InvalidArgument (an invalid package name), Unsupported (no apt-get),
// Forbidden (not root), Unavailable (packages cannot be fetched), Internal. The
// detail has the last lines that apt-get printed.
func Install(ctx context.Context, packages []string, progress func(what string, fraction float64)) error {
	if progress == nil {
		progress = func(string, float64) {}
	}
	for _, p := range packages {
		if !packageRE.MatchString(p) {
			return holt.Errorf(holt.InvalidArgument, "invalid name of a Debian package: %q", p)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return holt.Errorf(holt.Unsupported, "apt-get is not installed").
			WithHint("install with this system's package manager: %s", strings.Join(packages, " "))
	}
	if os.Geteuid() != 0 {
		return holt.Errorf(holt.Forbidden, "installing packages needs root").
			WithHint("sudo apt-get install %s", strings.Join(packages, " "))
	}
	progress("updating package lists", 0)
	// An error of one source is ignored: the install fails if it needs that source.
	updated := aptGet(ctx, func(string, float64) {}, "update")
	if ctx.Err() != nil {
		return fmt.Errorf("install packages: %w", ctx.Err())
	}
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	err := aptGet(ctx, func(what string, percent float64) { progress(what, 0.1+0.9*percent/100) }, args...)
	if err != nil {
		if updated != nil && holt.CodeOf(err) == holt.Internal {
			return updated
		}
		return err
	}
	progress("done", 1)
	return nil
}

// aptGet runs apt-get and reports its status lines (APT::Status-Fd): the kind,
// a package, percent, and a description, between colons.
func aptGet(ctx context.Context, progress func(what string, percent float64), args ...string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{
		"-q", "-o", "APT::Status-Fd=3", "-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Use-Pty=0",
		"-o", "DPkg::Lock::Timeout=120",
	}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	cmd.ExtraFiles = []*os.File{w}
	// On SIGINT apt leaves dpkg's state consistent.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("start apt-get: %w", err)
	}
	read := make(chan struct{})
	go func() { readStatus(r, progress); close(read) }()
	err = cmd.Wait()
	r.SetReadDeadline(time.Now().Add(time.Second)) // a daemon that a package started may have inherited the pipe
	<-read
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("install packages: %w", ctx.Err())
	}
	return aptError(args, printed.String(), err)
}

func readStatus(r *os.File, progress func(string, float64)) {
	var line []byte
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		for _, c := range buf[:n] {
			if c != '\n' {
				if len(line) < 4096 {
					line = append(line, c)
				}
				continue
			}
			if what, percent, ok := parseStatus(string(line)); ok {
				progress(what, percent)
			}
			line = line[:0]
		}
		if err != nil {
			return
		}
	}
}

// parseStatus reads one line such as "pmstatus:fuse3:42.5:Unpacking fuse3 (amd64)".
// Fetching and installing each count from 0 to 100; fetching is mapped to the
// first 40 %.
func parseStatus(line string) (what string, percent float64, ok bool) {
	f := strings.SplitN(line, ":", 4)
	if len(f) < 4 {
		return "", 0, false
	}
	percent, err := strconv.ParseFloat(f[2], 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return "", 0, false
	}
	switch f[0] {
	case "dlstatus":
		return f[3], percent * 0.4, true
	case "pmstatus":
		return f[3], 40 + percent*0.6, true
	}
	return "", 0, false
}

// aptError returns an error with apt-get's messages.
func aptError(args []string, printed string, cause error) error {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	said := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, "E: ") })
	text := strings.Join(said, "; ")
	if text == "" {
		text = cause.Error()
	}
	code, hint := holt.Internal, "run it yourself: apt-get "+strings.Join(args, " ")
	switch {
	case strings.Contains(printed, "No space left on device") || strings.Contains(printed, "don't have enough free space"):
		code, hint = holt.OutOfSpace, "free space on the system's disk"
	case strings.Contains(text, "fetch") || strings.Contains(text, "resolve") || strings.Contains(text, "Release"):
		code, hint = holt.Unavailable, "check that apt-get update works on this host"
	case strings.Contains(text, "Unable to locate package"):
		code, hint = holt.NotFound, "check that the sources of this host's apt include Debian's main archive"
	case strings.Contains(text, "Could not get lock"):
		code, hint = holt.Conflict, "another package manager is running; try again when it has ended"
	}
	err := holt.Errorf(code, "apt-get %s: %s", args[0], text).WithHint("%s", hint)
	err.Detail = map[string]any{"printed": lines[max(0, len(lines)-20):]}
	return err
}
