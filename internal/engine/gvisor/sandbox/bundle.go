package sandbox

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	rflag "gvisor.dev/gvisor/runsc/flag"

	"holt/internal/engine/machine"
)

const (
	panicFile     = "panic.log"                      // in the machine's directory: what the sentry says when it crashes
	guestBoot     = "/run/holt-boot"                 // where the guest has the program holt-guest at first
	workspaceIn   = "/home/agent"                    // in the guest
	networkMTU    = 16 << 10                         // maximum payload of a frame, bytes, as in package netstack
	networkMAC    = "52:54:00:68:6f:6c"              // of the guest
	networkArg    = "10.0.2.15/24,10.0.2.2,10.0.2.3" // see machine.ArgNetwork
	openFiles     = 1 << 20
	annotationRAM = "dev.holt.memory_bytes" // see Dispatch
	annotationCPU = "dev.holt.cpus"
)

// noSeccomp has systemd set no filters of system calls for its services (systemd's docs/ENVIRONMENT.md). gVisor tries each
// filter for each number of a call when a service starts and when a sandbox is restored: a sixth of the time of a create.
// The filters would protect the guest from its own services only.
const noSeccomp = "SYSTEMD_SECCOMP=0"

// capabilities are all that a virtual machine's root has, except for kernel modules, raw I/O and MAC.
const capabilities = `CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID CAP_SETUID CAP_SETPCAP
CAP_LINUX_IMMUTABLE CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_NET_ADMIN CAP_NET_RAW CAP_IPC_LOCK CAP_IPC_OWNER CAP_SYS_CHROOT CAP_SYS_PTRACE
CAP_SYS_PACCT CAP_SYS_ADMIN CAP_SYS_BOOT CAP_SYS_NICE CAP_SYS_RESOURCE CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_MKNOD CAP_LEASE CAP_AUDIT_WRITE
CAP_AUDIT_CONTROL CAP_SETFCAP CAP_SYSLOG CAP_WAKE_ALARM CAP_AUDIT_READ`

// writeBundle writes the OCI bundle. It must be the same for a machine and all that are restored from its images.
func writeBundle(spec machine.Spec) error {
	caps := strings.Fields(capabilities)
	args := []string{guestBoot + "/holt-guest", "sandbox"}
	if spec.Network {
		args = append(args, "--net", networkArg)
	}
	shared := []string{"rbind"}
	if spec.Unserved {
		// gVisor adds this to a FUSE mount, and so to the restored machine's.
		shared = append(shared, "disable_file_handle_sharing")
	}
	file := &specs.Spec{
		Version:  specs.Version,
		Hostname: "holt",
		Process: &specs.Process{
			Args: args, Cwd: "/",
			Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=linux", "container=holt", noSeccomp},
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps, Inheritable: caps},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: openFiles, Soft: openFiles}},
		},
		Root: &specs.Root{Path: rootDir},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "/proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "/tmpfs", Options: []string{"mode=755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "/devpts", Options: []string{"mode=620", "gid=5", "ptmxmode=666"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "/tmpfs", Options: []string{"mode=1777", share(spec, 50)}},
			{Destination: "/sys", Type: "sysfs", Source: "/sysfs"},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "/cgroup"},
			{Destination: "/run", Type: "tmpfs", Source: "/tmpfs", Options: []string{"mode=755", share(spec, 20)}},
			{Destination: guestBoot, Type: "bind", Source: guestDir, Options: []string{"rbind", "ro"}},
			{Destination: workspaceIn, Type: "bind", Source: workspaceDir, Options: shared},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}},
			Resources:  &specs.LinuxResources{},
		},
		Annotations: map[string]string{
			annotationRAM: fmt.Sprint(int64(spec.MemoryMB) << 20),
			annotationCPU: fmt.Sprint(spec.CPUs),
		},
	}
	b, err := json.MarshalIndent(file, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundleDir, "config.json"), b, 0o600)
}

// share is the size of a tmpfs, as Linux and systemd have it: a part of the memory.
func share(spec machine.Spec, percent int64) string {
	return fmt.Sprintf("size=%d", int64(spec.MemoryMB)<<20*percent/100)
}

// settings are what would be runsc's flags. They reach sentry and gofer as flags.
func settings(dir, debug string) (*config.Config, error) {
	flags := rflag.NewFlagSet("runsc", rflag.ContinueOnError)
	config.RegisterFlags(flags)
	all := map[string]string{
		"root":                    bundleDir + "/state",
		"panic-log":               dir + "/" + panicFile,
		"network":                 "sandbox",
		"host-settings":           "ignore",
		"sidecar-usage-policy":    "LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK", // this program is all of gVisor
		"ignore-cgroups":          "true",                                     // the engine puts the keeper into a group
		"gofer-network-namespace": "host",                                     // the keeper's, which has nothing
		"in-sandbox-cgroup":       "v2",
		"overlay2":                "none", // the root disk is an overlay of the host, so that a crash loses nothing
		"file-access":             "exclusive",
		"file-access-mounts":      "shared", // the workspace changes from outside
		"net-raw":                 "true",
		"allow-suid":              "true",
	}
	if debug != "" {
		all["debug"], all["debug-log"] = "true", debug
	}
	for name, value := range all {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("set gVisor's %s: %w", name, err)
		}
	}
	return config.NewFromFlags(flags)
}

// links are the sandbox's network: a loopback, and eth0 on a socket whose messages are frames.
func links(socket *os.File, restore bool) *boot.CreateLinksAndRoutesArgs {
	args := &boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}, IsRestore: restore}
	if socket == nil {
		return args
	}
	mac, _ := net.ParseMAC(networkMAC)
	_, subnet, _ := net.ParseCIDR("10.0.2.0/24")
	args.FDBasedLinks = []boot.FDBasedLink{{
		Name: "eth0", MTU: networkMTU, LinkAddress: mac, NumChannels: 1, QDisc: config.QDiscNone, ProcessorsPerChannel: 1,
		Addresses:         []boot.IPWithPrefix{{Address: net.IPv4(10, 0, 2, 15).To4(), PrefixLen: 24}},
		Routes:            []boot.Route{{Destination: *subnet}},
		RXChecksumOffload: true, // a socket changes nothing
	}}
	args.Defaultv4Gateway = boot.DefaultRoute{Name: "eth0", Route: boot.Route{
		Destination: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Gateway: net.IPv4(10, 0, 2, 2).To4(),
	}}
	args.FilePayload.Files = []*os.File{socket}
	return args
}

// linkPair returns the two ends of the guest's network link.
func linkPair() (near, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a network link: %w", err)
	}
	for _, fd := range fds {
		for _, option := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 4<<20)
		}
	}
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link of the sandbox"), nil
}
