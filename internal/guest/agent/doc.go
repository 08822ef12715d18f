// Package agent is what runs inside a computer and the host's way to speak to
// it. [Serve] is the guest's side of the control channel: it runs commands,
// keeps terminals, handles files, dials ports and shuts the machine down.
// [ServeFiles] pumps the workspace's FUSE messages to the host. [Boot], as PID 1
// of an initramfs, brings the machine up. [Client] is the host's side of the
// control channel.
//
// It does not answer FUSE requests (package mount does, on the host) and does
// not know how bytes get out of the machine (package channel does).
//
// The protocol is described in docs/design/agent.md: yamux over a session of
// package channel, one stream for each operation, which begins with a
// length-prefixed JSON request of at most 1 MiB.
//
// Neither side trusts the other's bytes: every length is bounded before memory
// is taken, the host accepts no streams and no pings from the guest, and a
// guest's answer is only ever data.
//
// # Lock order and traps
//
// Guest: runs.mu, then run.mu, then output.mu; terminalTable.opening, its mu,
// terminal.mu, scrollback.mu; the pump's mounting, then send, then mu.
// No lock is held while a process, the disk or the host is waited for, except
// send, which orders what goes to the host.
//
// The agent is two processes: [ServeFiles] and [Serve] must not share one. Go
// starts programs by vfork, and until the kernel has read the program the
// starter's runtime may stand still, while what lies in the workspace is read
// through the pump. The pump's process starts nothing but the other one.
//
// An agent that is PID 1 inherits orphans, and os/exec must not lose its
// children to their reaper: all processes are started and waited for in proc.go.
package agent
