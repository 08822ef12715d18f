package computer

import (
	"context"
	"log/slog"
	"sync"

	"holt"
	"holt/db"
	"holt/machine"
	"holt/workspace"
)

// Workspaces is the registry of workspaces, as far as computers need it.
type Workspaces interface {
	// Find returns the id and name of a workspace; NotFound.
	Find(ctx context.Context, ref string) (holt.WorkspaceID, string, error)
	// Make makes an empty workspace of that id. It is no error if it was made
	// before. AlreadyExists when another has the name.
	Make(ctx context.Context, id holt.WorkspaceID, name string) error
	// Remove deletes it with its content; no error if there is none. Conflict
	// while it is mounted on the host.
	Remove(ctx context.Context, id holt.WorkspaceID) error
	// Unmounted returns Conflict while the host has it mounted.
	Unmounted(ctx context.Context, id holt.WorkspaceID) error
	// Take opens it for the one computer that writes to it. Conflict when it is
	// mounted read-write on the host.
	Take(ctx context.Context, id holt.WorkspaceID) (ws *workspace.Workspace, release func(), err error)
	// View opens it for reading.
	View(ctx context.Context, id holt.WorkspaceID) (ws *workspace.Workspace, release func(), err error)
}

// Config is what a [Store] stands on. All fields without a default must be set.
type Config struct {
	DB         *db.DB // with [Schema]
	Keys       *Keys
	Dir        string // holds one directory a computer
	Engine     machine.Engine
	Images     Images // may be nil for an engine without root disks
	Workspaces Workspaces
	Serve      FileServer
	Limits     Limits                   // zero fields take the engine's defaults
	Log        *slog.Logger             // nil: slog.Default
	Fail       func(point string) error // tests: called at each step; an error fails it there
}

// Store is the set of computers of one daemon.
type Store struct {
	cfg Config
	log *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	ended bool // Close was called
	drain bool // see Drain
	seats map[holt.ComputerID]*seat
}

// seat is the place of one computer in memory.
type seat struct {
	lock  chan struct{} // holds one token while a verb is at work
	users int           // holders and waiters of lock
	live  *live         // nil while no machine runs
}

// Open takes the computers of the control database over: those that run are
// adopted, what was half-done is undone or finished.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, log: cfg.Log, seats: map[holt.ComputerID]*seat{}}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.cfg.Limits = cfg.Limits.or(defaultLimits(cfg.Engine.Capabilities().Acceleration))
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.recover(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close lets go of all machines, which go on, and waits for the verbs at work;
// what they leave half-done the next Open finishes.
func (s *Store) Close() error {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	s.mu.Lock()
	var all []*live
	for _, seat := range s.seats {
		if seat.live != nil {
			all = append(all, seat.live)
			seat.live = nil
		}
	}
	s.mu.Unlock()
	for _, l := range all {
		l.close()
		l.m.Release()
		l.release()
	}
	return nil
}

// Drain says that no machine may start any more, or that they may again: the
// daemon is about to end with all machines stopped.
func (s *Store) Drain(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain = on
}

// mayStart refuses while the store is drained.
func (s *Store) mayStart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain {
		return ending()
	}
	return nil
}

// Get returns a computer by name or id.
func (s *Store) Get(ctx context.Context, ref string) (holt.Computer, error) {
	r, err := s.find(ctx, ref)
	if err != nil {
		return holt.Computer{}, err
	}
	return s.shown(r), nil
}

// List returns all computers in the order of their names.
func (s *Store) List(ctx context.Context) ([]holt.Computer, error) {
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]holt.Computer, 0, len(all))
	for _, r := range all {
		list = append(list, s.shown(r))
	}
	return list, nil
}

// Having returns the computer that has a workspace; ok is false if none does.
func (s *Store) Having(ctx context.Context, id holt.WorkspaceID) (c holt.Computer, ok bool, err error) {
	r, ok, err := s.byWorkspace(ctx, id)
	return r.Computer, ok, err
}

// shown adds to a record what only memory knows: that a running guest does not answer.
func (s *Store) shown(r record) holt.Computer {
	if r.State != holt.ComputerRunning || r.Reason != "" {
		return r.Computer
	}
	l := s.live(r.ID)
	if l == nil {
		return r.Computer
	}
	if client, _, fault := l.state(); client == nil && fault != nil {
		r.Reason = "the guest agent does not answer: " + fault.Error()
	}
	return r.Computer
}

// Change says what Update changes. Nil fields stay as they are.
type Change struct {
	Name     *string `json:"name,omitempty"`
	CPUs     *int    `json:"cpus,omitempty" doc:"takes effect at the next start"`
	MemoryMB *int    `json:"memory_mb,omitempty" doc:"MiB; takes effect at the next start"`
}

// Update renames a computer or changes its shape. Inside the guest both show
// at the next start. Its workspace keeps its name.
func (s *Store) Update(ctx context.Context, ref string, change Change) (holt.Computer, error) {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return holt.Computer{}, err
	}
	defer unlock()
	if change.Name != nil {
		if r.Name, err = holt.ParseName(*change.Name); err != nil {
			return holt.Computer{}, err
		}
	}
	if change.CPUs != nil {
		r.CPUs = *change.CPUs
	}
	if change.MemoryMB != nil {
		r.MemoryMB = *change.MemoryMB
	}
	if err := boundShape(r.CPUs, r.MemoryMB); err != nil {
		return holt.Computer{}, err
	}
	if err := s.save(ctx, r); err != nil {
		return holt.Computer{}, err
	}
	return s.shown(r), nil
}

// live returns the running machine of a computer, or nil.
func (s *Store) live(id holt.ComputerID) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seat := s.seats[id]; seat != nil {
		return seat.live
	}
	return nil
}

// setLive publishes a computer's machine; nil: it has none.
func (s *Store) setLive(id holt.ComputerID, l *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seat := s.seat(id)
	seat.live = l
	s.tidy(id, seat)
}

// seat returns a computer's seat, a new one if need be. Store.mu is held.
func (s *Store) seat(id holt.ComputerID) *seat {
	if s.seats[id] == nil {
		s.seats[id] = &seat{lock: make(chan struct{}, 1)}
	}
	return s.seats[id]
}

// tidy drops a seat that nobody needs. Store.mu is held.
func (s *Store) tidy(id holt.ComputerID, seat *seat) {
	if seat.users == 0 && seat.live == nil {
		delete(s.seats, id)
	}
}

// lock waits for a computer's lock.
func (s *Store) lock(ctx context.Context, id holt.ComputerID) (unlock func(), err error) {
	s.mu.Lock()
	seat := s.seat(id)
	seat.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		seat.users--
		s.tidy(id, seat)
		s.mu.Unlock()
	}
	select {
	case seat.lock <- struct{}{}:
		return func() { <-seat.lock; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, gone(ctx)
	}
}

// hold finds a computer, locks it, and reads it again: it may have changed or
// gone while the lock was waited for.
func (s *Store) hold(ctx context.Context, ref string) (record, func(), error) {
	r, err := s.find(ctx, ref)
	if err != nil {
		return record{}, nil, err
	}
	unlock, err := s.lock(ctx, r.ID)
	if err != nil {
		return record{}, nil, err
	}
	if r, err = s.find(ctx, string(r.ID)); err != nil {
		unlock()
		return record{}, nil, err
	}
	return r, unlock, nil
}

// detach runs a verb that goes on when its caller leaves, until the daemon ends.
func detach[T any](ctx context.Context, s *Store, verb func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	_, leave, err := s.enter(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	done := make(chan outcome, 1)
	go func() {
		defer leave()
		value, err := verb(s.ctx)
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var zero T
		return zero, gone(ctx)
	}
}

// enter begins a verb: Close waits until leave is called, and ends the
// returned context.
func (s *Store) enter(ctx context.Context) (bounded context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, ending()
	}
	s.wg.Add(1)
	bounded, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return bounded, func() { stop(); cancel(); s.wg.Done() }, nil
}

func ending() error {
	return holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("try again when it is back")
}
