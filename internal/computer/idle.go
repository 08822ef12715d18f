package computer

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"holt"
	"holt/internal/idempotency"
)

// idler pauses computers that nothing uses. Each machine has a goroutine that looks at it.
type idler struct {
	*registry
	rows        idleTable
	runs        runTable
	terminals   terminalTable
	snapshotter *snapshotter
	atOnce      chan struct{} // a semaphore: has a token for each computer that is being paused for being idle
	pauseLocked func(ctx context.Context, r *record, l *live, by string) (holt.Computer, error)
	stopLocked  func(ctx context.Context, r *record) error
}

const (
	idleEvery   = 15 * time.Second // between looks at a computer…
	idleLeast   = time.Second      // …and at least, for a short timeout
	idleRetry   = time.Minute      // after a pause that failed
	idleRecord  = time.Minute      // how old what is on record of the last use may be
	idleAdopted = time.Minute      // after the daemon's start, before what it adopted is paused
	idleAtOnce  = 2                // pauses at the same time
	runsAwake   = 100              // running runs that are looked at
)

// pausedByIdle is who pauses idle computers.
const pausedByIdle = "idle"

// watch looks at a machine until it ends or the daemon lets go of it.
func (s *idler) watch(ctx context.Context, l *live) {
	for wait := idleLeast; ; {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.look:
		case <-l.ctx.Done():
		case <-l.m.Done():
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || l.ctx.Err() != nil || !l.running() {
			return
		}
		var err error
		if wait, err = s.step(ctx, l); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "check whether computer is idle", "computer", l.id, "err", err)
		}
	}
}

// step looks at a computer once, pauses it if it has been idle for long enough, and returns when to
// look again.
func (s *idler) step(ctx context.Context, l *live) (wait time.Duration, err error) {
	r, err := s.table.find(ctx, string(l.id))
	if err != nil || r.State != holt.ComputerRunning {
		return idleEvery, err
	}
	l.busy.look(ctx) // also of one that is never paused: it tells what memory it uses
	if s.never(r) != "" {
		return idleEvery, nil
	}
	wait = s.every(r)
	in, err := s.inUse(ctx, r, l)
	if err != nil {
		return wait, err
	}
	if len(in) > 0 {
		s.uses.used(r.ID, in[0])
		return wait, s.remember(ctx, r)
	}
	if _, unknown := l.busy.is(s.patience(r)); unknown != "" {
		return wait, nil
	}
	_, at := s.idle(r)
	if left := at.Sub(s.uses.now()); left > 0 {
		return min(wait, left), s.remember(ctx, r)
	}
	if _, err := s.pause(ctx, r.ID, pausedByIdle, false); err != nil {
		s.uses.failed(r.ID, err)
		return wait, err
	}
	return wait, nil
}

// never returns why a computer is never paused for being idle; "" if it is.
func (s *idler) never(r record) string {
	switch {
	case !s.cfg.engine(r).Capabilities().MemorySnapshot:
		return "the engine " + s.cfg.engine(r).Name() + " does not support pausing, and a stop would end its programs"
	case r.IdleTimeout.Never():
		return "the idle timeout is null: the computer is never paused"
	}
	return ""
}

// every is how often a computer is looked at.
func (s *idler) every(r record) time.Duration {
	return min(max(time.Duration(r.IdleTimeout)/4, idleLeast), idleEvery)
}

// patience is how old a guest's answer may be.
func (s *idler) patience(r record) time.Duration { return 4 * s.every(r) }

// inUse returns everything that uses a computer.
func (s *idler) inUse(ctx context.Context, r record, l *live) ([]holt.Use, error) {
	all := s.uses.going(r.ID)
	runs, err := s.runs.list(ctx, `WHERE computer = ? AND state = 'running' ORDER BY seq LIMIT ?`, r.ID, runsAwake)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		use := runUse(run.ID, run.Spec)
		use.Since = run.StartedAt
		all = append(all, use)
	}
	if l != nil {
		works, _ := l.busy.is(s.patience(r))
		all = append(all, works...)
	}
	holds, err := s.held(ctx, r.ID)
	all = append(all, holds...)
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(u holt.Use) bool { // a run that is being started is also on record
		key := string(u.Kind) + " " + u.ID
		twice := u.ID != "" && seen[key]
		seen[key] = true
		return twice
	}), err
}

// held returns the holds of a computer as uses.
func (s *idler) held(ctx context.Context, id holt.ComputerID) (uses []holt.Use, err error) {
	holds, err := s.rows.holds(ctx, id, s.uses.now())
	for _, h := range holds {
		uses = append(uses, holt.Use{Kind: holt.UseHold, ID: string(h.ID), Detail: h.Reason, Since: h.CreatedAt, Until: &h.ExpiresAt})
	}
	return uses, err
}

// idle returns since when a computer has been idle, and when it is paused.
func (s *idler) idle(r record) (since, at time.Time) {
	last, retry := s.uses.lastOf(r.ID)
	since = last.Since
	if since.IsZero() { // this daemon has seen no use
		since = time.Unix(0, r.used)
		if r.StartedAt != nil && r.StartedAt.After(since) {
			since = *r.StartedAt
		}
	}
	at = since.Add(time.Duration(r.IdleTimeout))
	adopted := s.uses.opened.Add(min(idleAdopted, time.Duration(r.IdleTimeout)))
	for _, not := range []time.Time{adopted, retry} {
		if at.Before(not) {
			at = not
		}
	}
	return since.UTC(), at.UTC()
}

// remember records the last use of a computer, roughly, for the next daemon.
func (s *idler) remember(ctx context.Context, r record) error {
	last, _ := s.uses.lastOf(r.ID)
	if last.Since.Sub(time.Unix(0, r.used)) < idleRecord {
		return nil
	}
	return s.rows.used(ctx, r.ID, last.Since)
}

// Awake returns why a computer is awake and when it is paused.
func (s *Store) Awake(ctx context.Context, ref string) (holt.Awake, error) {
	i := s.idler
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return holt.Awake{}, err
	}
	a := holt.Awake{ComputerID: r.ID, Computer: r.Name, State: r.State, Uses: []holt.Use{}, IdleTimeout: r.IdleTimeout}
	l := s.machines.live(r.ID)
	if r.State != holt.ComputerRunning || l == nil {
		a.Uses = append(s.uses.going(r.ID), a.Uses...)
		holds, err := i.held(ctx, r.ID)
		a.Uses, a.Note = append(a.Uses, holds...), asleepNote(r)
		return a, err
	}
	bounded, cancel := context.WithTimeout(ctx, awakeLimit)
	defer cancel()
	l.busy.lookTwice(bounded, i.patience(r))
	in, err := i.inUse(ctx, r, l)
	if err != nil {
		return a, err
	}
	a.Uses = append(a.Uses, in...)
	_, unknown := l.busy.is(i.patience(r))
	a.Note = i.never(r)
	if len(in) > 0 {
		return a, nil
	}
	if last, _ := s.uses.lastOf(r.ID); last.Kind != "" {
		a.LastUse = &last
	}
	since, at := i.idle(r)
	a.IdleSince = &since
	if a.Note == "" {
		a.Note, a.PausesAt = cmp.Or(unknown, s.uses.fault(r.ID)), &at
	}
	return a, nil
}

// awakeLimit bounds how long Awake, and a pause, wait for a guest.
const awakeLimit = 5 * time.Second

// asleepNote describes a computer that is not running.
func asleepNote(r record) string {
	note := "it is " + string(r.State)
	if r.PausedBy != "" {
		note += ", by " + r.PausedBy
	}
	for _, b := range r.Budgets {
		if b.Exhausted {
			e := budgetExhausted(b, r.Name)
			return note + "; it cannot be woken: " + e.Message + "; " + e.Hint
		}
	}
	if r.State == holt.ComputerPaused || r.State == holt.ComputerStopped {
		note += "; a run, a terminal, a file or a connection wakes it"
	}
	return note
}

// Update renames a computer or changes its idle timeout, in any state. The workspace keeps its
// name, and the guest learns its new name at the next start. Errors: NotFound, InvalidArgument,
// AlreadyExists.
func (s *Store) Update(ctx context.Context, ref string, change holt.ComputerUpdate, key string) (holt.Computer, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Computer]{Key: key, Method: "computer.update", Request: []any{ref, change}, Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Computer, error) {
		if change == (holt.ComputerUpdate{}) {
			return holt.Computer{}, holt.Errorf(holt.InvalidArgument, "no change was given").WithHint("give name, or idle_timeout: for example 15m, or null")
		}
		r, err := s.table.find(ctx, ref)
		if err != nil {
			return holt.Computer{}, err
		}
		if change.Name != "" {
			if err := s.rename(ctx, r.ID, change.Name); err != nil {
				return holt.Computer{}, err
			}
		}
		if change.IdleTimeout == 0 {
			return s.Get(ctx, string(r.ID))
		}
		if err := s.idler.rows.setTimeout(ctx, r.ID, change.IdleTimeout); err != nil {
			return holt.Computer{}, err
		}
		if l := s.machines.live(r.ID); l != nil {
			l.look.notify()
		}
		return s.Get(ctx, string(r.ID))
	}})
}

func (s *Store) rename(ctx context.Context, id holt.ComputerID, name string) error {
	name, err := holt.ParseName(name)
	if err != nil {
		return err
	}
	r, unlock, err := s.hold(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	r.Name = name
	return s.table.save(ctx, r)
}

// by names the caller, for records of pauses and holds.
func (s *registry) by(ctx context.Context) string {
	if s.cfg.Writer == nil {
		return ""
	}
	w := s.cfg.Writer(ctx)
	return strings.TrimSpace(w.Kind + " " + w.Name)
}
