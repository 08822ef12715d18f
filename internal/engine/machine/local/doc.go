// Package local is the engine without virtual machines: a machine is the guest
// agent as a process of this host, PID 1 of its own PID, mount, UTS and IPC
// namespaces. It starts in milliseconds, so most of holt can be tested with it.
//
// It is not a sandbox: the guest is root on this host and can reach its devices
// and its network. It has no root disk, no kernel and no init system of its own.
//
// A machine's directory is as in package machine; the agent creates its sockets.
// console.log has the agent's output; it is truncated only at a start.
//
// # The guest's file system
//
// The guest sees the host's root file system, and the file systems mounted
// directly below it, through overlayfs: writes go to memory (a tmpfs) and are
// lost with the machine. It has its own /proc, an empty tmpfs on /root (to hide
// the host's login profile), and one on /home, where the agent mounts the
// workspace. Other mounts of the host are absent, so that the guest does not keep
// them busy. Without overlayfs the guest writes to the host's files, and the
// console log reports that; mounts and unmounts on the host then propagate to the
// guest, but not back (slave propagation). Everything ends with PID 1.
//
// # Traps
//
// PID 1 of a namespace ignores every signal without a handler, except SIGKILL, so
// PowerDown does nothing until the agent is up. The tmpfs may hide the data
// directory if it is under /home or /root. So the agent is executed through an
// inherited file descriptor, and its sockets are relative to its working
// directory, which is the machine's.
package local
