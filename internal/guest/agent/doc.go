// Package agent is the program inside a computer, and the host's client for it.
// [Serve] is the guest's side of the control channel: it runs commands, keeps
// terminals, handles files, dials ports and shuts the machine down. [ServeFiles]
// forwards the workspace's FUSE messages to the host. [Boot], as PID 1 of an
// initramfs, boots the machine; a gVisor sandbox is booted by [Main] as
// "holt-guest sandbox". [Client] is the host's side of the control channel.
//
// It does not answer FUSE requests (package mount does, on the host) and does not
// know how bytes leave the machine (package channel does).
//
// The protocol is described in docs/design/agent.md: yamux over a session of
// package channel, with one stream for each operation, which begins with a
// length-prefixed JSON request of at most 1 MiB.
//
// Neither side trusts the other: every length is checked before memory is
// allocated, the host accepts no streams and no pings from the guest, and a
// guest's answers are treated as untrusted data.
//
// # Lock order and traps
//
// Guest: runs.mu, then run.mu, then output.mu; terminalTable.opening, its mu,
// terminal.mu, scrollback.mu; the pump's mounting, then send, then mu. No lock is
// held while waiting for a process, the disk or the host, except send, which
// orders messages to the host.
//
// The agent is two processes: [ServeFiles] and [Serve] must not share one. Go
// starts programs by vfork, and until the kernel has read the program the
// starter's runtime may be blocked, while a program in the workspace is read
// through the pump. The pump's process starts only the other process.
//
// An agent that is PID 1 inherits orphans, and its reaper must not reap the
// children of os/exec: all processes are started and waited for in proc.go.
package agent
