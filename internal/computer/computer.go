package computer

import (
	"context"
	"log/slog"
	"time"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/idempotency"
	"holt/internal/network"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Workspaces is the registry of workspaces, as far as computers need it.
type Workspaces interface {
	// Find returns the id and name of a workspace; NotFound.
	Find(ctx context.Context, ref string) (holt.WorkspaceID, string, error)
	// Make makes an empty workspace, unless it was made before. AlreadyExists (the name).
	Make(ctx context.Context, id holt.WorkspaceID, name string, quota holt.Quota) error
	// Remove deletes a workspace, if there is one. Conflict while it is mounted on the host.
	Remove(ctx context.Context, id holt.WorkspaceID) error
	// Unmounted returns Conflict while the host has it mounted.
	Unmounted(ctx context.Context, id holt.WorkspaceID) error
	// Take opens it for its computer. Conflict while it is mounted read-write on the host.
	Take(ctx context.Context, id holt.WorkspaceID) (ws *workspace.Workspace, release func(), err error)
	// Fork makes a workspace from another at a checkpoint, with the same quota. mounts: the checkpoint
	// holds the mount of a guest, which is resumed with it. AlreadyExists (the name).
	Fork(ctx context.Context, id holt.WorkspaceID, name string, from holt.WorkspaceID, checkpoint string, mounts bool) error
	// Branch is Fork of a workspace that is hidden until Swap. NotFound (the checkpoint).
	Branch(ctx context.Context, id, from holt.WorkspaceID, checkpoint string, mounts bool) error
	// Swap replaces a workspace by another, which gets its name and quota. The former one is named left,
	// with a number if that is taken, or, unless keep is set, it is gone and only Remove has to follow.
	Swap(tx *db.Tx, out, in holt.WorkspaceID, left string, keep bool) error
	// Announce tells the guest that has an open workspace mounted, once that is served again, what has
	// changed since a checkpoint.
	Announce(ctx context.Context, id holt.WorkspaceID, checkpoint string) error
	// Forget removes a checkpoint, if there is one, unless it has a fork.
	Forget(ctx context.Context, id holt.WorkspaceID, checkpoint string) error
	// View opens it for reading.
	View(ctx context.Context, id holt.WorkspaceID) (ws *workspace.Workspace, release func(), err error)
}

// Config configures a [Store]. All fields without a default must be set.
type Config struct {
	DB        *db.DB // with [Schema]
	Keys      *idempotency.Keys
	Dir       string // has one directory for each computer
	Disks     string // directory of the root disks
	Snapshots string // has one directory for each snapshot
	Templates string // has one directory for each machine that is being made a template's snapshot
	// SnapshotCache is how many bytes automatic and archived snapshots may take on this disk; 0: an eighth of the disk.
	SnapshotCache int64
	Archive       *chunk.Archive // of snapshots; nil: none
	ArchiveDir    string         // directory of its packs, whose disk is not filled up; "": no limit
	Engines       Engines
	Networks      *network.Networks // of the machines; nil: they have none
	Images        Images            // may be nil if the engine has no root disks
	Workspaces    Workspaces
	Serve         FileServer
	// Renew is how long after Open, and how often, missing and outdated template snapshots are made; 0: never.
	Renew time.Duration
	// Writer returns the writer of what a call changes in a guest's files; nil: changes are not attributed.
	Writer     func(context.Context) workspace.Writer
	Schedules  Schedules                       // nil: there are none
	Keep       workspace.Retention             // which automatic checkpoints of workspaces are kept
	Limits     Limits                          // zero fields take the default of the computer's engine
	HostMemory func() (total, available int64) // bytes; nil: as the kernel says, if machines have memory of their own
	Overcommit float64                         // how many times the available memory may be promised; 0: once
	Log        *slog.Logger                    // nil: slog.Default
	Observe    Observer
	Fail       func(point string) error // tests: called at each step; an error fails it there
}

// Store is the set of computers of one daemon, and the verbs of their life.
type Store struct {
	*registry
	runRows      runTable
	terminalRows terminalTable
	snapshots    snapshotTable
	outputs      outputs
	disks        *disks

	archiver    *archiver
	snapshotter *snapshotter
	flattener   *flattener
	budgets     *budgets
	idler       *idler
	waker       *waker
	pauser      *pauser
	restorer    *restorer
	resizer     *resizer
	templates   *Templates
	restarts    restarts

	runs         *Runs
	terminals    *Terminals
	files        *Files
	ports        *Ports
	sessions     *Sessions
	services     *Services
	networks     *Networks
	secrets      *Secrets
	tenantLimits *TenantLimits
	guests       *Guests
}

// Open opens the computers of the control database: it adopts running machines, and finishes or
// undoes what a crash left unfinished.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := newStore(ctx, cfg)
	err := s.cfg.tidyTemplates(ctx)
	if err == nil {
		err = takeOverAll(ctx, s)
	}
	if err == nil {
		err = s.snapshotter.tidySnapshots(ctx)
	}
	if err == nil {
		err = s.disks.tidy(ctx)
	}
	if err == nil {
		_, err = s.flattener.settle(ctx, newTries())
	}
	if err == nil {
		err = s.restorer.settleRestores(ctx) // they make disks
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	for _, work := range []func(context.Context){s.flattener.run, s.archiver.run, s.templates.renew, s.budgets.run} {
		s.shutdown.spawn(work)
	}
	return s, nil
}

// newStore makes a store without reading anything.
func newStore(ctx context.Context, cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	g := &registry{cfg: cfg, log: cfg.Log, table: table{d: cfg.DB}, machines: newMachines(), uses: newUses(time.Now), shutdown: newShutdown(ctx)}
	g.table.room = newRoom(g)
	s := &Store{registry: g, runRows: runTable{cfg.DB, cfg.Log, keptRuns()}, terminalRows: terminalTable{cfg.DB}, snapshots: snapshotTable{cfg.DB, cfg.Snapshots}}
	s.outputs = outputs{table: s.runRows, dir: g.cfg.dir, most: mostOutput, log: cfg.Log, failpoint: g.cfg.failpoint}
	s.pauser, s.restorer, s.resizer = &pauser{Store: s}, &restorer{s}, &resizer{s}
	packs := &archive.Archive{Chunks: cfg.Archive, Strip: archive.StripBytes, PackDir: cfg.ArchiveDir, Log: cfg.Log, Fail: cfg.Fail, Free: archive.FreeBytes}
	s.disks = &disks{d: cfg.DB, dir: cfg.Disks, archive: packs, log: cfg.Log}
	s.archiver = newArchiver(g, packs, s.snapshots, s.disks)
	s.snapshotter = &snapshotter{registry: g, snapshots: s.snapshots, disks: s.disks, archiver: s.archiver}
	s.flattener = &flattener{registry: g, disks: s.disks, merged: s.archiver.work, stacked: stackedDisks}
	s.budgets = &budgets{registry: g, pause: s.pauser.pause, stop: s.stop, changed: newNotification()}
	s.budgets.read = s.budgets.reading
	idle := idleTable{cfg.DB}
	s.idler = &idler{registry: g, rows: idle, runs: s.runRows, terminals: s.terminalRows, snapshotter: s.snapshotter, atOnce: make(chan struct{}, idleAtOnce), pauseLocked: s.pauser.pauseLocked, stopLocked: s.stopLocked}
	s.waker = &waker{registry: g, rows: idle, start: s.start, resume: s.pauser.resume}
	s.templates = &Templates{registry: g, makeRoom: s.idler.withRoom}
	s.guests = &Guests{g, s.snapshots, s.runRows, s.terminalRows}
	open := &conns{}
	s.runs = &Runs{g, s.runRows, s.outputs, s.waker, s.snapshots, s.guests}
	s.terminals, s.files, s.services = &Terminals{g, s.terminalRows, s.waker}, &Files{g, s.waker}, &Services{g, s.waker}
	s.ports, s.sessions = &Ports{g, s.waker, open}, &Sessions{g, s.waker, open}
	s.networks, s.secrets, s.tenantLimits = &Networks{g}, &Secrets{g}, &TenantLimits{g}
	return s
}

// Close releases all machines, which keep running, and waits for the verbs at work. The next Open
// finishes what they leave.
func (s *Store) Close() error {
	s.shutdown.close()
	for _, l := range s.machines.clear() {
		l.close()
		l.unplug(false)
		l.m.Release()
		l.release()
	}
	return nil
}

func (s *Store) Runs() *Runs { return s.runs }

func (s *Store) Terminals() *Terminals { return s.terminals }

func (s *Store) Files() *Files { return s.files }

// Drain forbids machines to start, or allows it again: the daemon is about to end with all machines
// stopped.
func (s *Store) Drain(on bool) { s.shutdown.setDrained(on) }

// Get returns a computer by name or id.
func (s *Store) Get(ctx context.Context, ref string) (holt.Computer, error) {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return holt.Computer{}, err
	}
	return s.shownAtWork(r), nil
}

// List returns all computers sorted by name.
func (s *Store) List(ctx context.Context) ([]holt.Computer, error) {
	all, err := s.table.all(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]holt.Computer, 0, len(all))
	for _, r := range all {
		list = append(list, s.shownAtWork(r))
	}
	return list, nil
}
