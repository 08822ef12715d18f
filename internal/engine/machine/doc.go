// Package machine says what a machine is to the packages above: an engine
// starts it in a directory, gives two byte channels into it, and finds it again
// after the daemon that started it has died.
//
// It is not an engine: those are qemu and machine/local. It holds their
// interface, and what any engine needs whose machines are host processes that
// outlive the daemon: the identity of such a process, the lock that says that
// one runs in a directory, its record, and dialling its sockets.
//
// # A machine's directory
//
//	machine.lock   flock'd by the machine's process for as long as it lives
//	machine.json   the record: what runs here and with which devices
//	*.sock         unix sockets of the ports
//	console.log    bounded log of the guest's console
//
// A memory image ([Image]) has a directory of its own, with files memory, state,
// and its record, machine.json.
//
// The lock is taken by the starter on a file description that the machine's
// process inherits; the kernel lets go of it when that process ends. So "does a
// machine run here" has one answer, whatever process ids were recycled.
//
// # Traps
//
// A process id alone names nothing: it is recycled. A [Process] is verified by
// boot id and start time, through a pidfd that is opened before the check.
// Unix socket paths are limited to 108 bytes and data directories can be
// long, so sockets are dialled through /proc/self/fd.
package machine
