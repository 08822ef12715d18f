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

// Computers is what schedules need of computers. [computer.Scheduled] is it.
type Computers interface {
	// Get returns a computer by name or id; NotFound.
	Get(ctx context.Context, ref string) (holt.Computer, error)
	// List returns all of them.
	List(ctx context.Context) ([]holt.Computer, error)
	// Check refuses a command that can never be run.
	Check(spec holt.RunSpec) error
	// Start wakes a computer and starts a run of that id for the actor of ctx, unless there
	// is one, which it returns as it is. An error of which nothing is left is final, unless
	// [computer.Ending] says that it is the daemon's end.
	Start(ctx context.Context, id holt.RunID, computer holt.ComputerID, spec holt.RunSpec) (holt.Run, error)
	// Wake has a computer run.
	Wake(ctx context.Context, id holt.ComputerID) error
	// Run returns a run as it is on record; NotFound.
	Run(ctx context.Context, id holt.RunID) (holt.Run, error)
	// Signal sends a signal to all processes of a run.
	Signal(ctx context.Context, id holt.RunID, signal string) error
	// Rest pauses or stops a running computer, unless something uses it.
	Rest(ctx context.Context, id holt.ComputerID, as holt.ComputerState) error
}

// Config is what a [Store] stands on. DB and Computers must be set.
type Config struct {
	DB        *db.DB // with [Schema], [RoomSchema] and the table of computers
	Keys      *idempotency.Keys
	Computers Computers
	Now       func() time.Time         // the wall clock; nil: time.Now
	Log       *slog.Logger             // nil: slog.Default
	Fail      func(point string) error // tests: called at each step; an error ends the store's work there
}

// Store is the schedules of one daemon.
type Store struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	bell   chan struct{} // holds one when next times have changed
	lanes  lanes
	turns  turns

	skipped map[holt.ScheduleID]bool // that cannot be read, and were said to be; Open's, then watch's
}

const (
	mostOfAll       = 10_000
	mostOfTenant    = 1000
	mostOfComputer  = 100
	mostCommand     = 64 << 10 // bytes of a command, its arguments and its environment
	mostHistoryPage = keptFirings
)

// Open takes over the schedules of the control database: what a daemon before this one had
// fired goes on, what was due since is made up for or recorded as missed, by each schedule's policy.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, log: cfg.Log, bell: make(chan struct{}, 1)}
	s.lanes.set, s.skipped, s.turns.down = map[holt.ScheduleID]*lane{}, map[holt.ScheduleID]bool{}, map[holt.ComputerID]down{}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	open, err := s.takeOver(ctx)
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("take schedules over: %w", err)
	}
	s.wg.Go(func() { s.restAll(s.ctx) })
	for _, id := range open {
		s.pursue(id)
	}
	s.wg.Go(func() { s.watch(s.ctx) })
	return s, nil
}

// Close stops firing and waits. Runs go on; the next Open follows them.
func (s *Store) Close() error {
	s.lanes.mu.Lock()
	s.lanes.closed = true
	s.lanes.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return nil
}

// point is a step at which tests end a store's work.
func (s *Store) point(name string) error {
	if s.cfg.Fail == nil {
		return nil
	}
	return s.cfg.Fail(name)
}

// write runs a transaction that survives power loss: what has been fired must not be fired again.
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
		return context.Cause(ctx) // SQLite says only that it was interrupted
	}
	return err
}

// ring has the next times looked at again.
func (s *Store) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// Create makes a schedule. It fires from now on.
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
	s.ring()
	return s.whole(ctx, r)
}

// room refuses one schedule too many.
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
		return holt.Errorf(holt.TooMany, "%s has %d schedules", c.Name, here).WithHint("a computer has at most %d; one command can do several things", mostOfComputer)
	case tenants >= mostOfTenant:
		return holt.Errorf(holt.TooMany, "the tenant %s has %d schedules", cmp.Or(c.Tenant, holt.DefaultTenant), tenants).WithHint("a tenant has at most %d; holt schedule list shows them", mostOfTenant)
	case all >= mostOfAll:
		return holt.Errorf(holt.TooMany, "there are %d schedules of all tenants", all).WithHint("a daemon has at most %d: others must delete some first", mostOfAll)
	}
	return nil
}

// complete checks a schedule and computes when it is due next: after now.
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
		return holt.Errorf(holt.InvalidArgument, "%q is no way to treat what was missed", clip(string(r.Missed))).WithHint("give skip, once or all")
	}
	switch r.Overlap {
	case holt.OverlapSkip, holt.OverlapQueue, holt.OverlapReplace:
	default:
		return holt.Errorf(holt.InvalidArgument, "%q is no way to treat a run that goes on", clip(string(r.Overlap))).WithHint("give skip, queue or replace")
	}
	if err := s.checkSpec(r.Spec); err != nil {
		return err
	}
	r.after, r.next = now, table.Next(now)
	return nil
}

func (s *Store) checkSpec(spec holt.RunSpec) error {
	if spec.Stdin {
		return holt.Errorf(holt.InvalidArgument, "a schedule has nobody who types").WithHint("leave stdin out; read a file instead")
	}
	if len(spec.Secrets) > 0 {
		return holt.Errorf(holt.InvalidArgument, "a schedule keeps no secrets").WithHint("put them into a file of the computer's root disk that only its user can read, and read that")
	}
	size := len(spec.Command)
	for _, arg := range spec.Argv {
		size += len(arg)
	}
	for k, v := range spec.Env {
		size += len(k) + len(v)
	}
	if size > mostCommand {
		return holt.Errorf(holt.InvalidArgument, "the command, its arguments and its environment are too long together (%d bytes)", size).
			WithHint("at most %d bytes; write a script into the workspace and run that", mostCommand)
	}
	return s.cfg.Computers.Check(spec)
}

// whole adds to a schedule what is computed: the computer's name, next times and firings.
func (s *Store) whole(ctx context.Context, r record) (holt.Schedule, error) {
	computers, err := s.cfg.Computers.List(ctx)
	if err != nil {
		return holt.Schedule{}, err
	}
	all, err := s.wholes(ctx, []record{r}, computers)
	if err != nil {
		return holt.Schedule{}, err
	}
	if len(all) == 0 {
		return holt.Schedule{}, notFound(string(r.ID))
	}
	return all[0], nil
}

// shownNext is how many next times are told.
const shownNext = 3

// wholes is whole for several; those of other computers, or of none any more, are left out.
func (s *Store) wholes(ctx context.Context, all []record, computers []holt.Computer) ([]holt.Schedule, error) {
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
			latest, err := firings(tx, `WHERE schedule = ? AND NOT `+goesOn+` ORDER BY seq DESC LIMIT 1`, r.ID)
			if err != nil {
				return err
			}
			now, err := firings(tx, `WHERE schedule = ? AND `+goesOn+` ORDER BY state = 'queued', seq LIMIT 1`, r.ID)
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
	return holt.Errorf(holt.NotFound, "there is no schedule %q", clip(ref)).WithHint("holt schedule list shows those there are")
}

// seen says whether a call can see the computer of a schedule.
func (s *Store) seen(ctx context.Context, r record) bool {
	if holt.Confined(ctx) == "" {
		return true
	}
	_, err := s.cfg.Computers.Get(ctx, string(r.ComputerID))
	return err == nil
}

// find returns a schedule by id, by a name that only one has, or as COMPUTER@NAME.
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
	all = slices.DeleteFunc(all, func(one record) bool { return !s.seen(ctx, one) })
	switch {
	case err != nil:
		return r, err
	case len(all) == 0:
		return r, notFound(ref)
	case len(all) > 1:
		return r, holt.Errorf(holt.Conflict, "%d schedules are called %q", len(all), clip(ref)).WithHint("name it as COMPUTER@%s", name)
	}
	return all[0], nil
}

// Get returns a schedule. ref is an id, a name that only one has, or COMPUTER@NAME.
//
// Errors: NotFound, Conflict (several have the name).
func (s *Store) Get(ctx context.Context, ref string) (holt.Schedule, error) {
	r, err := s.find(ctx, ref)
	if err != nil {
		return holt.Schedule{}, err
	}
	return s.whole(ctx, r)
}

// List returns the schedules of a computer, or of all with "", in the order of their names.
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
	return s.wholes(ctx, all, computers)
}

// Update changes a schedule. What goes on goes on as it began. What was due while it was
// disabled, or by other times, is not missed.
//
// Errors: InvalidArgument, NotFound, AlreadyExists (the name), Conflict (several have ref as name).
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
		after, next, anew := is.after, is.next, apply(&is, change)
		if err := s.complete(&is, s.cfg.Now().UTC()); err != nil {
			return err
		}
		if !anew {
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
	s.ring()
	return s.whole(ctx, r)
}

// apply makes a change, and says whether the schedule goes by other times then.
func apply(r *record, change holt.ScheduleChange) (anew bool) {
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

// Delete removes a schedule with its history. A run of it that goes on goes on, and its
// computer rests after it all the same.
//
// Errors: NotFound, Conflict (several have ref as name).
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
		Again: func(context.Context, string) (struct{}, error) { return struct{}{}, nil }, // it was
	})
	return err
}

// remove takes a schedule away. Of what became of it stays what goes on, or owes a computer its rest.
func remove(tx *db.Tx, id holt.ScheduleID) error {
	if err := tx.Exec(`DELETE FROM firing WHERE schedule = ? AND state NOT IN ('starting', 'running') AND was = ''`, id); err != nil {
		return err
	}
	return tx.Exec(`DELETE FROM schedule WHERE id = ?`, id)
}

// History returns what became of a schedule, the latest first, up to limit (0: all that is kept).
//
// Errors: NotFound, Conflict (several have ref as name).
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
