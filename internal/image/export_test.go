package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Suite is the release of guests.
const Suite = suite

// MinimalTree makes a tar file of a Debian of the guest's release with only the essential
// packages, and with a user that has the number of agent. It takes half a minute.
func MinimalTree(t *testing.T) string {
	t.Helper()
	needsRoot(t)
	dir := t.TempDir()
	sources, err := hostSources("/etc/apt", release(os.DirFS("/")))
	if err != nil {
		t.Fatal(err)
	}
	a, err := newApt(t.Context(), filepath.Join(dir, "apt"), sources, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	conf, list, out := filepath.Join(dir, "apt.conf"), filepath.Join(dir, "holt.sources"), filepath.Join(dir, "tree.tar")
	for name, text := range map[string]string{conf: strings.Join(a.acquire, "\n") + "\n", list: string(formatSources(a.sources))} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("mmdebstrap", "--variant=essential", "--include=passwd", "--mode=root", "--aptopt="+conf,
		`--dpkgopt=force-unsafe-io`, `--dpkgopt=path-exclude=/usr/share/doc/*`, `--dpkgopt=path-exclude=/usr/share/locale/*`, `--dpkgopt=path-exclude=/usr/share/man/*`,
		`--customize-hook=chroot "$1" useradd -u 1000 -m node`, suite, out, list)
	cmd.Dir, cmd.Env = dir, append(buildEnv(), "TMPDIR="+dir)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return out
}

// Unpack writes the files of an OCI image into a tar file.
func Unpack(t *testing.T, ref string, limit int64) (string, []string, error) {
	t.Helper()
	o, err := parseOrigin(ref)
	if err != nil {
		return "", nil, err
	}
	to := filepath.Join(t.TempDir(), "from.tar")
	f, err := o.unpack(t.Context(), to, limit, func(float64) {})
	return to, f.env, err
}

// WithKernel returns the directory of a store that has a kernel.
func WithKernel(t *testing.T) string { return withKernel(t) }
