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

func (h host) processor(_ context.Context, _ Options) holt.Finding {
	if h.arch != "amd64" {
		return bad("this host is "+h.arch, "holt's machines need an x86-64 host")
	}
	c, err := h.cpu()
	if err != nil {
		return warn(err.Error(), "")
	}
	found := fmt.Sprintf("%d × %s", c.number, c.model)
	if c.virt == "" {
		return warn(found+", without hardware virtualisation",
			"machines run in software emulation, 5 to 20 times slower; use a host with VT-x or AMD-V, or enable nested virtualisation for this one")
	}
	return ok(found + ", " + c.virt)
}

func (h host) kvm(ctx context.Context, opt Options) holt.Finding {
	const slow = "machines run in software emulation, which is slow but complete"
	dev, err := os.OpenFile(h.path("dev/kvm"), os.O_RDWR, 0)
	switch {
	case os.IsNotExist(err):
		return warn("there is no /dev/kvm", slow+"; try: modprobe kvm_intel || modprobe kvm_amd")
	case os.IsPermission(err):
		return warn("/dev/kvm may not be opened by this user", "add the user to the group kvm, or run as root")
	case err != nil:
		return warn("/dev/kvm cannot be opened: "+err.Error(), slow)
	}
	dev.Close()
	if opt.Probe == nil {
		if c, err := h.cpu(); err != nil || c.virt == "" {
			return warn("/dev/kvm exists, but the processor lacks vmx and svm", slow)
		}
		return ok("/dev/kvm exists and the processor has virtualisation; no test program was booted")
	}
	p, err := opt.Probe(ctx)
	switch {
	case err != nil:
		return warn("the probe failed: "+err.Error(), slow)
	case !p.KVM:
		return warn("not usable: "+p.Reason, slow)
	}
	return ok(p.Reason)
}

// leastQEMU is the first major version with the machine type that holt uses.
const leastQEMU = 7

func (h host) qemu(ctx context.Context, _ Options) holt.Finding {
	packages := []string{"qemu-system-x86", "qemu-utils"}
	binary, err := h.look("qemu-system-x86_64")
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
