package computer

import (
	"context"
	"log/slog"
	"time"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
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
	// Make makes an empty workspace of that id, bounded by a quota. It is no error if it was made
	// before. AlreadyExists when another has the name.
	Make(ctx context.Context, id holt.WorkspaceID, name string, quota holt.Quota) error
	// Remove deletes it with its content; no error if there is none. Conflict
	// while it is mounted on the host.
	Remove(ctx context.Context, id holt.WorkspaceID) error
	// Unmounted returns Conflict while the host has it mounted.
	Unmounted(ctx context.Context, id holt.WorkspaceID) error
	// Take opens it for the one computer that writes to it. Conflict when it is
	// mounted read-write on the host.
	Take(ctx context.Context, id holt.WorkspaceID) (ws *workspace.Workspace, release func(), err error)
	// Fork makes a workspace of that id and name of what another was at a checkpoint, with that one's quota.
	// mounts: that holds the mount of its guest, which goes on in it.
	// AlreadyExists when another has the name.
	Fork(ctx context.Context, id holt.WorkspaceID, name string, from holt.WorkspaceID, checkpoint string, mounts bool) error
	// Branch is Fork of a workspace that nobody sees until Swap. NotFound when there
	// is no such checkpoint.
	Branch(ctx context.Context, id, from holt.WorkspaceID, checkpoint string, mounts bool) error
	// Swap lets one workspace take the place of another: its name and its quota. What
	// was there is called left or, where that is taken, that and a number; unless it is
	// kept it is gone, and Remove only has to remove it.
	Swap(tx *db.Tx, out, in holt.WorkspaceID, left string, keep bool) error
	// Announce has the guest that has it mounted told, once it is served again, of
	// all that has changed since a checkpoint. It is open, see Take.
	Announce(ctx context.Context, id holt.WorkspaceID, checkpoint string) error
	// Forget removes a checkpoint, unless there is a fork of it. No error if there is none.
	Forget(ctx context.Context, id holt.WorkspaceID, checkpoint string) error
	// View opens it for reading.
	View(ctx context.Context, id holt.WorkspaceID) (ws *workspace.Workspace, release func(), err error)
}

// Config configures a [Store]. All fields without a default must be set.
type Config struct {
	DB        *db.DB // with [Schema]
	Keys      *idempotency.Keys
	Dir       string // holds one directory a computer
	Disks     string // directory of the root disks
	Snapshots string // holds one directory a snapshot
	// Templates holds one directory for each machine that becomes a template's snapshot.
	Templates string
	// SnapshotCache is how many bytes the snapshots may take that nobody asked for, and
	// all together as far as they are in the archive; 0: an eighth of the disk.
	SnapshotCache int64
	Archive       *chunk.Archive // where snapshots that stay are stored; nil: nowhere
	ArchiveDir    string         // the directory of its packs: its disk is not filled with them; "": any number may come
	Engine        machine.Engine
	Networks      *network.Networks // of the machines; nil: they have none
	Images        Images            // may be nil for an engine without root disks
	Workspaces    Workspaces
	Serve         FileServer
	// Renew is how long after Open templates are booted that nobody has booted since they were
	// built, or whose snapshots are out of date; 0: never.
	Renew time.Duration
	// Writer says whom what a call changes in a guest's files is attributed to;
	// nil: it stays unattributed.
	Writer func(context.Context) workspace.Writer
	// Schedules go with their computers; nil: there are none.
	Schedules Schedules
	Keep      workspace.Retention // which automatic checkpoints of their workspaces stay
	Limits    Limits         // zero fields take the engine's defaults
	// HostMemory is what memory the host has, and what programs can still have of it, bytes; nil: as the kernel says, if the
	// engine's machines have memory of their own.
	HostMemory func() (total, available int64)
	Overcommit float64                  // how many times the memory that is available may be promised; 0: once
	Log        *slog.Logger             // nil: slog.Default
	Observe    Observer                 // is told what takes how long
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
	cfg.Limits = cfg.Limits.or(defaultLimits(cfg.Engine.Capabilities().Acceleration))
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
