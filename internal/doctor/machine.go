package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"holt"
	"holt/internal/image"
)

func thisHost() host {
	return host{root: "/", look: exec.LookPath, arch: runtime.GOARCH, uid: os.Geteuid(), gid: os.Getegid()}
}

func (h host) path(name string) string { return filepath.Join(h.root, name) }

// cpu is the first processor of /proc/cpuinfo.
type cpu struct {
	model  string
	virt   string // vmx, svm or empty
	number int
}

func parseCPU(info string) cpu {
	var c cpu
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			c.number++
		case "model name":
			c.model = value
		case "flags":
			for flag := range strings.FieldsSeq(value) {
				if flag == "vmx" || flag == "svm" {
					c.virt = flag
				}
			}
		}
	}
	return c
}

func (h host) cpu() (cpu, error) {
	data, err := os.ReadFile(h.path("proc/cpuinfo"))
	if err != nil {
		return cpu{}, fmt.Errorf("read the processor: %w", err)
	}
	return parseCPU(string(data)), nil
}

func (h host) processor(_ context.Context, opt Options) holt.Finding {
	if h.arch != "amd64" {
		return bad("this host is "+h.arch, "holt's machines need an x86-64 host")
	}
	c, err := h.cpu()
	if err != nil {
		return warn(err.Error(), "")
	}
	found := fmt.Sprintf("%d × %s", c.number, c.model)
	if c.virt == "" {
		found += ", without hardware virtualisation"
		if opt.sandboxes() {
			return ok(found)
		}
		return warn(found,
			"machines run in software emulation, 5 to 20 times slower; use a host with VT-x or AMD-V, or enable nested virtualisation for this one")
	}
	return ok(found + ", " + c.virt)
}

func (h host) kvm(ctx context.Context, opt Options) holt.Finding {
	const slow = "machines run in software emulation, which is slow but complete"
	none := func(found, do string) holt.Finding {
		if opt.sandboxes() {
			return ok(found + "; computers run in gVisor sandboxes")
		}
		return warn(found, do)
	}
	dev, err := os.OpenFile(h.path("dev/kvm"), os.O_RDWR, 0)
	switch {
	case os.IsNotExist(err):
		return none("there is no /dev/kvm", slow+"; try: modprobe kvm_intel || modprobe kvm_amd")
	case os.IsPermission(err):
		return warn("/dev/kvm may not be opened by this user", "add the user to the group kvm, or run as root")
	case err != nil:
		return none("/dev/kvm cannot be opened: "+err.Error(), slow)
	}
	dev.Close()
	if opt.Probe == nil || opt.sandboxes() && !h.hasKVM() {
		if c, err := h.cpu(); err != nil || c.virt == "" {
			return none("/dev/kvm exists, but the processor lacks vmx and svm", slow)
		}
		return ok("/dev/kvm exists and the processor has virtualisation; no test program was booted")
	}
	p, err := opt.Probe(ctx)
	switch {
	case err != nil:
		return none("the probe failed: "+err.Error(), slow)
	case !p.KVM:
		return none("not usable: "+p.Reason, slow)
	}
	return ok(p.Reason)
}

// hasKVM reports whether KVM may work. Only a test program shows whether it does.
func (h host) hasKVM() bool {
	dev, err := os.OpenFile(h.path("dev/kvm"), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	dev.Close()
	c, err := h.cpu()
	return err == nil && c.virt != ""
}

// sandboxes reports whether gVisor can be used instead of KVM.
func (opt Options) sandboxes() bool {
	return opt.Engine != "qemu" && opt.Engine != "local" && opt.GVisor != nil && installable(opt.GVisor())
}

// installable reports whether an engine works, or does once its packages are installed.
func installable(err error) bool { return err == nil || len(packagesOf(err)) > 0 }

// packagesOf returns the Debian packages whose lack is all that is wrong.
func packagesOf(err error) []string {
	detail, _ := holt.AsError(err).Detail.(map[string]any)
	packages, _ := detail["install"].([]string)
	return packages
}

// wantsQEMU reports whether computers run on QEMU by default.
func (h host) wantsQEMU(opt Options) bool {
	switch opt.Engine {
	case "gvisor", "local":
		return false
	case "qemu":
		return true
	}
	return h.hasKVM() || !opt.sandboxes()
}

func (h host) gvisor(_ context.Context, opt Options) holt.Finding {
	if opt.GVisor == nil {
		return ok("not checked")
	}
	err := opt.GVisor()
	if err == nil {
		return ok("sandboxes work")
	}
	switch do := holt.AsError(err).Hint; {
	case opt.Engine == "gvisor":
		return bad(err.Error(), do, packagesOf(err)...)
	case opt.Engine == "qemu" || opt.Engine == "local" || h.hasKVM():
		return ok("not usable, and not needed: " + err.Error())
	case installable(err):
		return bad(err.Error(), do, packagesOf(err)...)
	default:
		return warn(err.Error(), do)
	}
}

// leastQEMU is the first major version with the machine type that holt uses.
const leastQEMU = 7

func (h host) qemu(ctx context.Context, opt Options) holt.Finding {
	packages := []string{"qemu-system-x86", "qemu-utils"}
	binary, err := h.look("qemu-system-x86_64")
	if err != nil && !h.wantsQEMU(opt) {
		return holt.Finding{Verdict: holt.VerdictOK, Found: "not installed, and not needed by default", Do: "Docker and kernel modules need it: apt-get install " + strings.Join(packages, " ")}
	}
	if err != nil {
		return bad("QEMU is not installed", "apt-get install "+strings.Join(packages, " "), packages...)
	}
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return bad(binary+" does not run: "+err.Error(), "install it again", packages...)
	}
	version, major := parseQEMUVersion(string(out))
	if major < leastQEMU {
		return bad("QEMU "+version+" is too old", fmt.Sprintf("install QEMU %d or later", leastQEMU), packages...)
	}
	if _, err := h.look("qemu-img"); err != nil {
		return bad("QEMU "+version+" without qemu-img", "apt-get install qemu-utils", "qemu-utils")
	}
	return ok("QEMU " + version)
}

// parseQEMUVersion reads "QEMU emulator version 7.2.22 (Debian …)".
func parseQEMUVersion(out string) (version string, major int) {
	first, _, _ := strings.Cut(out, "\n")
	_, version, found := strings.Cut(first, "version ")
	if !found {
		return strings.TrimSpace(first), 0
	}
	version, _, _ = strings.Cut(version, " ")
	if _, err := fmt.Sscanf(version, "%d.", &major); err != nil {
		return version, 0
	}
	return version, major
}

func (h host) imageTools(_ context.Context, _ Options) holt.Finding {
	programs, packages := image.Missing(h.look)
	if len(programs) > 0 {
		return bad("missing: "+strings.Join(programs, ", "), "apt-get install "+strings.Join(packages, " "), packages...)
	}
	return ok("all installed")
}
