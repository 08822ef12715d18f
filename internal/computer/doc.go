// Package computer is the central noun: a Linux machine with two disks, its
// life, its runs and its files.
//
// [Store] is the set of computers of one daemon and the verbs of their life;
// [Memory] and [Snapshots] keep what they have in memory; [Runs], [Terminals],
// [Files], [Ports] and [Services] are what is done inside them; [Guests] is what workspaces ask of them. It knows neither QEMU (an
// engine is a [machine.Engine]) nor FUSE (the file channel is served by a
// [FileServer]) nor HTTP. It is not the registry of workspaces, which it
// reaches through [Workspaces].
//
// # Format
//
// Tables computer, run, terminal, disk, snapshot, restore, identity, hold and idempotency of the control database
// ([Schema]); one directory a
// computer, DIR/<id>, which is the machine's directory (see package machine), with a file
// output/<run> for each run of which output is kept (see [agent.EncodeOutput]), which is made before its
// row says so; and one file a root disk, DISKS/<id>.qcow2, which is made behind its row and removed before it, or, when it was merged with
// another, behind it. A disk lies over its parent or, if it has none, over that of the template's
// snapshot that its computer was made of, or the image's root. TEMPLATES/<key> is the directory of a machine that
// becomes such a snapshot, which is the image store's.
//
// # Crash only
//
// Every change of a computer's state is written before the act and after it.
// The acts are named steps (see transition) whose undoing is idempotent: a
// create that fails undoes in reverse what it did, delete undoes everything in
// reverse, and [Open] undoes what a killed daemon was creating or deleting,
// finishes what was stopping, and adopts what was running.
//
// # Lock order
//
// disks.still, for as long as frozen disks are stored or replaced; nobody waits for it who has
// a lock. The computer's own lock (machines.lock; one at a time, held over a whole verb;
// merging takes several, of which it waits for none), then disks.collecting,
// then those of the workspace registry, then the short ones (machines.mu, shutdown.mu,
// live.mu, runSet.mu), which are never held while anything is waited for. runSet.taking is held while
// a guest sends a run's output, and nothing is waited for under it but that and the database.
// Reading a computer, and runs and files in a running one, take only short ones.
//
// # Traps
//
// A guest is hostile: what its agent answers is data, the tags on its file
// requests are text, and it may stop answering at any point. So every call into
// it has a deadline or is watched by the heartbeat of [live.beat].
//
// Contexts: Create obeys its caller until the computer runs, and then is
// undone. Start, Stop and Delete go on when their caller leaves, since others
// wait for the same thing; they end with the daemon or their own deadline.
package computer
