package agent

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"holt/internal/guest/channel"
)

// Descriptors of the line to the host in a sandbox's first processes: see
// [channel.Pipe]. In the second process of the agent they follow [stateFD].
const (
	lineIn  = 3
	lineOut = 4
)

// hostDir is where a sandbox has this program from its host.
const hostDir = "/run/holt-boot"

// unfit are units that do not work in a sandbox: it has no devices, modules or
// settings of the kernel, and its host mounts and grows the root file system.
var unfit = []string{
	"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udev-trigger.service",
	"systemd-sysctl.service", "systemd-modules-load.service", "systemd-remount-fs.service", "systemd-growfs@-.service",
}

// bootSandbox is PID 1 of a gVisor sandbox, whose host has mounted the file
// systems and configured the network: it starts the agent and becomes the root's
// init. It returns only if a step fails, which ends the sandbox.
func bootSandbox(args []string) error {
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	netArg := flags.String("net", "", "static network")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b := &boot{args: map[string]string{argNet: *netArg}, sandbox: true}
	last := []step{{"start the agent", b.startAgent}, {"start " + initPath, startInit}}
	if !isThere(initPath) {
		last = []step{{"become the agent", b.becomeAgent}}
	}
	for _, s := range append([]step{
		{"prepare /run", func() error { return errors.Join(fillRun(""), maskUnits("")) }},
		{"unmount " + hostDir, leaveHost},
		{"unmount /tmp", leaveTmp},
		{"mount cgroups", mountCgroups},
		{"raise limits", raisePermitted},
	}, last...) {
		if err := s.do(); err != nil {
			return fmt.Errorf("cannot %s: %w", s.name, err)
		}
	}
	return nil
}

// maskUnits disables the unfit units of the root at root (systemd.unit(5)).
func maskUnits(root string) error {
	for _, unit := range unfit {
		if err := os.Symlink(os.DevNull, root+runtimeUnits+"/"+unit); err != nil {
			return err
		}
	}
	return nil
}

// leaveHost unmounts the host's directory: all that runs from now on runs from
// the copy in /run, so an image of the memory does not depend on the host's file.
func leaveHost() error { return unix.Unmount(hostDir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }

// leaveTmp unmounts the tmpfs that gVisor mounts on an empty /tmp: it is a
// directory of the root disk, as in a virtual machine.
func leaveTmp() error {
	if err := unix.Unmount("/tmp", unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// raisePermitted raises the limits that gVisor lets it raise.
func raisePermitted() error {
	err := raiseLimits()
	if errors.Is(err, unix.EPERM) {
		fmt.Fprintf(os.Stderr, "holt-guest: some limits stay lower: %v\n", err)
		return nil
	}
	return err
}

// startInit executes the root's init in this process. Its environment tells
// systemd that it runs in a container.
func startInit() error { return syscall.Exec(initPath, []string{initPath}, os.Environ()) }

// becomeAgent executes the agent in this process if the root has no init: the
// agent also reaps orphans, and the sandbox ends with it.
func (b *boot) becomeAgent() error {
	for _, fd := range []uintptr{lineIn, lineOut} { // Main has marked them as close-on-exec
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep the line to the host: %w", err)
		}
	}
	return syscall.Exec(GuestPath, b.agentArgs(), os.Environ())
}

// openLine returns the port on the line to the host, in the agent's second process.
func openLine() (*channel.Port, error) {
	var ends [2]*os.File
	for i := range ends {
		fd := stateFD + 1 + i
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, fmt.Errorf("open the line to the host: %w", err)
		}
		ends[i] = os.NewFile(uintptr(fd), "line to the host")
	}
	line, err := channel.NewPipe(ends[0], ends[1])
	if err != nil {
		return nil, fmt.Errorf("open the line to the host: %w", err)
	}
	return channel.NewPort(line), nil
}
