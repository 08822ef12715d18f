// Package nouns holds the interfaces of the nouns, below the doors that call them, the authorisation that guards them and
// the daemon that wires them. Package client has the same method sets on the other side of the wire.
//
// It holds no behaviour and no wire types: those are in package holt, and endpoints in package api.
//
// In all interfaces: ref is a name or an id. A path is absolute, inside the guest. key is the caller's idempotency key, or ""
// without one: a repeated call with the same key and arguments changes nothing more and gets the first answer; the same key
// with different arguments is Conflict. Errors are [*holt.Error]; any other error is answered as Internal. Contexts end with
// the request: a caller who hangs up cancels the call. A noun detaches or undoes work that must not be cancelled half-way.
package nouns

import (
	"context"
	"io"

	"holt"
)

// Set is all nouns of a daemon.
type Set struct {
	Computers      Computers
	Snapshots      Snapshots
	Runs           Runs
	Terminals      Terminals
	Ports          Ports
	Services       Services
	Files          Files
	Workspaces     Workspaces
	WorkspaceFiles Files // of workspaces: ref names one, and / is its top; to read, it may be of [holt.AtCheckpoint]
	History        History
	Archive        Archive
	Images         Images
	Schedules      Schedules
	Jobs           Jobs
	Networks       Networks
	Limits         Limits
	Stats          Stats
	Secrets        Secrets
	SSH            SSH
	SSHKeys        SSHKeys
	S3Keys         S3Keys
	Previews       Previews
	Events         Events
	Uploads        Uploads
	Artifacts      Artifacts
	ArtifactFiles  FileReader // of artifacts that are directories
	Tokens         TokenStore
	Audit          Audit
	Daemon         Daemon
}

// Computers are the machines.
type Computers interface {
	// Create makes and starts a computer, and its workspace if spec names no
	// existing one, and returns when its agent answers. InvalidArgument: bad
	// spec, or the disk is smaller than the image; NotFound: template or
	// workspace; AlreadyExists: name; Conflict: the workspace is in use; TooMany: a limit of the tenant, or the host has no memory for it.
	Create(ctx context.Context, spec holt.ComputerSpec, key string) (holt.Computer, error)
	Get(ctx context.Context, ref string) (holt.Computer, error)
	// List returns all of them, in any order.
	List(ctx context.Context) ([]holt.Computer, error)
	// Start boots a stopped one, resumes a paused one, and returns when the agent answers. Starting a running one changes nothing.
	Start(ctx context.Context, ref, key string) (holt.Computer, error)
	// Stop shuts down and keeps both disks. Stopping a stopped one changes nothing.
	Stop(ctx context.Context, ref, key string) (holt.Computer, error)
	// Resize changes a computer's shape: more at once while it runs, less with its next start.
	// InvalidArgument: no size, one that cannot be, a smaller disk.
	Resize(ctx context.Context, ref string, spec holt.ResizeSpec, key string) (holt.ResizedComputer, error)
	// Delete removes the machine and its root disk, its snapshots, and its workspace
	// too if Create made that. Its forks stay.
	Delete(ctx context.Context, ref, key string) (holt.DeletedComputer, error)
	// Logs writes the console log of the machine.
	Logs(ctx context.Context, ref string, q holt.LogQuery, w io.Writer) error
	Memory
	Idle
	Budgets
}

// Memory is what computers do whose engine can keep it; else all of it is
// Unsupported, but for resuming one that runs.
type Memory interface {
	// Snapshot takes a snapshot of a running computer, which keeps running.
	Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (holt.Snapshot, error)
	// Fork makes computers of a running one as it is now, of a paused one, or of a
	// snapshot. What is wrong with all of them, or with the only one, is the error.
	Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error)
	// Pause keeps memory and both disks. Pausing a paused one changes nothing.
	Pause(ctx context.Context, ref, key string) (holt.Computer, error)
	// Resume continues a paused one. Resuming a running one changes nothing.
	Resume(ctx context.Context, ref, key string) (holt.Computer, error)
}

// Networks are what computers may reach; Unsupported where they share the host's network.
type Networks interface {
	Get(ctx context.Context, ref string) (holt.NetworkPolicy, error)
	// Set replaces the policy at once: what it does not permit any more is cut off. InvalidArgument: bad policy.
	Set(ctx context.Context, ref string, policy holt.NetworkPolicy) (holt.NetworkPolicy, error)
	// Traffic is what the computer has sent and received since it was made.
	Traffic(ctx context.Context, ref string) (holt.NetworkTraffic, error)
}

// Snapshots are kept instants of computers. ref is an id, a name that only one
// snapshot has (Conflict if several do), or COMPUTER@SNAPSHOT.
type Snapshots interface {
	// List returns those of a computer, or of all with "", in any order.
	List(ctx context.Context, computer string) ([]holt.Snapshot, error)
	Get(ctx context.Context, ref string) (holt.Snapshot, error)
	// Delete removes one. Conflict while its computer is paused at it.
	Delete(ctx context.Context, ref, key string) (holt.SnapshotFreed, error)
	Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error)
	// Restore takes a computer back to one. What it is until now becomes a snapshot first.
	Restore(ctx context.Context, ref string, spec holt.SnapshotRestoreSpec, key string) (holt.RestoredComputer, error)
	// Diff says what must change in one computer or snapshot to make it another. Each
	// is a computer, as it is now, a snapshot, or COMPUTER@SNAPSHOT.
	Diff(ctx context.Context, from, to string) (holt.ComputerDiff, error)
}

// Runs are commands in computers. The end of their output is kept as long as
// their record.
type Runs interface {
	// Start starts a command and returns without waiting for it. A stopped
	// computer is started first.
	Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error)
	Get(ctx context.Context, id holt.RunID) (holt.Run, error)
	// List returns up to limit runs of a computer, or of all with "", newest
	// first, beginning after the run with the given id ("": with the newest).
	List(ctx context.Context, computer string, after holt.RunID, limit int) ([]holt.Run, error)
	// Follow calls emit with every event from offset on, in order, until the
	// exit event was emitted (nil), emit fails (its error) or ctx ends. A run
	// that ended before is replayed as far as its output was kept. If the
	// guest goes away it waits or returns Unavailable; a follower may then
	// come again with the offset it has reached.
	Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error
	// Input copies r to the run's standard input at offset, counted from the
	// input's start, and returns the offset of the next call. Bytes that the
	// run has already are skipped, bytes that it lacks are InvalidArgument; a
	// negative offset continues at its current end. At the end of r, eof says
	// whether to close the input; if not, or if r fails, it stays open. It
	// returns Conflict when the run has ended or its input is closed.
	Input(ctx context.Context, id holt.RunID, offset int64, r io.Reader, eof, wanted bool) (int64, error)
	// Receipt says what the run changed in its computer's workspace. Of a run
	// that has ended it is final: it waits until what the guest held is there.
	Receipt(ctx context.Context, id holt.RunID) (holt.Receipt, error)
	// Signal sends a signal, as SIGTERM, to all processes of the run.
	Signal(ctx context.Context, id holt.RunID, signal, key string) error
}

// Terminals are programs on terminals of their own in computers. ref is a
// terminal's id or name: by name it is the one that runs, else the one that was
// started last.
type Terminals interface {
	// Open returns the terminal of that name that runs, or starts one. A stopped
	// computer is started first.
	Open(ctx context.Context, computer string, spec holt.TerminalSpec, key string) (holt.Terminal, error)
	Get(ctx context.Context, computer, ref string) (holt.Terminal, error)
	// List returns those that run and those that ended last, in any order.
	List(ctx context.Context, computer string) ([]holt.Terminal, error)
	// Signal sends a signal, as SIGINT, to what is in its foreground; SIGKILL
	// ends all its processes. Conflict if nothing runs.
	Signal(ctx context.Context, computer, ref, signal, key string) error
	// Close ends it and returns it. Closing one that has ended changes nothing.
	Close(ctx context.Context, computer, ref, key string) (holt.Terminal, error)
	// Attach calls emit with an attached event, what the terminal shows, and at
	// last its exit, after which it returns nil, and sends what comes from in
	// (nil: nothing) as fast as the terminal takes it. It ends early when emit
	// fails (its error) or ctx ends. If the guest goes away it returns Unavailable; who
	// attaches again with the offset reached, and as the same client, misses and
	// doubles nothing.
	Attach(ctx context.Context, computer, ref string, spec holt.AttachSpec, in <-chan holt.TerminalInput, emit func(holt.TerminalEvent) error) error
}

// Ports are what listens in computers. A paused or stopped computer is woken first.
type Ports interface {
	// List returns them, in any order.
	List(ctx context.Context, computer string) ([]holt.Listener, error)
	// Connect connects to a port or a unix socket. The connection outlives ctx.
	// Unavailable: nothing listens there; its hint says where something does.
	Connect(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error)
}

// Services are programs that computers keep running. A paused or stopped computer is woken first.
type Services interface {
	// Add makes one and starts it; it does not wait until it is ready. Adding what is there already
	// changes nothing. AlreadyExists: another has the name; Unsupported: the computer has no systemd.
	Add(ctx context.Context, computer string, spec holt.ServiceSpec, key string) (holt.Service, error)
	// List returns those that were added and those of the template, in any order.
	List(ctx context.Context, computer string) ([]holt.Service, error)
	Get(ctx context.Context, computer, name string) (holt.Service, error)
	// Do starts, stops, restarts or deletes (verb) one, and returns it as it is then, or was.
	Do(ctx context.Context, computer, name, verb, key string) (holt.Service, error)
	// Logs writes the last lines that it has logged, and with Follow what is added until ctx ends.
	Logs(ctx context.Context, computer, name string, q holt.ServiceLogQuery, w io.Writer) error
}

// FileReader reads files of what ref names.
type FileReader interface {
	Stat(ctx context.Context, ref, path string) (holt.FileInfo, error)
	// List returns a page of the entries of a directory, those of one page in
	// the order of their names. What it costs does not grow with the directory.
	List(ctx context.Context, ref, path string, page holt.PageSpec) (holt.Page[holt.FileInfo], error)
	// Read writes n bytes from offset off to w; n < 0: up to the end.
	Read(ctx context.Context, ref, path string, off, n int64, w io.Writer) error
}

// Files are the files inside a computer, through its agent. A stopped computer
// is started first.
type Files interface {
	FileReader
	// Write gives the file the content of r once all of it has arrived; the old stays if r fails. An existing file keeps
	// what spec does not name; see [holt.WriteSpec].
	Write(ctx context.Context, computer, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error)
	Mkdir(ctx context.Context, computer string, spec holt.MkdirSpec, key string) (holt.FileInfo, error)
	// Symlink makes a symbolic link; a file or link at its path is replaced.
	Symlink(ctx context.Context, computer string, spec holt.SymlinkSpec, key string) (holt.FileInfo, error)
	// Remove removes a file or an empty directory; recursive: any directory.
	Remove(ctx context.Context, computer, path string, recursive bool, key string) error
	Rename(ctx context.Context, computer string, spec holt.RenameSpec, key string) error
}

// Workspaces are the durable file systems.
type Workspaces interface {
	Create(ctx context.Context, spec holt.WorkspaceSpec, key string) (holt.Workspace, error)
	Get(ctx context.Context, ref string) (holt.Workspace, error)
	// List returns all of them, in any order.
	List(ctx context.Context) ([]holt.Workspace, error)
	// Delete removes it with everything in it. Conflict while a computer has it or it is mounted.
	Delete(ctx context.Context, ref, key string) error
	Check(ctx context.Context, ref string) (holt.CheckReport, error)
	Query(ctx context.Context, ref string, q holt.QuerySpec) (holt.QueryResult, error)
	// Update renames it, whoever uses it. AlreadyExists when another has the name.
	Update(ctx context.Context, ref string, to holt.WorkspaceUpdate, key string) (holt.Workspace, error)
	// Mounts returns what is mounted on the daemon's host, of all tenants, in any order.
	Mounts(ctx context.Context) ([]holt.HostMount, error)
	// Mount mounts it on the daemon's host.
	Mount(ctx context.Context, ref string, spec holt.MountSpec, key string) (holt.Mount, error)
	// Unmount ends the mount at dir, whichever workspace it shows.
	Unmount(ctx context.Context, dir, key string) error
	Transfers
	Forks
}

// Forks are what is made of workspaces by parting and joining them.
type Forks interface {
	// Fork makes workspaces of one, or of a checkpoint of it. What is wrong with
	// all of them is the error, with one its own.
	Fork(ctx context.Context, ref string, spec holt.ForkSpec, key string) (holt.Forked, error)
	// Merge brings changes of another workspace of the family to this one.
	// InvalidArgument if they have nothing in common.
	Merge(ctx context.Context, ref string, spec holt.MergeSpec, key string) (holt.MergeReport, error)
}

// Transfers are what a workspace does with many files at once.
type Transfers interface {
	// Import puts a parcel (see package parcel) into a directory. An error's
	// Detail is the report of what is there by then.
	Import(ctx context.Context, ref string, spec holt.ImportSpec, r io.Reader) (holt.TransferReport, error)
	// Export writes a directory as a parcel.
	Export(ctx context.Context, ref string, spec holt.ExportSpec, w io.Writer) error
	// Usage adds up a directory: first itself, then those in it down to depth levels.
	Usage(ctx context.Context, ref, path string, depth int) ([]holt.Usage, error)
	Tags(ctx context.Context, ref, path string) ([]holt.Tag, error)
	// Tag changes tags of a file and returns what it has then.
	Tag(ctx context.Context, ref string, spec holt.TagSpec, key string) ([]holt.Tag, error)
	SetQuota(ctx context.Context, ref string, q holt.Quota) (holt.Workspace, error)
}

// History is the past of workspaces. A checkpoint is named by its name, by #
// and its number, or is the present: live.
type History interface {
	Checkpoint(ctx context.Context, ref string, spec holt.CheckpointSpec, key string) (holt.Checkpoint, error)
	// Checkpoints returns all of them without the present, in any order.
	Checkpoints(ctx context.Context, ref string) ([]holt.Checkpoint, error)
	GetCheckpoint(ctx context.Context, ref, checkpoint string) (holt.Checkpoint, error)
	// DeleteCheckpoint removes one, or with dryRun only says what that would free.
	// Conflict: it is part of a snapshot.
	DeleteCheckpoint(ctx context.Context, ref, checkpoint string, dryRun bool, key string) (holt.Freed, error)
	// DiffPoints fills in what a DiffSpec leaves out, and says what is wrong with it.
	DiffPoints(ctx context.Context, ref string, spec holt.DiffSpec) (holt.DiffSpec, error)
	// Diff calls fn for every path that differs, deletions first, until fn fails.
	Diff(ctx context.Context, ref string, spec holt.DiffSpec, fn func(holt.Change) error) error
	// TextDiff writes unified diffs of the files among them.
	TextDiff(ctx context.Context, ref string, spec holt.DiffSpec, w io.Writer) error
	// Restore checkpoints the present and makes the workspace what it was.
	Restore(ctx context.Context, ref string, spec holt.RestoreSpec, key string) (holt.ChangeReport, error)
	// Undo takes one run back and keeps what came later. Conflict if the
	// checkpoints around the run are gone, NotFound if it changed nothing.
	Undo(ctx context.Context, ref string, spec holt.UndoSpec, key string) (holt.ChangeReport, error)
	// History returns what became of a path, newest first.
	History(ctx context.Context, ref, path string) ([]holt.PathEvent, error)
	// Blame returns who last wrote what is at a path.
	Blame(ctx context.Context, ref, path string) (holt.Writer, error)
	// Receipt says what a run changed; one that changed nothing has an empty one.
	Receipt(ctx context.Context, ref, run string) (holt.Receipt, error)
}

// Archive is what all workspaces share for their cold bytes.
type Archive interface {
	Get(ctx context.Context) (holt.Archive, error)
	// Collect removes all garbage there is.
	Collect(ctx context.Context, key string) (holt.Collected, error)
	// Check reads and verifies everything.
	Check(ctx context.Context) (holt.ArchiveReport, error)
}

// Images are the built templates.
type Images interface {
	// List returns every template known, built or not, in any order.
	List(ctx context.Context) ([]holt.Image, error)
	// Boot boots an image in a shape, waits until everything is started, and keeps that; it
	// returns at once what is kept already. ref is a template or a digest.
	Boot(ctx context.Context, ref string, shape holt.Shape, key string) (holt.Image, error)
}

// Daemon is the process that serves the API.
type Daemon interface {
	Health(ctx context.Context) (holt.Health, error)
	Doctor(ctx context.Context) ([]holt.Finding, error)
	// Down ends computers as spec says and all host mounts, returns what it
	// did, and makes the daemon end once the answers in flight are written
	// (so it must not wait for the server: the call is one of those answers).
	Down(ctx context.Context, spec holt.DownSpec, key string) (holt.DownReport, error)
}

// TokenStore is the API tokens of a tenant.
type TokenStore interface {
	// Create makes one. NotFound: what a scope names; Forbidden: it could do more than who makes it;
	// Unsupported: scopes for repos and buckets. A repeated call gets it without its secret.
	Create(ctx context.Context, spec holt.TokenSpec, key string) (holt.NewToken, error)
	// Get returns one by id, or by a name that only one has (Conflict if several do).
	Get(ctx context.Context, ref string) (holt.Token, error)
	// List returns all of them, in any order.
	List(ctx context.Context) ([]holt.Token, error)
	// Delete revokes one, those that it has made, and what they have open.
	Delete(ctx context.Context, ref, key string) error
}

// Idle is what keeps computers awake, and when they are paused.
type Idle interface {
	// Awake says why a computer is awake and when it is paused. It wakes none.
	Awake(ctx context.Context, ref string) (holt.Awake, error)
	// Update renames a computer, or changes when it is paused for being idle, whatever its state. AlreadyExists when
	// another has the name.
	Update(ctx context.Context, ref string, change holt.ComputerUpdate, key string) (holt.Computer, error)
	// Hold keeps a computer awake until it expires or is released; a paused one stays paused.
	// TooMany: it has as many as it may.
	Hold(ctx context.Context, ref string, spec holt.HoldSpec, key string) (holt.Hold, error)
	// Holds returns those that have neither expired nor been released, in any order.
	Holds(ctx context.Context, ref string) ([]holt.Hold, error)
	// Release ends one.
	Release(ctx context.Context, ref string, id holt.HoldID, key string) error
}

// Budgets are what computers with all their forks may use.
type Budgets interface {
	// SetBudget changes the budget of a computer and all its forks, or begins one; Get shows it. InvalidArgument:
	// nothing is changed, or nothing is left of it.
	SetBudget(ctx context.Context, ref string, change holt.BudgetChange, key string) (holt.Budget, error)
	// RemoveBudget takes it away. NotFound: there is none.
	RemoveBudget(ctx context.Context, ref, key string) error
}

// Limits are what the computers of tenants may have together.
type Limits interface {
	// Get returns what a tenant may have and has. InvalidArgument: it cannot name one.
	Get(ctx context.Context, tenant string) (holt.Limit, error)
	// List returns those of tenants that have limits or computers, and of the default one, in the order of their names.
	List(ctx context.Context) ([]holt.Limit, error)
	// Set changes what a tenant may have; what it has already it keeps. InvalidArgument;
	// Forbidden to tokens of other tenants than the default one.
	Set(ctx context.Context, tenant string, change holt.LimitChange, key string) (holt.Limit, error)
}

// Stats are what computers take of the host. No guest is asked, and none woken.
type Stats interface {
	Get(ctx context.Context, ref string) (holt.ComputerStats, error)
	// List returns them of all computers, in any order.
	List(ctx context.Context) ([]holt.ComputerStats, error)
}

// Secrets are what the proxies of computers add to requests to their hosts; Unsupported where computers share the
// host's network. Nobody gets a value back.
type Secrets interface {
	// List returns a computer's in the order of their names.
	List(ctx context.Context, computer string) ([]holt.ComputerSecret, error)
	// Set makes or replaces one at once. InvalidArgument: it cannot be added to requests, or there are too many.
	Set(ctx context.Context, computer, name string, secret holt.HostSecret) (holt.ComputerSecret, error)
	Delete(ctx context.Context, computer, name, key string) error
}

// Jobs are commands with computers of their own that are thrown away. A job
// continues when its caller leaves.
type Jobs interface {
	// Send takes files for jobs to begin with, as a parcel. They stay for an hour
	// after the last job that began with them.
	Send(ctx context.Context, in io.Reader) (holt.JobInputs, error)
	// Drop lets them go with the last job that is there. It is no error if they are gone.
	Drop(ctx context.Context, id holt.JobInputsID, key string) error
	// Create takes a job on and returns without waiting for it. NotFound: inputs or
	// workspace; what its template or command lacks it says when it has failed.
	Create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error)
	Get(ctx context.Context, id holt.JobID) (holt.Job, error)
	// List returns up to limit jobs, newest first, beginning after the one with the
	// given id ("": with the newest).
	List(ctx context.Context, after holt.JobID, limit int) ([]holt.Job, error)
	// Follow calls emit with the output of its command from offset on, in order, and,
	// once the job has ended, with its exit, and returns nil. The exit is of a lost run
	// if the command did not come to its end; the job says why.
	Follow(ctx context.Context, id holt.JobID, offset int64, emit func(holt.RunEvent) error) error
	// Cancel ends a job and returns when there is nothing left of it. One that has
	// ended is left as it is.
	Cancel(ctx context.Context, id holt.JobID, key string) (holt.Job, error)
	// Delete cancels a job that has not ended, and removes it with its outputs.
	Delete(ctx context.Context, id holt.JobID, key string) error
	// Outputs writes a parcel. Conflict: it has not ended, or has none that are kept.
	Outputs(ctx context.Context, id holt.JobID, out io.Writer) error
	// Release removes the outputs. Conflict: it has not ended.
	Release(ctx context.Context, id holt.JobID, key string) (holt.Job, error)
}

// Schedules are commands that are run in computers at times of the calendar. ref is an
// id, a name that only one schedule has (Conflict if several do), or COMPUTER@NAME.
type Schedules interface {
	// Create makes one, which fires from now on. InvalidArgument; NotFound: the
	// computer; AlreadyExists: the computer has one of the name; TooMany.
	Create(ctx context.Context, spec holt.ScheduleSpec, key string) (holt.Schedule, error)
	Get(ctx context.Context, ref string) (holt.Schedule, error)
	// List returns those of a computer, or of all with "", in any order.
	List(ctx context.Context, computer string) ([]holt.Schedule, error)
	// Update changes what change has. What is due while one is disabled is not missed.
	Update(ctx context.Context, ref string, change holt.ScheduleChange, key string) (holt.Schedule, error)
	// Delete removes one with its history. A started run continues.
	Delete(ctx context.Context, ref, key string) error
	// Run fires one now, and returns when its run has started or cannot be. Conflict
	// while its last run continues, unless its policy for that is another.
	Run(ctx context.Context, ref, key string) (holt.Firing, error)
	// History returns what became of one, the latest first, up to limit; 0: all that is kept.
	History(ctx context.Context, ref string, limit int) ([]holt.Firing, error)
}

// Artifacts are immutable objects in buckets. ref is an id, or BUCKET/NAME: the newest version.
type Artifacts interface {
	// Publish makes one of a file of a computer or workspace. It does not wait until the bytes are stored.
	// InvalidArgument: not a regular file.
	Publish(ctx context.Context, spec holt.ArtifactSpec, key string) (holt.Artifact, error)
	// Put makes one of what r has, once all of it has arrived.
	Put(ctx context.Context, spec holt.ArtifactPut, r io.Reader) (holt.Artifact, error)
	Get(ctx context.Context, ref string) (holt.Artifact, error)
	// List returns a page of them, in the order of bucket and name, and the newest version first.
	List(ctx context.Context, q holt.ArtifactQuery) (holt.Page[holt.Artifact], error)
	// Read writes n bytes from offset off to w; n < 0: up to the end.
	Read(ctx context.Context, ref string, off, n int64, w io.Writer) error
	// Copy writes one to a file of a workspace or a computer.
	Copy(ctx context.Context, ref string, spec holt.ArtifactCopy, key string) (holt.FileInfo, error)
	// Zip writes one that is a directory as a zip archive.
	Zip(ctx context.Context, ref string, w io.Writer) error
	// Query runs SQL on the table artifacts.
	Query(ctx context.Context, q holt.TableQuery) (holt.QueryResult, error)
	// Update changes tags, retention and hold. Conflict: the retention would be shorter.
	Update(ctx context.Context, ref string, change holt.ArtifactChange, key string) (holt.Artifact, error)
	// Delete removes one. Conflict: it is retained or on hold.
	Delete(ctx context.Context, ref, key string) error
	// CreateLink makes a link to one. Its URL is only in the first answer. Unavailable: no listener answers links.
	CreateLink(ctx context.Context, ref string, spec holt.ArtifactLinkSpec, key string) (holt.ArtifactLink, error)
	// Links returns the links to one, in any order.
	Links(ctx context.Context, ref string) ([]holt.ArtifactLink, error)
	// DeleteLink revokes a link to one.
	DeleteLink(ctx context.Context, ref, link, key string) error
	CreateBucket(ctx context.Context, spec holt.BucketSpec, key string) (holt.Bucket, error)
	// UpdateBucket changes settings. InvalidArgument: no change, or one that cannot be.
	UpdateBucket(ctx context.Context, name string, change holt.BucketChange, key string) (holt.Bucket, error)
	Bucket(ctx context.Context, name string) (holt.Bucket, error)
	// Buckets returns all of them, in any order.
	Buckets(ctx context.Context) ([]holt.Bucket, error)
	// DeleteBucket removes an empty one. Conflict: it is not empty.
	DeleteBucket(ctx context.Context, name, key string) error
}
