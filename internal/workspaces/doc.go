// Package workspaces keeps the workspaces of a daemon: which there are, which
// are open, and which are mounted on the host. [Store] finds a workspace by
// name or id, opens it for each use, and closes it when it has been idle.
//
// It is a package of its own because computers, jobs, host mounts and the API
// use the same workspaces at the same time. Package workspace is the file
// system itself: it knows one directory and no names. Package daemon only
// opens and closes this one. Package workspaces does not serve HTTP and does
// not decide who may use a workspace.
//
// # Format
//
//	DIR/ID       one workspace, see package workspace
//	DIR/.reserve the [workspace.Reserve] of all of them, on the disk that they are on
//
// Tables workspace and host_mount of the control database; see [Schema]. A row
// is inserted before its directory is made, and deleted after that is removed:
// [Open] removes every workspace whose row says creating or deleting. The same
// holds for a workspace's space in the archive.
//
// # Lock order
//
// A computer's own lock, then hostMounts.changing, then entry.mu, then
// openCache.mu or hostMounts.mu. The last two are never held during a wait.
//
// # Traps
//
// A host mount outlives the process: a keeper holds it (see [mount.Keeper]), and
// requests wait for the next daemon. [Open] therefore finds the keepers before
// it opens any workspace, because opening a workspace ends the mounts that it
// does not know.
//
// One kernel at most caches what it reads of a workspace. Every change that
// does not come through that kernel must be announced to it; see kernels.
//
// # Size
//
// Store has more methods than the house's 25: it is one API noun (see
// [holt/internal/nouns.Workspaces]), over the parts that do the work.
package workspaces
