package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"

	"holt"
)

// plan is everything that decides what a root disk holds, save what Debian
// offers on the day of the build. Its digest names the root disk, so that a
// plan that changes in any way, also because this package's code does, makes a new one.
type plan struct {
	Name      string
	Summary   string
	Arch      string
	Packages  []string
	Bootstrap []string // options of mmdebstrap
	Sources   []source
	Overlay   []byte // tar without its end
	Setup     string // script
	Mkfs      []string
	DiskMB    int
	Kernel    string // the package it comes from; its version is known only when it is built
	Pruned    []string
	Args      []string // kernel arguments; no part of the disk
	From      string   `json:",omitempty"` // OCI image
	Env       []string `json:"-"`          // lines of /etc/environment; in Overlay, too
	Units     []string `json:"-"`          // that have to be up before a computer is ready; in Overlay and Setup, too
}

// groundPackages are what every image needs to boot and to be one of holt's,
// whatever its recipe names.
func groundPackages() []string {
	return []string{
		"systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev", "kmod", "ca-certificates",
		"libnss-myhostname", "dbus-user-session",
	}
}

// groundArgs are kernel arguments for every image. The guest agent configures the
// one network link before udev could rename it, so it keeps its name.
func groundArgs() []string { return []string{"net.ifnames=0"} }

// newPlan works out what the recipe means on this host.
func newPlan(r Recipe, opt Options, log *slog.Logger) (plan, error) {
	p := plan{
		Name: r.Name, Summary: r.Summary, Arch: runtime.GOARCH,
		Packages: uniq(slices.Concat(groundPackages(), r.Packages)),
		DiskMB:   r.DiskSizeMB, From: r.From, Kernel: kernelPackage(), Pruned: needless(), Args: slices.Concat(groundArgs(), r.KernelArgs), Units: r.Services.units(),
		Bootstrap: bootstrapOptions(r.From), Mkfs: mkfsOptions(),
	}
	var err error
	if p.Sources, err = hostSources("/etc/apt", release(os.DirFS("/"))); err != nil {
		return p, err
	}
	var extra []byte
	if *r.HostCertificates {
		bundle := opt.CertificateFile
		if bundle == "" {
			bundle = hostBundle
		}
		if extra, err = extraCertificates(bundle, distroCertificates); err != nil {
			return p, err
		}
	}
	env, dropped := guestEnv(extra, os.Getenv)
	if len(dropped) > 0 {
		log.Warn("guests get no proxy: the host's is on its loopback or has a password", "variables", dropped)
	}
	p.Env = env
	o := newOverlay()
	if err := o.guestFiles(r, p.Sources, extra, env); err != nil {
		return p, err
	}
	p.Setup = setupScript(r, len(extra) > 0)
	if err := o.put(setupPath, 0o644, []byte(p.Setup)); err != nil {
		return p, err
	}
	p.Overlay, err = o.static()
	return p, err
}

// digest names the root disk that this plan makes.
func (p plan) digest() (string, error) {
	p.Args, p.Summary = nil, ""
	data, err := json.Marshal(p)
	if err != nil {
		return "", holt.Errorf(holt.Internal, "digest the plan of %s: %w", p.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func uniq(list []string) []string {
	var out []string
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// mkfsOptions make a file system that is complete when it is first mounted
// (the guest's kernel has no tables left to write), keeps 5 % for root, so that
// a full disk can be mended, and shows its whole size in df.
func mkfsOptions() []string {
	return []string{
		"-q", "-F", "-t", "ext4", "-L", "holt-root", "-m", "5",
		"-E", "lazy_itable_init=0,lazy_journal_init=1,root_owner=0:0",
	}
}

func megabytes(n int) string { return strconv.Itoa(n) + "M" }
