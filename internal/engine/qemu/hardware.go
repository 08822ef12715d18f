package qemu

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holt/internal/engine/machine"
)

// macAddress is the same for every guest: each has its own network, and a fork
// must keep its address.
const macAddress = "52:54:00:68:6f:6c"

// networkMTU is the maximum payload of a guest's Ethernet frame, bytes, as in package netstack.
const networkMTU = 16 << 10

// networkArg has the addresses of package netstack: guest, gateway, resolver.
const networkArg = machine.ArgNetwork + "=10.0.2.15/24,10.0.2.2,10.0.2.3"

// Inherited file descriptors. Those of an [exec.Cmd]'s ExtraFiles begin at 3.
const (
	fdLock = 3 + iota
	fdMonitor
	fdControl
	fdFiles
	fdConsole
	fdNetwork
)

// Names of sockets in a machine's directory, in addition to those of the ports.
const (
	monitorSocket = "qmp.sock"
	consoleSocket = "console.sock"
)

// Hardware describes the hardware of a guest. A memory image can be restored
// only with the same hardware.
type Hardware struct {
	MachineType string               `json:"machine_type"`
	Accel       machine.Acceleration `json:"accel"`
	CPUModel    string               `json:"cpu_model"`
	HostCPU     string               `json:"host_cpu,omitempty"` // if visible to the guest
	Version     string               `json:"qemu_version"`
	CPUs        int                  `json:"cpus"`      // at boot
	MemoryMB    int                  `json:"memory_mb"` // at boot
	Devices     []string             `json:"devices"`   // in the order of the command line
	Growth
}

// hardware returns the hardware for a spec. Bus addresses are fixed, so that a
// device keeps its address when another is absent.
func (v Verdict) hardware(spec machine.Spec) Hardware {
	h := Hardware{
		MachineType: v.MachineType,
		Accel:       v.Accel,
		CPUModel:    cpuModel(v.Accel),
		HostCPU:     hostCPU(v),
		Version:     v.Version,
		CPUs:        spec.CPUs,
		MemoryMB:    spec.MemoryMB,
		Devices: []string{
			"virtio-serial-pci,id=ports,max_ports=4,addr=0x2",
			"virtserialport,bus=ports.0,nr=1,chardev=control,name=" + machine.PortControl,
			"virtserialport,bus=ports.0,nr=2,chardev=files,name=" + machine.PortFiles,
			"virtio-rng-pci,id=rng,addr=0x3",
		},
		Growth: growth(spec),
	}
	if spec.Disk != "" {
		h.Devices = append(h.Devices, "virtio-blk-pci,id=root,drive=root,addr=0x4")
	}
	if spec.Network {
		// Without a ROM: there is no network boot, and a ROM would be part of a snapshot.
		h.Devices = append(h.Devices, fmt.Sprintf("%s,host_mtu=%d", plainNetwork, networkMTU))
	}
	return h
}

// plainNetwork is the network device of older images, with the default MTU.
const plainNetwork = "virtio-net-pci,id=net,netdev=net,mac=" + macAddress + ",romfile=,addr=0x5"

// asIn returns h with the network device of an image.
func (h Hardware) asIn(was Hardware) Hardware {
	if i := len(h.Devices) - 1; slices.Contains(was.Devices, plainNetwork) && strings.HasPrefix(h.Devices[i], plainNetwork) {
		h.Devices = append(slices.Clone(h.Devices[:i]), plainNetwork)
	}
	return h
}

// cpuModel returns the processor model of a guest.
func cpuModel(accel machine.Acceleration) string {
	if accel == machine.AccelKVM {
		return "host"
	}
	return emulatedCPU
}

// hostCPU describes the host's processor if the guest sees it.
func hostCPU(v Verdict) string {
	if v.Accel == machine.AccelKVM {
		return v.HostCPU
	}
	return ""
}

// emulatedCPU is everything that QEMU can emulate, except features that only slow it down:
//
//   - five-level page tables (la57) make each software page walk longer;
//   - with fast "rep movsb" (erms, fsrm) kernel and C library use it to copy and
//     clear memory; QEMU does that byte by byte, and other instructions 8 and 16
//     bytes at a time;
//   - with smap, kernel accesses to user memory use another software TLB, which is
//     also flushed at each process switch; pku adds a check to each access.
const emulatedCPU = "max,la57=off,erms=off,fsrm=off,smap=off,pku=off"

// arguments returns QEMU's command line.
func (h Hardware) arguments(spec machine.Spec) []string {
	args := []string{
		"-name", "guest=" + escape(spec.ID) + ",debug-threads=on",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		// QEMU needs nothing of this after its start; a guest that compromises a device
		// cannot use it either.
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-S", // the guest starts after its record is written and its console is connected
		"-machine", h.MachineType + ",usb=off,vmport=off,hpet=off,memory-backend=" + memoryBlock,
		"-accel", string(h.Accel),
		"-cpu", h.CPUModel,
		"-smp", h.processors(),
		"-m", h.memory(),
		"-object", memory(spec, 0, h.MemoryMB),
		"-kernel", spec.Kernel, "-initrd", spec.Initrd, "-append", kernelArgs(spec, h.Accel),
		"-chardev", inherited("monitor", fdMonitor), "-mon", "chardev=monitor,mode=control",
		"-chardev", inherited("control", fdControl),
		"-chardev", inherited("files", fdFiles),
		"-chardev", inherited("console", fdConsole), "-serial", "chardev:console",
	}
	if spec.Disk != "" {
		args = append(args, "-blockdev", blockdev(fileNode(fileOf(rootNode), spec.Disk)), "-blockdev", blockdev(diskNode(rootNode)))
	}
	if spec.Network {
		args = append(args, "-netdev", fmt.Sprintf("stream,id=net,server=on,addr.type=fd,addr.str=%d", fdNetwork))
	}
	for _, d := range h.Devices {
		args = append(args, "-device", d)
	}
	args = append(args, traceArgs(spec.Dir)...)
	args = append(args, h.added(spec)...)
	if spec.Restore != "" {
		args = append(args, "-incoming", "defer")
	}
	return args
}

// memory returns a part of the guest's memory: new, or a copy-on-write mapping of an image's file.
func memory(spec machine.Spec, part, sizeMB int) string {
	if spec.Restore == "" {
		return fmt.Sprintf("memory-backend-ram,id=%s,size=%dM", blockOf(part), sizeMB)
	}
	return fmt.Sprintf("memory-backend-file,id=%s,size=%dM,share=off,mem-path=%s",
		blockOf(part), sizeMB, escape(filepath.Join(spec.Restore, machine.MemoryPart(part))))
}

// kernelArgs returns the kernel's command line. A panic or a reboot ends QEMU. The
// console is quiet because output is slow under TCG.
//
// Without KVM some of the guest's own defences are off; the host does not depend
// on them. No processor speculates across an emulator, and mitigations made
// programs a quarter slower to start. Address randomisation makes QEMU translate a
// program again at each start, which costs as much as starting a program of the
// size of a C library, and memory for each translation. Memory is cleared only for
// programs, not for the kernel's own use. The kernel does not check its timer, as
// under KVM: on a busy host an emulated timer is late, and the kernel would panic.
// Arguments of the spec come later and take precedence.
func kernelArgs(spec machine.Spec, accel machine.Acceleration) string {
	args := []string{"console=ttyS0", "quiet", "panic=-1", "reboot=t"}
	if accel != machine.AccelKVM {
		args = append(args, "mitigations=off", "norandmaps", "init_on_alloc=0", "no_timer_check")
	}
	if growth(spec).MaxMemoryMB > 0 {
		args = append(args, growingArgs...)
	}
	args = append(args, spec.Args...)
	if spec.Network {
		args = append(args, networkArg)
	}
	return strings.Join(args, " ")
}

// inherited returns the arguments for an inherited listening socket, which
// serves one connection at a time and does not wait for one.
func inherited(id string, fd int) string {
	return fmt.Sprintf("socket,id=%s,fd=%d,server=on,wait=off", id, fd)
}

func blockdev(options map[string]any) string {
	b, err := json.Marshal(options)
	if err != nil {
		panic(err) // strings and nils only
	}
	return string(b)
}

// escape escapes commas in an option's value.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
