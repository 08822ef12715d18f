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

// plan has everything that determines the content of a root disk, except the versions of
// Debian's packages. Its digest names the root disk, so any change of the
// plan, also by a change of this package's code, makes another root disk.
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
	Kernel    string // its package; the build determines the version
	Pruned    []string
	Args      []string // kernel arguments; not on the disk
	From      string   `json:",omitempty"` // OCI image
	Env       []string `json:"-"`          // lines of /etc/environment; also in Overlay
	Units     []string `json:"-"`          // that must be active before a computer is ready; also in Overlay and Setup
	Engine    string   `json:"-"`          // that its computers need; not on the disk
}

// groundPackages are the packages that every image needs to boot and to run as a
// computer.
func groundPackages() []string {
	return []string{
		"systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev", "kmod", "ca-certificates",
		"libnss-myhostname", "dbus-user-session",
	}
}

// groundArgs are kernel arguments for every image. The guest agent configures the
// one network link before udev could rename it, so it keeps its name.
func groundArgs() []string { return []string{"net.ifnames=0"} }

// newPlan returns the plan of a recipe on this host.
func newPlan(r Recipe, opt Options, log *slog.Logger) (plan, error) {
	p := plan{
		Name: r.Name, Summary: r.Summary, Arch: runtime.GOARCH,
		Packages: uniq(slices.Concat(groundPackages(), r.Packages)),
		DiskMB:   r.DiskSizeMB, From: r.From, Kernel: kernelPackage(), Pruned: needless(), Args: slices.Concat(groundArgs(), r.KernelArgs), Units: r.Services.units(), Engine: r.Engine,
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
		log.Warn("guests do not get the host's proxy: it is on the loopback or has a password", "variables", dropped)
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

// mkfsOptions make a file system whose tables are complete before the first mount,
// that reserves 5 % for root, so that a full disk can be repaired, and that shows
// its whole size in df.
func mkfsOptions() []string {
	return []string{
		"-q", "-F", "-t", "ext4", "-L", "holt-root", "-m", "5",
		"-E", "lazy_itable_init=0,lazy_journal_init=1,root_owner=0:0",
	}
}

func megabytes(n int) string { return strconv.Itoa(n) + "M" }
