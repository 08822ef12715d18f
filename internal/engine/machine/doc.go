// Package machine defines machines for the packages above: an engine starts a
// machine in a directory, provides two byte channels into it, and finds it again
// after the daemon that started it has died.
//
// It is not an engine: those are qemu and machine/local. It has their interface,
// and what engines share whose machines are host processes that outlive the
// daemon: the identity of such a process, the lock on a directory, the machine's
// record, and dialling its sockets.
//
// # A machine's directory
//
//	machine.lock   flock'd by the machine's process while it lives
//	machine.json   the record: process and hardware
//	*.sock         unix sockets of the ports
//	console.log    bounded log of the guest's console
//
// A memory image ([Image]) has its own directory, with files memory, state, and
// its record, machine.json.
//
// The starter takes the lock on a file description that the machine's process
// inherits; the kernel releases it when that process ends. So "does a machine run
// here" has one answer even if process ids are reused.
//
// # Traps
//
// Process ids are reused. A [Process] is verified by boot id and start time,
// through a pidfd that is opened before the check. Unix socket paths are limited
// to 108 bytes and data directories can be longer, so sockets are dialled through
// /proc/self/fd.
package machine
