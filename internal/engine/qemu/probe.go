package qemu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"holt"
	"holt/internal/engine/machine"
)

// preferredMachine is the machine type that memory images are tied to. It is
// never microvm, which hangs at random under TCG and has no hotplug.
const preferredMachine = "pc-q35-7.2"

// verdictFile stores a Verdict in the cache directory.
const verdictFile = "qemu.json"

// maxVerdict is the maximum size of that file, bytes.
const maxVerdict = 64 << 10

// Verdict describes QEMU on this host.
type Verdict struct {
	Binary      string               `json:"binary"`       // resolved path
	Version     string               `json:"version"`      // such as "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"
	MachineType string               `json:"machine_type"` // the versioned q35, such as "pc-q35-7.2"
	Accel       machine.Acceleration `json:"accel"`
	Reason      string               `json:"reason"` // a sentence: why this acceleration
	BootID      string               `json:"boot_id"`
	HostCPU     string               `json:"host_cpu"` // its name, and a checksum of its features
}

// Probe checks QEMU and KVM: the processor's flags, the device, and a test boot of
// a tiny program, with a deadline of 20 s, in a process that is then killed. KVM is
// used only if all checks succeed. A verdict in opt.CacheDir from the same boot of
// the host and the same QEMU is reused.
//
// Errors: Unsupported if QEMU is not installed or not for this processor.
func Probe(ctx context.Context, opt Options) (Verdict, error) {
	v, err := inspect(ctx, opt.Binary)
	if err != nil {
		return Verdict{}, err
	}
	if kept, err := readVerdict(opt.CacheDir); err == nil &&
		kept.BootID == v.BootID && kept.HostCPU == v.HostCPU && kept.Version == v.Version && kept.Binary == v.Binary {
		return kept, nil
	}
	if v.MachineType, err = machineType(ctx, v.Binary); err != nil {
		return Verdict{}, err
	}
	v.Accel, v.Reason = machine.AccelKVM, "a test program booted under KVM"
	if why := whyNotKVM(ctx, v.Binary); why != "" {
		if ctx.Err() != nil {
			return Verdict{}, fmt.Errorf("probe KVM: %w", ctx.Err())
		}
		v.Accel, v.Reason = machine.AccelTCG, why
	}
	if err := writeVerdict(opt.CacheDir, v); err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// whyNotKVM returns why KVM does not work, or "".
func whyNotKVM(ctx context.Context, binary string) string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return fmt.Sprintf("the processor cannot be inspected: %v", err)
	}
	f, devErr := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if devErr == nil {
		f.Close()
	}
	if why := judge(info, devErr); why != "" {
		return why
	}
	if err := bootProbe(ctx, binary, machine.AccelKVM); err != nil {
		return fmt.Sprintf("a test program did not boot under KVM: %v", err)
	}
	return ""
}

// judge returns why KVM cannot work, given /proc/cpuinfo and the error of opening /dev/kvm.
func judge(cpuinfo []byte, device error) string {
	flags := cpuFlags(cpuinfo)
	switch {
	case !flags["vmx"] && !flags["svm"] && flags["hypervisor"]:
		why := "this host is itself a virtual machine and its processor offers no virtualisation (neither vmx nor svm)"
		if device == nil {
			why += "; the existence of /dev/kvm proves nothing"
		}
		return why
	case !flags["vmx"] && !flags["svm"]:
		return "the processor offers no virtualisation (neither vmx nor svm); it may be turned off in the firmware"
	case errors.Is(device, fs.ErrNotExist):
		return "/dev/kvm does not exist: the kernel's kvm module is not loaded"
	case errors.Is(device, fs.ErrPermission):
		return "this user may not open /dev/kvm: add it to the group kvm, or run holt as root"
	case device != nil:
		return fmt.Sprintf("/dev/kvm cannot be opened: %v", device)
	}
	return ""
}

// cpuFlags returns the flags of the first processor.
func cpuFlags(cpuinfo []byte) map[string]bool {
	flags := map[string]bool{}
	for line := range bytes.Lines(cpuinfo) {
		name, value, _ := strings.Cut(string(line), ":")
		if strings.TrimSpace(name) == "flags" {
			for _, f := range strings.Fields(value) {
				flags[f] = true
			}
			break
		}
	}
	return flags
}

// describeCPU identifies a processor from /proc/cpuinfo: its name, and a
// checksum of its features in any order.
func describeCPU(cpuinfo []byte) string {
	name := "unknown"
	for line := range bytes.Lines(cpuinfo) {
		if key, value, _ := strings.Cut(string(line), ":"); strings.TrimSpace(key) == "model name" {
			name = strings.TrimSpace(value)
			break
		}
	}
	flags := slices.Sorted(maps.Keys(cpuFlags(cpuinfo)))
	sum := sha256.Sum256([]byte(strings.Join(flags, " ")))
	return fmt.Sprintf("%s (%x)", clip(name), sum[:8])
}

// inspect finds the binary and its version.
func inspect(ctx context.Context, binary string) (Verdict, error) {
	boot, err := machine.BootID()
	if err != nil {
		return Verdict{}, err
	}
	if binary == "" {
		binary = "qemu-system-x86_64"
	}
	path, err := exec.LookPath(binary)
	if err != nil {
		return Verdict{}, holt.Errorf(holt.Unsupported, "QEMU is not installed: %w", err).
			WithHint("install the packages qemu-system-x86 and qemu-utils")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return Verdict{}, fmt.Errorf("find QEMU: %w", err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return Verdict{}, holt.Errorf(holt.Unsupported, "ask %s for its version: %w", path, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	version, ok := strings.CutPrefix(first, "QEMU emulator version ")
	if !ok {
		return Verdict{}, holt.Errorf(holt.Unsupported, "%s does not print a QEMU version", path)
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return Verdict{}, fmt.Errorf("inspect the processor: %w", err)
	}
	return Verdict{Binary: path, Version: strings.TrimSpace(version), BootID: boot, HostCPU: describeCPU(info)}, nil
}

// machineType returns the preferred machine type, or else the newest versioned q35 of this QEMU.
func machineType(ctx context.Context, binary string) (string, error) {
	out, err := exec.CommandContext(ctx, binary, "-machine", "help").Output()
	if err != nil {
		return "", holt.Errorf(holt.Unsupported, "ask %s for its machine types: %w", binary, err)
	}
	if name := pickMachine(string(out)); name != "" {
		return name, nil
	}
	return "", holt.Errorf(holt.Unsupported, "%s has no versioned q35 machine", binary).
		WithHint("install qemu-system-x86 7.2 or newer")
}

var q35RE = regexp.MustCompile(`(?m)^pc-q35-(\d+)\.(\d+)\s`)

func pickMachine(help string) string {
	best, rank := "", -1
	for _, m := range q35RE.FindAllStringSubmatch(help, -1) {
		name := strings.TrimSpace(m[0])
		if name == preferredMachine {
			return name
		}
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi(m[2])
		if r := major*1000 + minor; r > rank {
			best, rank = name, r
		}
	}
	return best
}

func readVerdict(dir string) (Verdict, error) {
	if dir == "" {
		return Verdict{}, fs.ErrNotExist
	}
	f, err := os.Open(filepath.Join(dir, verdictFile))
	if err != nil {
		return Verdict{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxVerdict))
	if err != nil {
		return Verdict{}, err
	}
	return parseVerdict(b)
}

func parseVerdict(b []byte) (Verdict, error) {
	var v Verdict
	if err := json.Unmarshal(b, &v); err != nil {
		return Verdict{}, err
	}
	if (v.Accel != machine.AccelKVM && v.Accel != machine.AccelTCG) || pickMachine(v.MachineType+"\n") != v.MachineType || v.MachineType == "" {
		return Verdict{}, errors.New("not a verdict")
	}
	return v, nil
}

// writeVerdict stores v; without a directory it does nothing.
func writeVerdict(dir string, v Verdict) error {
	if dir == "" {
		return nil
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode verdict: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("store verdict: %w", err)
	}
	f, err := os.CreateTemp(dir, verdictFile+".")
	if err != nil {
		return fmt.Errorf("store verdict: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, verdictFile))
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("store verdict: %w", err)
	}
	return nil
}
