// Package qemu is the engine that runs machines as QEMU processes: with KVM
// where that works, otherwise in software.
//
// It is not a network stack (frames of the guest go to network.sock, see package
// network), it does not know the protocols on a machine's ports, and it does not
// build images.
//
// # A machine
//
// A machine is a process in its own session that outlives the daemon and is found
// by the lock that it holds (see package machine). Its listening sockets are
// created here and inherited, so there is nothing to wait for, and QEMU opens no
// path except its disk.
//
//	qmp.sock       QEMU's monitor; serves one client at a time
//	control.sock   port "control"
//	files.sock     port "files"
//	console.sock   the guest's serial console
//	network.sock   frames of the guest's network (see machine.PortNetwork); QEMU listens again after it was closed
//	console.log    the last MiB of the console (see [consoleLog])
//	qemu.log       the last MiB of QEMU's own output
//	end.log        QEMU's trace of its states, which tells how it ended
//	machine.json   see machine.Record; its hardware is a [Hardware]
//
// The guest's memory is one RAM block "mem". There is no balloon, no free page
// reporting and no virtio-mem: QEMU 7.2 would punch holes through them into a
// memory file that forks share.
//
// # Locks
//
// machine.Ports, machine.Claims and qmp each have a lock, and call nothing else
// while they hold it.
//
// # Traps
//
// If QEMU 7.2 finds a port's connection broken during a write, it first closes
// and then throttles the port: the guest's next bytes wait until another
// connection ends. A client that dials a port and receives nothing must hang up
// and dial again soon.
//
// The existence of /dev/kvm proves nothing: under some hypervisors a stock kernel
// hangs on it. See [Probe].
//
// A guest can write to its console, and make QEMU print messages, without end. So
// this process reads both and keeps the end of them. While no daemon runs both are
// lost, and never block the guest: QEMU drops console output without a connection
// and ignores SIGPIPE.
//
// QEMU pauses a guest when the host's disk is full. This package resumes it when
// there is room again.
package qemu
