// Package qemu is the engine that runs machines as QEMU processes: with KVM
// where that works, in software otherwise.
//
// It is not a network stack (the guest's frames go to network.sock, see package network), it
// does not know what is spoken on a machine's ports, and it makes no images.
//
// # A machine
//
// One process in a session of its own that outlives the daemon, found again by the
// lock that it holds (see package machine). Everything it listens on is a
// socket made here and inherited: nothing has to be waited for, and QEMU opens no path of ours but its disk.
//
//	qmp.sock       QEMU's monitor; serves one client at a time
//	control.sock   port "control"
//	files.sock     port "files"
//	console.sock   the guest's serial console
//	network.sock   frames of the guest's network (see machine.PortNetwork); QEMU listens again when it was closed
//	console.log    what came from it, the last MiB (see [consoleLog])
//	qemu.log       what QEMU itself said, the last MiB
//	end.log        QEMU's trace of its states, which tells how it ended
//	machine.json   see machine.Record; its hardware is a [Hardware]
//
// The guest's memory is one RAM block "mem", and there is no balloon, no free
// page reporting and no virtio-mem: QEMU 7.2 would punch holes through them
// into a memory file that forks share.
//
// # Locks
//
// A [guest] has none of its own; machine.Ports, machine.Claims and qmp each
// have one and call nothing while they hold it.
//
// # Traps
//
// A port whose connection QEMU 7.2 finds broken in a write is closed first and
// throttled after it: the guest's next bytes wait until another connection
// ends. Whoever dials a port and hears nothing must hang up and dial again soon.
//
// /dev/kvm proves nothing: under some hypervisors it is there and a stock
// kernel hangs on it. See [Probe].
//
// A guest can write to its console for ever, and can make QEMU complain for ever. So
// neither goes to a file directly: this process reads both, and keeps the end. While no
// daemon runs both are lost, and never block the guest: QEMU drops console output
// that nobody is connected for, and ignores SIGPIPE.
//
// QEMU pauses a guest whose disk the host has no room for. It is resumed here
// when there is room again.
package qemu
