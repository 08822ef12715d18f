package computer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// rebootReason is the reason of a computer that is starting after its guest rebooted or crashed. A
// daemon that finds it starts the computer.
const rebootReason = "it is rebooting"

// A computer is started again by itself at most so often in restartSpan; what comes after that leaves it stopped.
const (
	mostReboots = 20
	mostCrashes = 3
	restartSpan = 10 * time.Minute
)

// restarts remembers automatic restarts.
type restarts struct {
	mu sync.Mutex
	at map[holt.ComputerID][]time.Time
}

// may reports whether a computer may be restarted now, and counts it.
func (r *restarts) may(id holt.ComputerID, most int, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one, at := range r.at { // those that are still counted
		for len(at) > 0 && now.Sub(at[0]) > restartSpan {
			at = at[1:]
		}
		if r.at[one] = at; len(at) == 0 {
			delete(r.at, one)
		}
	}
	if len(r.at[id]) >= most {
		return false
	}
	if r.at == nil {
		r.at = map[holt.ComputerID][]time.Time{}
	}
	r.at[id] = append(r.at[id], now)
	return true
}

// ended records that a computer's machine has ended; unknown is the reason if the engine does not
// know it. again reports whether to restart it, after a reboot or crash; a job's computer is not,
// since its command is lost.
func (m *transition) ended(ctx context.Context, how machine.Ending, unknown string) (again bool, err error) {
	why, most, reason := holt.RunReason(""), 0, unknown
	switch how.Kind {
	case machine.EndOff:
		why, reason = holt.RunPoweredOff, "it was powered off from inside"
	case machine.EndReboot:
		why, most, reason = holt.RunRebooted, mostReboots, "it was rebooted from inside"
	case machine.EndPanic:
		why, most, reason = holt.RunCrashed, mostCrashes, "its kernel panicked: "+how.Panic
	}
	if err := m.lost(ctx, why); err != nil {
		return false, err
	}
	again = most > 0 && m.r.Job == ""
	if again && !m.s.restarts.may(m.r.ID, most, time.Now()) {
		again = false
		reason += fmt.Sprintf(" (more than %d times in %s, so it is not restarted)", most, holt.ShortDuration(restartSpan))
	}
	if !again {
		return false, m.stopped(ctx, reason)
	}
	m.s.log.InfoContext(ctx, "restarting computer", "computer", m.r.ID, "name", m.r.Name, "reason", reason)
	m.r.State, m.r.Reason = holt.ComputerStarting, rebootReason
	m.r.fulfil()
	return true, m.s.table.save(ctx, *m.r)
}

// restart starts a computer whose machine has ended by itself, and whose lock is held.
func (m *transition) restart(ctx context.Context, how machine.Ending) error {
	err := m.s.cfg.failpoint("reboot/start")
	if err == nil {
		err = m.s.bootLocked(ctx, m.r)
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	switch {
	case err == nil && how.Kind != machine.EndPanic:
		return nil
	case err == nil: // it runs, and its user should hear of that
		m.r.Reason = "its kernel panicked, and the computer was restarted: " + how.Panic
	case ctx.Err() != nil: // the next daemon continues
		m.r.State, m.r.Reason = holt.ComputerStarting, rebootReason
	default:
		m.r.State, m.r.Reason = holt.ComputerStopped, "the restart failed: "+err.Error()
	}
	return errors.Join(err, m.s.table.save(late, *m.r))
}
