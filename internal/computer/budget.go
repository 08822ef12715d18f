package computer

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Who pauses computers whose budget is exhausted, and those that have run for as long as their tenant's may.
const (
	PausedByBudget = "budget"
	PausedByLimit  = "limit"
)

const (
	budgetEvery = 15 * time.Second // between readings of all machines
	readLimit   = 2 * time.Second  // for the traffic of one
	readAtOnce  = 32               // computers: of those whose networks do not answer many are waited for together
)

// budgets counts what machines use, and ends those that may use no more.
type budgets struct {
	*registry
	read    func(ctx context.Context, l *live, network bool) (reading, error) // [budgets.reading], but in tests
	pause   func(ctx context.Context, ref, by string) (holt.Computer, error)
	stop    func(ctx context.Context, ref string) (holt.Computer, error)
	changed notification // a budget may have changed
	mu      sync.Mutex   // one counts at a time: a reading is not counted after a later one
	pausing sync.Map     // of holt.ComputerID: those that are about to be paused
}

// run counts and pauses until ctx ends.
func (s *budgets) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.beat(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "count what computers use", "err", err)
		}
		timer := time.NewTimer(budgetEvery)
		select {
		case <-timer.C:
		case <-s.changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// beat counts what all machines have used, and starts to pause those that have reached a limit.
func (s *budgets) beat(ctx context.Context) error {
	if err := s.count(ctx, `WHERE state = 'running'`); err != nil {
		return err
	}
	over, err := s.over(ctx)
	for _, o := range over {
		s.shutdown.spawn(func(ctx context.Context) { s.rest(ctx, o.r, o.by) })
	}
	return err
}

// overdue is a running computer that has reached a limit; by says which.
type overdue struct {
	r  record
	by string
}

// over returns the running computers that have reached a limit.
func (s *budgets) over(ctx context.Context) (all []overdue, err error) {
	running, err := s.table.list(ctx, `WHERE state = 'running'`)
	if err != nil {
		return nil, err
	}
	most := map[string]time.Duration{}
	err = read(ctx, s.cfg.DB, func(tx *db.Tx) error {
		return tx.Query(`SELECT tenant, run_ms FROM tenant_limit WHERE run_ms > 0`, nil, func(row *db.Row) error {
			most[row.Text(0)] = time.Duration(row.Int64(1)) * time.Millisecond
			return nil
		})
	})
	for _, r := range running {
		l := s.machines.live(r.ID)
		if l == nil {
			continue
		}
		for _, b := range r.Budgets {
			if b.Exhausted {
				all = append(all, overdue{r, PausedByBudget})
				break
			}
		}
		limit, bounded := most[r.Tenant]
		if !bounded {
			continue
		}
		if g, err := s.read(ctx, l, false); err == nil && g.Age >= limit {
			all = append(all, overdue{r, PausedByLimit})
		}
	}
	return all, err
}

// rest pauses a computer that has reached a limit, or stops it where the engine cannot pause. The
// next beat retries a failure.
func (s *budgets) rest(ctx context.Context, r record, by string) {
	if _, twice := s.pausing.LoadOrStore(r.ID, true); twice {
		return
	}
	defer s.pausing.Delete(r.ID)
	s.log.WarnContext(ctx, "computer has reached a limit", "computer", r.ID, "name", r.Name, "by", by)
	err := s.cfg.failpoint("budget/pause")
	switch {
	case err != nil:
	case s.cfg.engine(r).Capabilities().MemorySnapshot:
		_, err = s.pause(idempotency.WithMethod(ctx, "pause"), string(r.ID), by)
	default:
		err = s.end(idempotency.WithMethod(ctx, "stop"), r, by)
	}
	if err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "pause a computer that has reached a limit; will retry", "computer", r.ID, "again_in", budgetEvery, "err", err)
	}
}

// end stops a computer that cannot be paused, and records why.
func (s *budgets) end(ctx context.Context, r record, by string) error {
	if _, err := s.stop(ctx, string(r.ID)); err != nil {
		return err
	}
	r, unlock, err := s.hold(ctx, string(r.ID))
	if err != nil {
		return err
	}
	defer unlock()
	if r.State != holt.ComputerStopped {
		return nil // it was started meanwhile
	}
	r.Reason = "stopped by " + by + ": the engine " + r.Engine + " does not support pausing"
	return s.table.save(ctx, r)
}

// count counts what the machines of the selected computers have used since the last count.
func (s *budgets) count(ctx context.Context, condition string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked(ctx, condition, args...)
}

func (s *budgets) countLocked(ctx context.Context, condition string, args ...any) error {
	all, err := s.table.list(ctx, condition, args...)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r record) bool { return len(r.Budgets) == 0 })
	readings, runs := s.readings(ctx, all)
	if !slices.Contains(runs, true) {
		return nil
	}
	if err := s.cfg.failpoint("budget/count"); err != nil {
		return err
	}
	var low []budget
	err = write(ctx, s.cfg.DB, func(tx *db.Tx) error {
		for i, r := range all {
			if !runs[i] {
				continue
			}
			if err := settleMeter(tx, r, readings[i]); err != nil {
				return err
			}
		}
		low, err = warn(tx)
		return err
	})
	if err != nil {
		return err
	}
	for _, b := range low {
		s.log.WarnContext(ctx, "budget nearly used up", "computer", b.ComputerID, "name", b.Computer, "used_percent", int(100*b.Fullest()), "exhausted", b.Exhausted)
	}
	return s.cfg.failpoint("budget/counted")
}

// warn returns the budgets that are nearly used up and were not reported yet, and marks them as
// reported.
func warn(tx *db.Tx) (low []budget, err error) {
	all, err := selectBudgets(tx, `WHERE NOT warned`)
	for _, b := range all {
		if err == nil && b.Fullest() >= warnAt {
			low = append(low, b)
			err = tx.Exec(`UPDATE budget SET warned = 1 WHERE computer = ?`, b.ComputerID)
		}
	}
	return low, err
}

// readings reads the selected computers concurrently.
func (s *budgets) readings(ctx context.Context, all []record) (of []reading, runs []bool) {
	of, runs = make([]reading, len(all)), make([]bool, len(all))
	var work errgroup.Group
	work.SetLimit(readAtOnce)
	for i, r := range all {
		work.Go(func() error {
			of[i], runs[i] = s.readingOf(ctx, r)
			return nil
		})
	}
	_ = work.Wait()
	return of, runs
}

// readingOf reads what a computer's machine has used; false without a machine.
func (s *budgets) readingOf(ctx context.Context, r record) (reading, bool) {
	l := s.machines.live(r.ID)
	if l == nil {
		return reading{}, false
	}
	g, err := s.read(ctx, l, true)
	return g, err == nil
}

// last counts a computer that is about to be paused, stopped or deleted, since its machine cannot
// be read afterwards.
func (s *budgets) last(ctx context.Context, id holt.ComputerID) {
	r, err := s.table.find(ctx, string(id))
	if err == nil && len(r.Budgets) > 0 { // otherwise there is nothing to count
		err = s.count(ctx, `WHERE id = ?`, id)
	}
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "count what a computer has used", "computer", id, "err", err)
	}
}

// reading asks the host what a machine has used; network: including its traffic.
func (s *budgets) reading(ctx context.Context, l *live, network bool) (g reading, err error) {
	if l.m == nil || ended(l.m) {
		return g, machine.ErrGone
	}
	if g.Consumption, err = machine.Consumed(l.m.PID()); err != nil {
		return g, err
	}
	if network {
		g.network, g.networked = s.traffic(ctx, l.engine, l.id)
	}
	return g, nil
}

// traffic is all that a computer has sent and received; false if that is unknown.
func (s *budgets) traffic(ctx context.Context, e machine.Engine, id holt.ComputerID) (bytes int64, known bool) {
	if !s.cfg.ownNetworks(e) {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	all, err := s.cfg.Networks.Traffic(ctx, s.cfg.dir(id))
	if err != nil {
		return 0, false
	}
	sum := holt.SumTraffic(all)
	return sum.Sent + sum.Received, true
}

// SetBudget changes what a computer and all its forks may use; the first change starts the count.
// An exhausted budget pauses them within 15 seconds. Raising it allows them to wake, and wakes
// none.
//
// Errors: NotFound, InvalidArgument.
func (s *Store) SetBudget(ctx context.Context, ref string, change holt.BudgetChange, key string) (holt.Budget, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Budget]{Key: key, Method: "computer.budget", Request: []any{ref, change}, Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Budget, error) {
		return s.budgets.set(ctx, ref, change)
	}})
}

func (s *budgets) set(ctx context.Context, ref string, change holt.BudgetChange) (b holt.Budget, err error) {
	id, name, err := s.rootOf(ctx, ref)
	if err != nil {
		return b, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	const tree = `WHERE id = ?1 OR instr(lineage || ' ', ' ' || ?1 || ' ') > 0`
	if err := s.countLocked(ctx, tree, id); err != nil {
		return b, err
	}
	members, err := s.table.list(ctx, tree, id)
	if err != nil {
		return b, err
	}
	now, runs := s.readings(ctx, members)
	for i, r := range members {
		if !runs[i] {
			now[i].network, _ = s.traffic(ctx, s.cfg.engine(r), r.ID)
		}
	}
	err = writeSync(ctx, s.cfg.DB, func(tx *db.Tx) error {
		all, err := selectBudgets(tx, `WHERE computer = ?`, id)
		if err != nil {
			return err
		}
		b = holt.Budget{ComputerID: id, Computer: name, CreatedAt: time.Now().UTC()}
		if len(all) > 0 {
			b = all[0].Budget
			b.Computer = name
		}
		if err := change.Apply(&b); err != nil {
			return err
		}
		begins := len(all) == 0 || change.Reset
		if err := saveBudget(tx, b, begins); err != nil || !begins {
			return err
		}
		for i, r := range members {
			if err := setMeter(tx, r.ID, now[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.log.InfoContext(ctx, "budget set", "computer", id, "name", name, "cpu_ms", b.CPUMS, "run_ms", b.RunMS, "network_bytes", b.NetworkBytes)
		s.changed.notify()
	}
	return b, err
}

// RemoveBudget removes the budget of a computer. Budgets of its ancestors stay.
//
// Errors: NotFound.
func (s *Store) RemoveBudget(ctx context.Context, ref, key string) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{Key: key, Method: "computer.budget.remove", Request: ref, Removes: true, Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
		id, name, err := s.budgets.rootOf(ctx, ref)
		if err != nil {
			return struct{}{}, err
		}
		s.budgets.mu.Lock()
		defer s.budgets.mu.Unlock()
		return struct{}{}, writeSync(ctx, s.cfg.DB, func(tx *db.Tx) error {
			if err := tx.Exec(`DELETE FROM budget WHERE computer = ?`, id); err != nil || tx.Changes() > 0 {
				return err
			}
			return holt.Errorf(holt.NotFound, "%s has no budget of its own", name).WithHint("holt computer get %s shows the budgets that count it", name)
		})
	}})
	return err
}

// rootOf finds the computer of a budget. A deleted computer can be named by its id while it has
// forks.
func (s *budgets) rootOf(ctx context.Context, ref string) (id holt.ComputerID, name string, err error) {
	r, err := s.table.find(ctx, ref)
	if holt.CodeOf(err) != holt.NotFound {
		return r.ID, r.Name, err
	}
	var all []budget
	of := `WHERE computer = ?1 AND (?2 = '' OR EXISTS (SELECT 1 FROM computer WHERE tenant = ?2 AND instr(lineage || ' ', ' ' || ?1 || ' ')))`
	if lost := read(ctx, s.cfg.DB, func(tx *db.Tx) (err error) { all, err = selectBudgets(tx, of, ref, holt.Confined(ctx)); return err }); lost != nil {
		return "", "", lost
	}
	if len(all) == 0 {
		return "", "", err
	}
	return all[0].ComputerID, all[0].Computer, nil
}
