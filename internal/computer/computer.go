package computer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"holt"
	"holt/internal/engine/machine"
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

// Config is what a [Store] stands on. All fields without a default must be set.
type Config struct {
	DB        *db.DB // with [Schema], [RunSchema], [DiskSchema], [TerminalSchema], [SnapshotSchema], [KeptSchema], [RestoreSchema], [FlattenSchema], [GreetSchema], [OutputSchema], [IdentitySchema], [BackSchema], [LineageSchema], [IdleSchema], [ScheduleSchema], [JobSchema], [NetworkSchema], [ResizeSchema], [TenantSchema], [BudgetSchema], [SecretSchema], [SizeSchema] and [ReasonSchema]
	Keys      *Keys
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

// Store is the set of computers of one daemon.
type Store struct {
	cfg       Config
	log       *slog.Logger
	table     table
	runs      runTable
	outputs   outputs
	terminals terminalTable
	disks     *disks
	snapshots snapshotTable
	vault     vault
	keeper    *keeper
	unmade    unmade
	preempt   preemption
	gate      *gate
	seats     *seats
	meter     meter
	uses      *uses
	idleRows  idleTable
	pauses    chan struct{} // a token for each computer that is being paused for being idle
	conns     conns         // to ports of computers
	stuck     sync.Map      // of holt.ComputerID to *making: resumes that could not be undone
	stacked   int           // stackedDisks, but in tests
	restarts  restarts
}

// Open takes the computers of the control database over: those that run are
// adopted, what was half-done is undone or finished.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := newStore(ctx, cfg)
	err := s.cfg.tidyTemplates(ctx)
	if err == nil {
		err = takeOverAll(ctx, s)
	}
	if err == nil {
		err = memory{s}.tidySnapshots(ctx)
	}
	if err == nil {
		err = s.disks.tidy(ctx)
	}
	if err == nil {
		_, err = flattening{s}.settle(ctx, newTries())
	}
	if err == nil {
		err = memory{s}.settleRestores(ctx) // they make disks
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	for _, work := range []func(context.Context){flattening{s}.run, memory{s}.keep, s.Templates().renew, budgeting{s}.run} {
		s.gate.spawn(work)
	}
	return s, nil
}

// newStore makes a store that has not looked at anything yet.
func newStore(ctx context.Context, cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Limits = cfg.Limits.or(defaultLimits(cfg.Engine.Capabilities().Acceleration))
	v := vault{a: cfg.Archive, strip: stripBytes, dir: cfg.ArchiveDir, log: cfg.Log, fail: cfg.Fail, free: freeBytes}
	runs := runTable{cfg.DB, cfg.Log, keptRuns()}
	s := &Store{
		cfg: cfg, log: cfg.Log, vault: v, keeper: newKeeper(), table: table{d: cfg.DB}, runs: runs, terminals: terminalTable{cfg.DB},
		disks: &disks{d: cfg.DB, dir: cfg.Disks, vault: v, log: cfg.Log}, snapshots: snapshotTable{cfg.DB, cfg.Snapshots}, gate: newGate(ctx), seats: newSeats(), uses: newUses(time.Now), idleRows: idleTable{cfg.DB}, pauses: make(chan struct{}, idleAtOnce), stacked: stackedDisks,
	}
	s.meter.read, s.meter.look = s.reading, newBell()
	s.table.room = newRoom(s)
	s.outputs = outputs{table: runs, dir: s.cfg.dir, most: mostOutput, log: cfg.Log, point: s.cfg.point}
	return s
}

// Close lets go of all machines, which go on, and waits for the verbs at work;
// what they leave half-done the next Open finishes.
func (s *Store) Close() error {
	s.gate.close()
	for _, l := range s.seats.clear() {
		l.close()
		l.unplug(false)
		l.m.Release()
		l.release()
	}
	return nil
}

// Runs returns the runs of all computers.
func (s *Store) Runs() *Runs { return &Runs{s} }

// Terminals returns the terminals of all computers.
func (s *Store) Terminals() *Terminals { return &Terminals{s} }

// Files returns the files of all computers.
func (s *Store) Files() *Files { return &Files{s} }

// Drain says that no machine may start any more, or that they may again: the
// daemon is about to end with all machines stopped.
func (s *Store) Drain(on bool) { s.gate.setDrained(on) }

// Get returns a computer by name or id.
func (s *Store) Get(ctx context.Context, ref string) (holt.Computer, error) {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return holt.Computer{}, err
	}
	return s.looked(r), nil
}

// List returns all computers in the order of their names.
func (s *Store) List(ctx context.Context) ([]holt.Computer, error) {
	all, err := s.table.all(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]holt.Computer, 0, len(all))
	for _, r := range all {
		list = append(list, s.looked(r))
	}
	return list, nil
}

// looked is shown for who only looks: with the verb that is at work on it.
func (s *Store) looked(r record) holt.Computer {
	c := s.shown(r)
	c.AtWork = s.seats.atWork(r.ID)
	return c
}

// shown adds to a record what only memory knows: that a running guest does not answer.
func (s *Store) shown(r record) holt.Computer {
	r.LastSnapshot, r.Pending = r.snapshot, r.pending()
	if r.State != holt.ComputerRunning || r.Reason != "" {
		return r.Computer
	}
	l := s.seats.live(r.ID)
	if l == nil {
		return r.Computer
	}
	if client, _, fault := l.state(); client == nil && fault != nil {
		r.Reason = "the guest agent does not answer: " + fault.Error()
	}
	return r.Computer
}

// hold finds a computer, locks it, and reads it again: it may have changed or
// gone while the lock was waited for.
func (s *Store) hold(ctx context.Context, ref string) (record, func(), error) {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return record{}, nil, err
	}
	unlock, err := s.seats.lock(ctx, r.ID)
	if err != nil {
		return record{}, nil, err
	}
	if r, err = s.table.find(ctx, string(r.ID)); err != nil {
		unlock()
		return record{}, nil, err
	}
	return r, unlock, nil
}
