package computer

import (
	"context"
	"errors"
	"strings"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/idempotency"
)

// Runs is the commands that run in computers. A run survives its client and the daemon; its record
// and the end of its output survive the machine.
type Runs struct {
	*registry
	rows      runTable
	outputs   outputs
	waker     *waker
	snapshots snapshotTable
	guests    *Guests
}

// mostListed bounds a list of runs.
const mostListed = 1000

// Start starts a command and returns without waiting for its end; a stopped computer is started
// first. The run does not end with its caller.
//
// Errors: InvalidArgument and NotFound (the guest has no such user, directory or program), Conflict
// (the computer is being deleted), Unavailable.
func (r *Runs) Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error) {
	if err := checkRun(spec); err != nil {
		return holt.Run{}, err
	}
	request := struct {
		Computer string
		Spec     holt.RunSpec
	}{computer, spec}
	return detach(ctx, r.shutdown, func(ctx context.Context) (holt.Run, error) {
		return idempotency.Once(ctx, r.cfg.Keys, idempotency.Call[holt.Run]{
			Key: key, Method: "run.start", Request: request,
			Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Run, error) {
				return r.start(ctx, computer, spec, claim)
			},
			Again: func(ctx context.Context, ref string) (holt.Run, error) {
				return r.startAgain(ctx, holt.RunID(ref), spec)
			},
		})
	})
}

func (r *Runs) start(ctx context.Context, computer string, spec holt.RunSpec, claim *idempotency.Claim) (holt.Run, error) {
	id := holt.NewRunID()
	c, l, done, err := r.waker.use(ctx, computer, runUse(id, spec.OnRecord()))
	if err != nil {
		return holt.Run{}, err
	}
	defer done()
	run := holt.Run{ID: id, ComputerID: c.ID, Spec: spec.OnRecord(), State: holt.RunRunning, StartedAt: time.Now().UTC()}
	defer l.runs.claim(run)()
	if err := r.rows.insert(ctx, run, claim); err != nil {
		return holt.Run{}, err
	}
	if err := r.cfg.failpoint("run/start"); err != nil {
		return holt.Run{}, err
	}
	l.begin(run.ID)
	return run, r.launch(ctx, l, run.ID, spec)
}

// launch makes the guest start a recorded run. If the guest refuses, the record is removed; if it
// does not answer, the next session settles it.
func (r *Runs) launch(ctx context.Context, l *live, id holt.RunID, spec holt.RunSpec) error {
	return l.do(ctx, l.limits.Answer, true, func(ctx context.Context, c *agent.Client) error {
		_, err := c.StartRun(ctx, id, spec)
		switch {
		case err == nil:
			l.runs.opened(id)
			return nil
		case cut(c, err):
			return err
		case ctx.Err() != nil:
			c.Close() // it hangs; the next session reconciles
			return err
		default:
			return errors.Join(err, r.rows.forget(ctx, id))
		}
	})
}

// startAgain answers a repeat whose first call was interrupted after the run was recorded: the
// guest may have it or not.
func (r *Runs) startAgain(ctx context.Context, id holt.RunID, spec holt.RunSpec) (holt.Run, error) {
	run, err := r.rows.get(ctx, id)
	if err != nil || run.State == holt.RunExited {
		return run, err
	}
	_, l, done, err := r.waker.use(ctx, string(run.ComputerID), runUse(run.ID, run.Spec))
	if err != nil {
		return holt.Run{}, err
	}
	defer done()
	defer l.runs.claim(run)()
	run.State, run.EndedAt = holt.RunRunning, nil
	lost, err := r.rows.unlose(ctx, run.ID)
	if err != nil {
		return holt.Run{}, err
	}
	if lost {
		r.outputs.remove(run.ComputerID, []holt.RunID{run.ID})
	}
	return run, r.launch(ctx, l, run.ID, spec)
}

// Get returns a run, up to date if the guest answers.
func (r *Runs) Get(ctx context.Context, id holt.RunID) (holt.Run, error) {
	run, err := r.rows.get(ctx, id)
	if err != nil {
		return run, err
	}
	if run.State != holt.RunRunning {
		run.Background, err = r.left(ctx, run)
		return run, err
	}
	if l := r.machines.live(run.ComputerID); l != nil {
		if c, _, _ := l.state(); c != nil {
			bounded, cancel := context.WithTimeout(ctx, glance)
			defer cancel()
			if ended, err := l.runTracker.ask(bounded, c, id); err == nil && ended {
				return r.rows.get(ctx, id)
			}
		}
	}
	return run, nil
}

// left returns how many processes of an ended run are left.
func (r *Runs) left(ctx context.Context, run holt.Run) (int, error) {
	if run.Background == 0 {
		return 0, nil
	}
	l := r.machines.live(run.ComputerID)
	if l == nil {
		c, err := r.table.find(ctx, string(run.ComputerID))
		if err == nil && (c.State == holt.ComputerStopped || c.State == holt.ComputerFailed) {
			return 0, nil
		}
		return run.Background, err
	}
	client, _, _ := l.state()
	if client == nil {
		return run.Background, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.limits.Answer)
	defer cancel()
	told, err := client.GetRun(ctx, run.ID)
	if err != nil || told.State != holt.RunExited {
		return run.Background, nil
	}
	return min(run.Background, max(0, told.Background)), nil
}

// List returns up to limit runs of a computer, or of all with "", newest first, after the run with
// the given id if that is not "". Those of one computer are up to date if the guest answers; those
// of all are as on record, which is at most a second behind.
func (r *Runs) List(ctx context.Context, computer string, after holt.RunID, limit int) ([]holt.Run, error) {
	var id holt.ComputerID
	if computer != "" {
		c, err := r.table.find(ctx, computer)
		if err != nil {
			return nil, err
		}
		id = c.ID
		if l := r.machines.live(id); l != nil {
			if agent, _, _ := l.state(); agent != nil {
				bounded, cancel := context.WithTimeout(ctx, glance)
				l.runTracker.collect(bounded, agent)
				cancel()
			}
		}
	}
	if limit <= 0 || limit > mostListed {
		limit = mostListed
	}
	return r.rows.list(ctx, `WHERE (?1 = '' OR computer = ?1) AND (?2 = '' OR seq < (SELECT seq FROM run WHERE id = ?2 AND `+ofTenant(4)+`)) AND `+ofTenant(4)+` ORDER BY seq DESC LIMIT ?3`,
		id, after, limit, holt.Confined(ctx))
}

// Signal sends a signal, for instance SIGTERM or TERM, to all processes of a run.
func (r *Runs) Signal(ctx context.Context, id holt.RunID, signal, key string) error {
	request := [2]string{string(id), signal}
	_, err := idempotency.Once(ctx, r.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "run.signal", Request: request,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			l, done, err := r.at(ctx, id)
			if err != nil {
				return struct{}{}, err
			}
			defer done()
			return struct{}{}, l.do(ctx, l.limits.Answer, false, func(ctx context.Context, c *agent.Client) error {
				return c.SignalRun(ctx, id, signal)
			})
		},
	})
	return err
}

func runUse(id holt.RunID, spec holt.RunSpec) holt.Use {
	detail := string(spec.Command)
	if detail == "" {
		detail = strings.Join(spec.Argv, " ")
	}
	return holt.Use{Kind: holt.UseRun, ID: string(id), Detail: detail}
}

// at returns the machine of a run if it can still be reached, in use until done is called.
func (r *Runs) at(ctx context.Context, id holt.RunID) (l *live, done func(), err error) {
	run, err := r.rows.get(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	use := runUse(id, run.Spec)
	done = r.uses.begin(run.ComputerID, use)
	c, err := r.table.find(ctx, string(run.ComputerID))
	left := run.State == holt.RunRunning || run.Background > 0
	if err == nil && left && (c.State == holt.ComputerPaused || c.State == holt.ComputerPausing) {
		if _, l, err = r.waker.wake(ctx, string(c.ID), use); err != nil {
			done()
			return nil, nil, err
		}
		return l, done, nil
	}
	if l = r.machines.live(run.ComputerID); l == nil {
		done()
		return nil, nil, holt.Errorf(holt.Conflict, "the computer of the run %s is not running", id).
			WithHint("holt run show shows its end")
	}
	return l, done, nil
}
