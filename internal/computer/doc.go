// Package computer is the central noun: a Linux machine with two disks, its
// life, its runs and its files.
//
// [Store] is the set of computers of one daemon and the verbs of their life:
// create, start, stop and delete. Its parts are types of their own that share a
// registry (rows, locks, machines, shutdown):
//
//   - disks is the ledger of root disks, flattener merges them
//   - snapshotter takes and removes snapshots, archiver stores and evicts them (package archive has the format)
//   - pauser, restorer and resizer change what runs; idler pauses what nothing uses, waker wakes it
//   - budgets, room and table.admit refuse what would exceed a limit
//   - [Runs], [Terminals], [Files], [Ports], [Sessions] and [Services] are what is done inside a computer
//   - [Networks], [Secrets], [Templates], [TenantLimits] and [Guests] are what surrounds it
//
// The package knows neither QEMU (an engine is a [machine.Engine]) nor FUSE
// (the file channel is served by a [FileServer]) nor HTTP. It is not the
// registry of workspaces, which it reaches through [Workspaces].
//
// # Format
//
// Tables of the control database ([Schema]), and files:
//
//	DIR/<id>/                the machine's directory (see package machine)
//	DIR/<id>/output/<run>    saved output of a run (see [agent.EncodeOutput]), written before its row says so
//	DISKS/<id>.qcow2         a root disk: written after its row, removed before it, or after it when it was merged
//	SNAPSHOTS/<id>/          the machine image of a snapshot
//	TEMPLATES/<key>/         a machine that is to become a template's snapshot, which is the image store's
//
// A disk lies over its parent or, without one, over the disk of the template
// snapshot that its computer was resumed from, or over the image.
//
// # Crash only
//
// Every change of a computer's state is recorded before and after it is made.
// A change is a list of named steps (see transition) that can be undone any
// number of times: a failed create undoes its steps in reverse, delete undoes
// all of them, and [Open] undoes what a crashed daemon was creating or
// deleting, finishes what it was stopping, and adopts running machines.
//
// # Lock order
//
//  1. disks.still, while frozen disks are archived or replaced; it is never waited for with another lock held
//  2. a computer's lock (machines.lock), held for a whole verb; one at a time, except that a merge takes several without waiting
//  3. disks.collecting
//  4. the locks of the workspace registry
//  5. the short ones (machines.mu, shutdown.mu, uses.mu, live.mu, runSet.mu), never held while waiting
//
// runSet.taking is held while a guest sends the output of a run; under it only
// that and the database are waited for. Reading computers, and using runs and
// files of a running one, take only short locks.
//
// # Traps
//
// A guest is hostile: the answers of its agent are data, the tags of its file
// requests are text, and it can stop answering at any time. Every call into it
// has a deadline or is watched by live.beat.
//
// Create obeys its caller's context until the computer runs, and is undone when
// that ends. Start, Stop and Delete complete even when their caller leaves,
// since others wait for the same result; they end with the daemon or their own deadline.
package computer
