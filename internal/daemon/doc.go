// Package daemon wires the nouns together. [Open] opens a data directory's
// parts in order and [Daemon.Close] closes them in reverse; what stands on the
// nouns (package server) gets them from [Daemon.Nouns]. It also keeps the
// registry of workspaces and their host mounts ([Workspaces]), since both a
// computer and a host directory may want the same one.
//
// It is not a server: it listens on nothing. It knows no verbs of computers.
//
// # Format
//
//	DATA/lock          held (flock) by the one daemon of the directory; holds its process id
//	DATA/holt.db       the control database; see [migrations]
//	DATA/archive/      see package chunk: chunks.db, and store/ with the packs or, if those are elsewhere, cache/
//	DATA/images/       unless the images are elsewhere; see package image
//	DATA/computers/ID  see package computer
//	DATA/templates/KEY see package computer
//	DATA/workspaces/ID see package workspace
//	DATA/workspaces/.reserve
//	                   the [workspace.Reserve] of all of them: on the disk that they are on
//	DATA/bin/          the guest agent, for the local engine
//
// # Order
//
// lock, control database, archive, images, engine, registry of workspaces, computers
// (which adopts machines), host mounts. The registry undoes half-made
// workspaces before computers undoes half-made computers, which may name them.
//
// # Lock order
//
// A computer's own lock, then hostMounts.changing, then entry.mu, then shelf.mu
// or hostMounts.mu, which are never held while anything is waited for.
//
// # The archive
//
// All workspaces share one, each with a space named by its id: its row comes
// before its space and goes after it. Who forks a workspace forks its space
// too ([chunk.Archive.Fork]). Background work there rests while others wait
// for a processor ([pace]).
//
// # Traps
//
// Machines outlive the daemon, so nothing it holds may be inherited by them:
// every file is opened close-on-exec. What is asked of host mounts after a kill
// waits for the next daemon: a keeper holds them, see [mount.Keeper].
//
// # Size
//
// Workspaces has more methods than the house's 25: it is one API noun (see
// [httpapi.Workspaces]), which asks for most of them, over the parts that do the work.
package daemon
