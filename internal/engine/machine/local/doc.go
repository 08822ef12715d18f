// Package local is the engine without a virtual machine: a machine is the guest
// agent as a process of this host, PID 1 of PID, mount, UTS and IPC namespaces
// of its own. It starts in milliseconds, so most of holt can be tested with it.
//
// It is not a sandbox: the guest is root on this host and can reach its devices
// and its network. It has no root disk, no kernel and no init system of its own.
//
// A machine's directory is as package machine says; its sockets are made by
// the agent. console.log is what the agent prints; it is cut only at a start.
//
// # What the guest sees
//
// The host's root file system, and those mounted at a name below it, through
// an overlay: what it writes goes to memory (a tmpfs) and with the machine. It
// has a proc of its own, an empty tmpfs on /root (the host's login profile is
// the host's business), and one on /home, where the agent mounts the workspace.
// The host's other mounts are not there, so that the guest pins none. Without overlayfs the guest writes on the host's files, and the console
// log says so; the host's mounts and unmounts then reach the guest and never
// the other way round (slave propagation). All of it goes when its PID 1 ends.
//
// # Traps
//
// PID 1 of a namespace ignores every signal but SIGKILL that it has no handler
// for, so PowerDown does nothing until the agent is up. The data directory may
// lie under /home or /root and be hidden by the tmpfs: so the agent is executed through
// an inherited file descriptor, and the sockets are named relative to
// its working directory, which is the machine's.
package local
