package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Computers is the part of [computer.Scheduled] that schedules need.
type Computers interface {
	// Get returns a computer by name or id.
	Get(ctx context.Context, ref string) (holt.Computer, error)
	List(ctx context.Context) ([]holt.Computer, error)
	// Check returns an error for a command that can never run.
	Check(spec holt.RunSpec) error
	// Start wakes a computer and starts a run with the id for the actor of ctx. If there is a run with
	// the id it returns that one. An error is final, and no run is left, unless
	// [computer.Ending] reports that the daemon ends.
	Start(ctx context.Context, id holt.RunID, computer holt.ComputerID, spec holt.RunSpec) (holt.Run, error)
	// Wake starts or resumes a computer.
	Wake(ctx context.Context, id holt.ComputerID) error
	// Run returns the record of a run.
	Run(ctx context.Context, id holt.RunID) (holt.Run, error)
	// Signal sends a signal to all processes of a run.
	Signal(ctx context.Context, id holt.RunID, signal string) error
	// Rest pauses or stops a running computer, unless something uses it.
	Rest(ctx context.Context, id holt.ComputerID, as holt.ComputerState) error
}

// Config is the configuration of a [Store]. DB and Computers must be set.
type Config struct {
	DB        *db.DB // with [Schema], [RoomSchema] and the table of computers
	Keys      *idempotency.Keys
	Computers Computers
	Now       func() time.Time         // the wall clock; nil: time.Now
	Log       *slog.Logger             // nil: slog.Default
	Fail      func(point string) error // tests: called at each step; an error ends the work at the step
}

// Store is the set of schedules of one daemon.
type Store struct {
	cfg     Config
	log     *slog.Logger
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	changed chan struct{} // has an element when next times have changed
	workers workers
	slots   slots

	skipped map[holt.ScheduleID]bool // unreadable schedules that were logged; only Open and then watch use it
}

const (
	mostOfAll       = 10_000
	mostOfTenant    = 1000
	mostOfComputer  = 100
	mostCommand     = 64 << 10 // bytes of a command, its arguments and its environment
	mostHistoryPage = keptFirings
)

// Open continues the schedules of the control database. It continues open firings. Due times since the last daemon
// fire or are recorded as missed, by each schedule's policy.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, log: cfg.Log, changed: make(chan struct{}, 1)}
	s.workers.set, s.skipped, s.slots.down = map[holt.ScheduleID]*worker{}, map[holt.ScheduleID]bool{}, map[holt.ComputerID]down{}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	open, err := s.takeOver(ctx)
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("continue schedules: %w", err)
	}
	s.wg.Go(func() { s.restAll(s.ctx) })
	for _, id := range open {
		s.startWorker(id)
	}
	s.wg.Go(func() { s.watch(s.ctx) })
	return s, nil
}

// Close stops the workers and waits for them. Runs are not interrupted; the next Open follows them.
func (s *Store) Close() error {
	s.workers.mu.Lock()
	s.workers.closed = true
	s.workers.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return nil
}

// point is a step at which a test can end the store's work.
func (s *Store) point(name string) error {
	if s.cfg.Fail == nil {
		return nil
	}
	return s.cfg.Fail(name)
}

// write runs a transaction that survives power loss, so that no due time fires twice.
func (s *Store) write(ctx context.Context, fn func(*db.Tx) error) error {
	err := s.cfg.DB.WriteSync(ctx, fn)
	if err == nil || holt.CodeOf(err) != holt.Internal {
		return err
	}
	return hosterror.Full(fmt.Errorf("write control database: %w", err))
}

func (s *Store) read(ctx context.Context, fn func(*db.Tx) error) error {
	err := s.cfg.DB.Read(ctx, fn)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // SQLite's error says only that it was interrupted
	}
	return err
}

// notify makes watch read the next times again.
func (s *Store) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Create makes a schedule.
//
// Errors: InvalidArgument, NotFound (the computer), AlreadyExists (the name), TooMany.
func (s *Store) Create(ctx context.Context, spec holt.ScheduleSpec, key string) (holt.Schedule, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Schedule]{
		Key: key, Method: "schedule.create", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Schedule, error) {
			return s.create(ctx, spec, claim)
		},
		Again: func(ctx context.Context, ref string) (holt.Schedule, error) { return s.Get(ctx, ref) },
	})
}

func (s *Store) create(ctx context.Context, spec holt.ScheduleSpec, claim *idempotency.Claim) (holt.Schedule, error) {
	c, err := s.cfg.Computers.Get(ctx, spec.Computer)
	if err != nil {
		return holt.Schedule{}, err
	}
	now := s.cfg.Now().UTC()
	r := record{Schedule: holt.Schedule{
		ID: holt.NewScheduleID(), Name: spec.Name, ComputerID: c.ID, Computer: c.Name, Cron: spec.Cron, TimeZone: cmp.Or(spec.TimeZone, "UTC"),
		Missed: cmp.Or(spec.Missed, holt.MissedOnce), Overlap: cmp.Or(spec.Overlap, holt.OverlapSkip), KeepAwake: spec.KeepAwake, Enabled: !spec.Disabled,
		Spec: spec.Spec, CreatedAt: now,
	}}
	if err := s.complete(&r, now); err != nil {
		return holt.Schedule{}, err
	}
	err = s.write(ctx, func(tx *db.Tx) error {
		if err := room(tx, c); err != nil {
			return err
		}
		if err := claim.Bind(tx, string(r.ID)); err != nil {
			return err
		}
		return put(tx, r)
	})
	if err != nil {
		return holt.Schedule{}, err
	}
	s.log.InfoContext(ctx, "schedule created", "schedule", r.ID, "name", r.Name, "computer", c.ID, "cron", r.Cron, "time_zone", r.TimeZone)
	s.notify()
	return s.describe(ctx, r)
}

// room returns TooMany if a limit of schedules is reached.
func room(tx *db.Tx, c holt.Computer) error {
	var all, here, tenants int64
	err := tx.Query(`SELECT count(*), count(*) FILTER (WHERE s.computer = ?1), count(*) FILTER (WHERE c.tenant = (SELECT tenant FROM computer WHERE id = ?1))
		FROM schedule s LEFT JOIN computer c ON c.id = s.computer`, []any{c.ID}, func(row *db.Row) error {
		all, here, tenants = row.Int64(0), row.Int64(1), row.Int64(2)
		return nil
	})
	switch {
	case err != nil:
		return err
	case here >= mostOfComputer:
		return holt.Errorf(holt.TooMany, "%s has %d schedules", c.Name, here).WithHint("the maximum for a computer is %d; combine commands in one schedule", mostOfComputer)
	case tenants >= mostOfTenant:
		return holt.Errorf(holt.TooMany, "the tenant %s has %d schedules", cmp.Or(c.Tenant, holt.DefaultTenant), tenants).WithHint("the maximum for a tenant is %d; delete some: holt schedule list shows them", mostOfTenant)
	case all >= mostOfAll:
		return holt.Errorf(holt.TooMany, "there are %d schedules of all tenants", all).WithHint("the maximum for a daemon is %d; try again when some are deleted", mostOfAll)
	}
	return nil
}

// complete checks a schedule and computes its first due time after now.
func (s *Store) complete(r *record, now time.Time) error {
	if _, err := holt.ParseName(r.Name); err != nil {
		return err
	}
	table, err := Parse(r.Cron, r.TimeZone)
	if err != nil {
		return err
	}
	switch r.Missed {
	case holt.MissedSkip, holt.MissedOnce, holt.MissedAll:
	default:
		return holt.Errorf(holt.InvalidArgument, "invalid policy %q for missed times", clip(string(r.Missed))).WithHint("give skip, once or all")
	}
	switch r.Overlap {
	case holt.OverlapSkip, holt.OverlapQueue, holt.OverlapReplace:
	default:
		return holt.Errorf(holt.InvalidArgument, "invalid overlap policy %q", clip(string(r.Overlap))).WithHint("give skip, queue or replace")
	}
	if err := s.checkSpec(r.Spec); err != nil {
		return err
	}
	r.after, r.next = now, table.Next(now)
	return nil
}

func (s *Store) checkSpec(spec holt.RunSpec) error {
	if spec.Stdin {
		return holt.Errorf(holt.InvalidArgument, "a schedule has no standard input").WithHint("leave stdin out; let the command read a file")
	}
	if len(spec.Secrets) > 0 {
		return holt.Errorf(holt.InvalidArgument, "a schedule cannot have secrets").WithHint("put them into a file on the computer's root disk that only its user can read")
	}
	size := len(spec.Command)
	for _, arg := range spec.Argv {
		size += len(arg)
	}
	for k, v := range spec.Env {
		size += len(k) + len(v)
	}
	if size > mostCommand {
		return holt.Errorf(holt.InvalidArgument, "command, arguments and environment have %d bytes in all: the maximum is %d", size, mostCommand).
			WithHint("put a script into the workspace and run that")
	}
	return s.cfg.Computers.Check(spec)
}

// describe returns a schedule with its computed fields: the computer's name, next times and firings.
func (s *Store) describe(ctx context.Context, r record) (holt.Schedule, error) {
	computers, err := s.cfg.Computers.List(ctx)
	if err != nil {
		return holt.Schedule{}, err
	}
	all, err := s.describeAll(ctx, []record{r}, computers)
	if err != nil {
		return holt.Schedule{}, err
	}
	if len(all) == 0 {
		return holt.Schedule{}, notFound(string(r.ID))
	}
	return all[0], nil
}

// shownNext is the number of next times in a description.
const shownNext = 3

// describeAll describes several schedules. It leaves out those of computers that are not in the list.
func (s *Store) describeAll(ctx context.Context, all []record, computers []holt.Computer) ([]holt.Schedule, error) {
	names := map[holt.ComputerID]string{}
	for _, c := range computers {
		names[c.ID] = c.Name
	}
	out := []holt.Schedule{}
	err := s.read(ctx, func(tx *db.Tx) error {
		for _, r := range all {
			if r.Computer = names[r.ComputerID]; r.Computer == "" {
				continue
			}
			one := r.shown()
			latest, err := firings(tx, `WHERE schedule = ? AND NOT `+isOpen+` ORDER BY seq DESC LIMIT 1`, r.ID)
			if err != nil {
				return err
			}
			now, err := firings(tx, `WHERE schedule = ? AND `+isOpen+` ORDER BY state = 'queued', seq LIMIT 1`, r.ID)
			if err != nil {
				return err
			}
			if len(latest) > 0 {
				one.Last = latest[0].shown()
			}
			if len(now) > 0 {
				one.Firing = now[0].shown()
			}
			one.Next = upcoming(r)
			out = append(out, one)
		}
		return nil
	})
	return out, err
}

func upcoming(r record) (next []time.Time) {
	table, err := Parse(r.Cron, r.TimeZone)
	if err != nil || !r.Enabled {
		return nil
	}
	for at := r.next; !at.IsZero() && len(next) < shownNext; at = table.Next(at) {
		next = append(next, at.In(table.zone))
	}
	return next
}

func notFound(ref string) error {
	return holt.Errorf(holt.NotFound, "there is no schedule %q", clip(ref)).WithHint("holt schedule list shows all schedules")
}

// visible reports whether the caller's tenant has the computer of a schedule.
func (s *Store) visible(ctx context.Context, r record) bool {
	if holt.Confined(ctx) == "" {
		return true
	}
	_, err := s.cfg.Computers.Get(ctx, string(r.ComputerID))
	return err == nil
}

// find returns a schedule by id, unique name, or COMPUTER@NAME.
func (s *Store) find(ctx context.Context, ref string) (r record, err error) {
	name, of := ref, holt.ComputerID("")
	if where, at := holt.CutCheckpoint(ref); at != "" {
		c, err := s.cfg.Computers.Get(ctx, where)
		if err != nil {
			return r, err
		}
		name, of = at, c.ID
	}
	var all []record
	err = s.read(ctx, func(tx *db.Tx) error {
		all, err = list(tx, `WHERE (id = ?1 OR name = ?1) AND (?2 = '' OR computer = ?2)`, name, of)
		return err
	})
	all = slices.DeleteFunc(all, func(one record) bool { return !s.visible(ctx, one) })
	switch {
	case err != nil:
		return r, err
	case len(all) == 0:
		return r, notFound(ref)
	case len(all) > 1:
		return r, holt.Errorf(holt.Conflict, "%d schedules have the name %q", len(all), clip(ref)).WithHint("use COMPUTER@%s", name)
	}
	return all[0], nil
}

// Get returns a schedule by id, unique name, or COMPUTER@NAME.
//
// Errors: NotFound, Conflict (several have the name).
func (s *Store) Get(ctx context.Context, ref string) (holt.Schedule, error) {
	r, err := s.find(ctx, ref)
	if err != nil {
		return holt.Schedule{}, err
	}
	return s.describe(ctx, r)
}

// List returns the schedules of a computer or, with "", of all, sorted by name.
func (s *Store) List(ctx context.Context, ref string) ([]holt.Schedule, error) {
	var computers []holt.Computer
	var err error
	if ref != "" {
		computers = make([]holt.Computer, 1)
		computers[0], err = s.cfg.Computers.Get(ctx, ref)
	} else {
		computers, err = s.cfg.Computers.List(ctx)
	}
	if err != nil {
		return nil, err
	}
	ids := make([]holt.ComputerID, len(computers))
	for i, c := range computers {
		ids[i] = c.ID
	}
	of, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	var all []record
	err = s.read(ctx, func(tx *db.Tx) (err error) {
		all, err = list(tx, `WHERE computer IN (SELECT value FROM json_each(?)) ORDER BY name, id`, string(of))
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.describeAll(ctx, all, computers)
}

// Update changes a schedule. It does not affect open firings. Due times while the schedule was
// disabled, or of its former times, do not count as missed.
//
// Errors: InvalidArgument, NotFound, AlreadyExists (the name), Conflict (several have the name ref).
func (s *Store) Update(ctx context.Context, ref string, change holt.ScheduleChange, key string) (holt.Schedule, error) {
	request := struct {
		Ref    string
		Change holt.ScheduleChange
	}{ref, change}
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Schedule]{
		Key: key, Method: "schedule.update", Request: request,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Schedule, error) {
			return s.update(ctx, ref, change, claim)
		},
		Again: func(ctx context.Context, id string) (holt.Schedule, error) { return s.Get(ctx, id) },
	})
}

func (s *Store) update(ctx context.Context, ref string, change holt.ScheduleChange, claim *idempotency.Claim) (holt.Schedule, error) {
	r, err := s.find(ctx, ref)
	if err != nil {
		return holt.Schedule{}, err
	}
	err = s.write(ctx, func(tx *db.Tx) error {
		is, there, err := byID(tx, r.ID)
		if err == nil && !there {
			err = notFound(ref)
		}
		if err != nil {
			return err
		}
		after, next, retimed := is.after, is.next, apply(&is, change)
		if err := s.complete(&is, s.cfg.Now().UTC()); err != nil {
			return err
		}
		if !retimed {
			is.after, is.next = after, next
		}
		r = is
		if err := claim.Bind(tx, string(is.ID)); err != nil {
			return err
		}
		return put(tx, is)
	})
	if err != nil {
		return holt.Schedule{}, err
	}
	s.notify()
	return s.describe(ctx, r)
}

// apply makes a change. retimed: the due times change.
func apply(r *record, change holt.ScheduleChange) (retimed bool) {
	before := r.Schedule
	set(&r.Name, change.Name)
	set(&r.Cron, change.Cron)
	set(&r.TimeZone, change.TimeZone)
	set(&r.Missed, change.Missed)
	set(&r.Overlap, change.Overlap)
	set(&r.KeepAwake, change.KeepAwake)
	set(&r.Enabled, change.Enabled)
	set(&r.Spec, change.Spec)
	r.TimeZone = cmp.Or(r.TimeZone, "UTC")
	return r.Cron != before.Cron || r.TimeZone != before.TimeZone || r.Enabled && !before.Enabled
}

func set[T any](field *T, to *T) {
	if to != nil {
		*field = *to
	}
}

// Delete removes a schedule with its history. A run in progress is not interrupted, and its
// computer is paused or stopped after it as usual.
//
// Errors: NotFound, Conflict (several have the name ref).
func (s *Store) Delete(ctx context.Context, ref, key string) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "schedule.delete", Request: ref,
		Act: func(ctx context.Context, claim *idempotency.Claim) (none struct{}, err error) {
			r, err := s.find(ctx, ref)
			if err != nil {
				return none, err
			}
			return none, s.write(ctx, func(tx *db.Tx) error { return errors.Join(claim.Bind(tx, string(r.ID)), remove(tx, r.ID)) })
		},
		Again: func(context.Context, string) (struct{}, error) { return struct{}{}, nil },
	})
	return err
}

// remove deletes a schedule and its firings, except those in progress and those whose computer must still be paused or
// stopped.
func remove(tx *db.Tx, id holt.ScheduleID) error {
	if err := tx.Exec(`DELETE FROM firing WHERE schedule = ? AND state NOT IN ('starting', 'running') AND was = ''`, id); err != nil {
		return err
	}
	return tx.Exec(`DELETE FROM schedule WHERE id = ?`, id)
}

// History returns up to limit firings of a schedule, the latest first; 0: all that are kept.
//
// Errors: NotFound, Conflict (several have the name ref).
func (s *Store) History(ctx context.Context, ref string, limit int) ([]holt.Firing, error) {
	r, err := s.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if limit <= 0 || limit > mostHistoryPage {
		limit = mostHistoryPage
	}
	out := []holt.Firing{}
	err = s.read(ctx, func(tx *db.Tx) error {
		all, err := firings(tx, `WHERE schedule = ? ORDER BY seq DESC LIMIT ?`, r.ID, limit)
		for _, f := range all {
			out = append(out, *f.shown())
		}
		return err
	})
	return out, err
}
