// Package agent is what runs inside a computer and the host's way to speak to
// it. [Server] is the guest's side: it runs commands, handles files, dials
// ports, freezes the disk, shuts the machine down and pumps the workspace's
// FUSE messages to the host; as PID 1 of an initramfs it also brings the
// machine up ([Boot]). [Client] is the host's side of the control channel.
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
// Guest: runs.mu, then run.mu, then output.mu; the pump's mounting, then send,
// then mu.
// No lock is held while a process, the disk or the host is waited for, except
// send, which orders what goes to the host.
//
// A child that is PID 1's orphan must be reaped, and os/exec must not lose its
// children to that: all processes are started and waited for in proc.go.
//
// The root file system may be frozen: between freeze and thaw the agent
// writes to no file on it.
package agent
