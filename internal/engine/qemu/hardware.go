package qemu

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holt/internal/engine/machine"
)

// macAddress is the same for every guest, on purpose: each has a network of
// its own, and a fork must find the address it had.
const macAddress = "52:54:00:68:6f:6c"

// networkMTU is what an Ethernet frame of the guest carries at most, bytes, as package netstack takes it.
const networkMTU = 16 << 10

// networkArg is the addressing of package netstack: the guest, its gateway, its resolver.
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

// Names of sockets in a machine's directory, beside those of the ports.
const (
	monitorSocket = "qmp.sock"
	consoleSocket = "console.sock"
)

// Hardware is what a guest sees. A memory snapshot can be restored only where
// all of it is the same.
type Hardware struct {
	MachineType string               `json:"machine_type"`
	Accel       machine.Acceleration `json:"accel"`
	CPUModel    string               `json:"cpu_model"`
	HostCPU     string               `json:"host_cpu,omitempty"` // if the guest sees it
	Version     string               `json:"qemu_version"`
	CPUs        int                  `json:"cpus"`      // that it was booted with
	MemoryMB    int                  `json:"memory_mb"` // likewise
	Devices     []string             `json:"devices"`   // in the order of the command line
	Growth
}

// hardware says what a machine of that spec is built of. Addresses on the bus
// are fixed, so that a device keeps its own when another is absent.
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
		// No ROM: nobody boots from the network, and it would be part of a snapshot.
		h.Devices = append(h.Devices, fmt.Sprintf("%s,host_mtu=%d", plainNetwork, networkMTU))
	}
	return h
}

// plainNetwork is the network device of images from before there was a larger MTU.
const plainNetwork = "virtio-net-pci,id=net,netdev=net,mac=" + macAddress + ",romfile=,addr=0x5"

// asIn is the same hardware with the network device that an image has.
func (h Hardware) asIn(was Hardware) Hardware {
	if i := len(h.Devices) - 1; slices.Contains(was.Devices, plainNetwork) && strings.HasPrefix(h.Devices[i], plainNetwork) {
		h.Devices = append(slices.Clone(h.Devices[:i]), plainNetwork)
	}
	return h
}

// cpuModel is the processor that a guest sees.
func cpuModel(accel machine.Acceleration) string {
	if accel == machine.AccelKVM {
		return "host"
	}
	return emulatedCPU
}

// hostCPU is the host's processor, where a guest sees it.
func hostCPU(v Verdict) string {
	if v.Accel == machine.AccelKVM {
		return v.HostCPU
	}
	return ""
}

// emulatedCPU is what QEMU can emulate, without what only costs there:
//
//   - with five-level page tables (la57) every software page walk is longer;
//   - where "rep movsb" is fast (erms, fsrm) kernel and C library copy and clear
//     memory with it: QEMU does so byte by byte, and with other instructions eight
//     and sixteen at a time;
//   - whoever touches user memory in the kernel with smap looks addresses up in
//     another table, which like all is emptied at each change of process, and pku
//     is one more check of each.
const emulatedCPU = "max,la57=off,erms=off,fsrm=off,smap=off,pku=off"

// arguments is QEMU's command line.
func (h Hardware) arguments(spec machine.Spec) []string {
	args := []string{
		"-name", "guest=" + escape(spec.ID) + ",debug-threads=on",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		// Nothing below is needed once QEMU runs, so a guest that breaks out of its
		// devices does not get it either.
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-S", // the guest waits until it is recorded and its console is read
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

// memory is a part of the guest's memory: of its own, or what an image holds, of which a
// machine gets its own copy of each page that it changes.
func memory(spec machine.Spec, part, sizeMB int) string {
	if spec.Restore == "" {
		return fmt.Sprintf("memory-backend-ram,id=%s,size=%dM", blockOf(part), sizeMB)
	}
	return fmt.Sprintf("memory-backend-file,id=%s,size=%dM,share=off,mem-path=%s",
		blockOf(part), sizeMB, escape(filepath.Join(spec.Restore, machine.MemoryPart(part))))
}

// kernelArgs is the kernel's command line. A panic or a reboot ends QEMU. The
// console is quiet because every byte of it costs dearly under TCG.
//
// Without KVM some of the guest's own defences are off, which the host does not
// rest on. No processor speculates across an emulator (mitigations made programs
// a quarter dearer to start). QEMU translates a program anew wherever it lies
// anew: at addresses that change, a program of a C library's size costs as much
// again at each start, and memory for each translation. And memory is not cleared
// when the kernel takes it for itself, only for programs. Nor does the kernel test
// its timer there, as it does not under KVM: on a busy host an emulated timer is
// late, and the kernel would panic. What the spec says comes later, and so wins.
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

// inherited is a listening socket that QEMU finds open. It serves one
// connection at a time and waits for none.
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

// escape keeps the commas of a value from ending it.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
