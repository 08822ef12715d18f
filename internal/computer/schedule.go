package computer

import (
	"context"
	"errors"
	"slices"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Schedules are what goes with computers that this package does not know: what is to be
// run in them when.
type Schedules interface {
	// Of returns the names of a computer's schedules.
	Of(ctx context.Context, id holt.ComputerID) ([]string, error)
	// Forget removes them, as part of the transaction that removes their computer.
	Forget(tx *db.Tx, id holt.ComputerID) error
}

// Scheduled is the computers as schedules see them.
type Scheduled struct{ s *Store }

// Scheduled returns the computers as schedules see them.
func (s *Store) Scheduled() Scheduled { return Scheduled{s} }

// Get returns a computer by name or id.
func (s Scheduled) Get(ctx context.Context, ref string) (holt.Computer, error) {
	return s.s.Get(ctx, ref)
}

// List returns all computers.
func (s Scheduled) List(ctx context.Context) ([]holt.Computer, error) { return s.s.List(ctx) }

// Check refuses a command that can never be run.
func (s Scheduled) Check(spec holt.RunSpec) error { return checkRun(spec) }

// Run returns a run as it is on record.
func (s Scheduled) Run(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return s.s.runRows.get(ctx, id)
}

// Signal sends a signal to all processes of a run.
func (s Scheduled) Signal(ctx context.Context, id holt.RunID, signal string) error {
	return s.s.Runs().Signal(ctx, id, signal, "")
}

// Ending says whether an error is that the daemon is about to end.
func Ending(err error) bool { return errors.Is(err, errDrained) }

// Start wakes a computer and starts a run of that id, for the schedule that is ctx's actor, and
// returns without waiting for its end. It goes on when its caller leaves. A run of that id that
// is on record is returned as it is; one that a daemon's end kept from the guest is started now.
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

// Wake has a computer run, for the schedule that is ctx's actor.
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

// begin records a run and has the guest start it. One that the guest may have is there, whatever the error.
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

// again starts a run that is on record if the guest cannot have had it: its record is that it
// runs, or was found not to, in the machine that ran when it was made.
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

// launched launches a run that is on record, and returns it unless the guest refused it.
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

// restLimit is how long a guest that is still at work by itself, as after its start, is waited for.
const restLimit = 30 * time.Second

// Rest pauses or stops a running computer, unless somebody uses it, or something in it goes on. One in which somebody has
// left a terminal is paused where it would be stopped: a stop would end what is in that.
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

// outlasts says whether a use is more than what a guest does by itself for a while.
func outlasts(u holt.Use) bool {
	return u.Kind != holt.UseCPU && u.Kind != holt.UseNetwork && u.Kind != holt.UseUnknown && u.Kind != holt.UseStart
}
