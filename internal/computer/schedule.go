package computer

import (
	"context"
	"errors"
	"slices"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Schedules are the schedules of computers, as far as a deleted computer takes them along.
type Schedules interface {
	// Of returns the names of a computer's schedules.
	Of(ctx context.Context, id holt.ComputerID) ([]string, error)
	// Forget removes them, as part of the transaction that removes their computer.
	Forget(tx *db.Tx, id holt.ComputerID) error
}

// Scheduled is the computers as schedules use them.
type Scheduled struct{ s *Store }

func (s *Store) Scheduled() Scheduled { return Scheduled{s} }

// Get returns a computer by name or id.
func (s Scheduled) Get(ctx context.Context, ref string) (holt.Computer, error) {
	return s.s.Get(ctx, ref)
}

// List returns all computers.
func (s Scheduled) List(ctx context.Context) ([]holt.Computer, error) { return s.s.List(ctx) }

// Check refuses a command that no guest can run.
func (s Scheduled) Check(spec holt.RunSpec) error { return checkRun(spec) }

// Run returns a run as it is on record.
func (s Scheduled) Run(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return s.s.runRows.get(ctx, id)
}

// Signal sends a signal to all processes of a run.
func (s Scheduled) Signal(ctx context.Context, id holt.RunID, signal string) error {
	return s.s.Runs().Signal(ctx, id, signal, "")
}

// Ending reports whether an error is that the daemon is about to end.
func Ending(err error) bool { return errors.Is(err, errDrained) }

// Start wakes a computer and starts a run with that id, for the schedule that is the actor of ctx.
// It returns without waiting for the end of the run, and completes even when its caller leaves. A
// run that is on record is returned as it is, after a restart of the daemon it is started if the
// guest does not have it.
//
// Errors are those of [Runs.Start]; then there is no run.
func (s Scheduled) Start(ctx context.Context, id holt.RunID, computer holt.ComputerID, spec holt.RunSpec) (holt.Run, error) {
	if err := checkRun(spec); err != nil {
		return holt.Run{}, err
	}
	by, _ := holt.ActorOf(ctx)
	return detach(ctx, s.s.shutdown, func(ctx context.Context) (holt.Run, error) {
		run, err := s.s.runRows.get(ctx, id)
		switch {
		case err == nil:
			return s.again(ctx, run, spec)
		case holt.CodeOf(err) != holt.NotFound:
			return run, err
		}
		c, l, done, err := s.s.waker.use(ctx, string(computer), holt.Use{Kind: holt.UseSchedule, ID: string(by.Schedule), Detail: by.Name})
		if err != nil {
			return holt.Run{}, err
		}
		defer done()
		run = holt.Run{ID: id, ComputerID: c.ID, Schedule: by.Name, Spec: spec.OnRecord(), State: holt.RunRunning, StartedAt: time.Now().UTC()}
		return s.begin(ctx, l, run, spec)
	})
}

// Wake wakes a computer, for the schedule that is the actor of ctx.
//
// Errors are those of [Store.Wake].
func (s Scheduled) Wake(ctx context.Context, id holt.ComputerID) error {
	by, _ := holt.ActorOf(ctx)
	_, _, done, err := s.s.waker.use(ctx, string(id), holt.Use{Kind: holt.UseSchedule, ID: string(by.Schedule), Detail: by.Name})
	if err == nil {
		done()
	}
	return err
}

// begin records a run and makes the guest start it. A run that the guest may have stays on record,
// whatever the error.
func (s Scheduled) begin(ctx context.Context, l *live, run holt.Run, spec holt.RunSpec) (holt.Run, error) {
	defer l.runs.claim(run)()
	if err := s.s.runRows.insert(ctx, run, nil); err != nil {
		return holt.Run{}, err
	}
	if err := s.s.cfg.failpoint("run/start"); err != nil {
		return holt.Run{}, err
	}
	l.begin(run.ID)
	return s.launched(ctx, l, run, spec)
}

// again starts a recorded run if the guest cannot have it: it is running or lost on record, and its
// machine is still the same.
func (s Scheduled) again(ctx context.Context, run holt.Run, spec holt.RunSpec) (holt.Run, error) {
	c, err := s.s.table.find(ctx, string(run.ComputerID))
	l := s.s.machines.live(run.ComputerID)
	if err != nil || run.State == holt.RunExited || l == nil || c.StartedAt == nil || c.StartedAt.After(run.StartedAt) {
		return run, err
	}
	defer l.runs.claim(run)()
	if _, err := s.s.runRows.unlose(ctx, run.ID); err != nil {
		return run, err
	}
	run.State, run.EndedAt = holt.RunRunning, nil
	return s.launched(ctx, l, run, spec)
}

// launched launches a recorded run, and returns it unless the guest refused it.
func (s Scheduled) launched(ctx context.Context, l *live, run holt.Run, spec holt.RunSpec) (holt.Run, error) {
	err := s.s.Runs().launch(ctx, l, run.ID, spec)
	if err == nil {
		return run, nil
	}
	if is, lost := s.s.runRows.get(context.WithoutCancel(ctx), run.ID); lost == nil {
		s.s.log.WarnContext(ctx, "start of run is unconfirmed", "run", run.ID, "computer", run.ComputerID, "err", err)
		return is, nil
	}
	return holt.Run{}, err
}

// restLimit bounds how long Rest waits for a guest that is still busy, for instance after its
// start.
const restLimit = 30 * time.Second

// Rest pauses or stops a running computer that nothing uses. One with an open terminal is paused
// instead of stopped, which would end the terminal.
func (s Scheduled) Rest(ctx context.Context, id holt.ComputerID, as holt.ComputerState) error {
	for end := time.Now().Add(restLimit); time.Now().Before(end); backoff(ctx, 3) {
		a, err := s.s.Awake(ctx, string(id))
		if err != nil || a.State != holt.ComputerRunning || slices.ContainsFunc(a.Uses, outlasts) {
			return err
		}
		if err := s.s.cfg.failpoint("schedule/rest"); err != nil {
			return err
		}
		if rested, err := s.restAs(ctx, id, as); rested || err != nil {
			return err
		}
	}
	return nil
}

// restAs pauses or stops a computer if nothing uses it now.
func (s Scheduled) restAs(ctx context.Context, id holt.ComputerID, as holt.ComputerState) (bool, error) {
	if as == holt.ComputerStopped {
		stopped, err := s.s.StopIfIdle(ctx, string(id))
		if stopped || err != nil {
			return stopped, err
		}
		if open, err := s.s.terminalRows.open(ctx, id); !open || err != nil {
			return false, err
		}
	}
	return s.s.Memory().PauseIfIdle(ctx, string(id), string(holt.UseSchedule))
}

// outlasts reports whether a use is more than a guest's own activity.
func outlasts(u holt.Use) bool {
	return u.Kind != holt.UseCPU && u.Kind != holt.UseNetwork && u.Kind != holt.UseUnknown && u.Kind != holt.UseStart
}
