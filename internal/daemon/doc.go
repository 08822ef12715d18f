// Package daemon wires the nouns together. [Open] opens the parts of a data
// directory in order, and [Daemon.Close] closes them in reverse. The doors get
// the nouns from [Daemon.Nouns].
//
// It is not a server: it listens on nothing. It has no verbs of its own but
// [Daemon.Down].
//
// # Format
//
//	DATA/lock          held (flock) by the one daemon of the directory; has its process id
//	DATA/holt.db       the control database; see package control
//	DATA/token         see package access
//	DATA/s3.key        likewise
//	DATA/archive/      see package archive
//	DATA/images/       unless the images are elsewhere; see package image
//	DATA/computers/ID  see package computer
//	DATA/templates/KEY see package computer
//	DATA/workspaces/   see package workspaces
//	DATA/mounts/       sockets of the keepers of host mounts, see [mount.Keeper]
//	DATA/bin/          the guest agent, for the local engine
//
// # Order
//
// The list in [Open] is the order. Workspaces come before computers: they remove
// half-made workspaces before computers removes half-made computers, which may
// name them. Computers takes machines over. Host mounts come after computers,
// which says which workspaces are in use.
//
// # Traps
//
// Machines outlive the daemon and must not inherit its files: every file is
// opened close-on-exec.
package daemon
