package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"holt"
)

// Down stops, pauses or leaves all computers as spec says, ends all host mounts,
// also for the next daemon, and closes Done. If a computer cannot be stopped the
// daemon keeps running.
//
// Errors: Unsupported for pause, if the engine cannot keep memory.
func (d *Daemon) Down(ctx context.Context, spec holt.DownSpec, _ string) (holt.DownReport, error) {
	report := holt.DownReport{Stopped: []string{}, Paused: []string{}, Kept: []string{}, Unmounted: []string{}}
	switch spec.Computers {
	case "", holt.DownStop, holt.DownPause, holt.DownKeep:
	default:
		return report, holt.Errorf(holt.InvalidArgument, "invalid action %q for computers", spec.Computers).
			WithHint("use stop, pause or keep")
	}
	if spec.Computers == holt.DownPause && !d.engines.Default.Capabilities().MemorySnapshot {
		return report, holt.Errorf(holt.Unsupported, "the engine %s cannot pause computers", d.engines.Default.Name()).
			WithHint("holt down --stop shuts them down and keeps their disks; holt down --keep leaves them running")
	}
	select {
	case d.downs <- struct{}{}: // a second call waits for the first
		defer func() { <-d.downs }()
	case <-ctx.Done():
		return report, context.Cause(ctx)
	}
	d.computers.Drain(spec.Computers != holt.DownKeep) // otherwise a run could wake a stopped computer
	err := d.endComputers(ctx, spec.Computers, &report)
	if err == nil {
		var unmounted []string
		unmounted, err = d.workspaces.UnmountAll(ctx)
		report.Unmounted = append(report.Unmounted, unmounted...)
	}
	if err != nil {
		d.computers.Drain(false)
		return report, err
	}
	select {
	case <-d.done:
	default:
		close(d.done)
	}
	return report, nil
}

func (d *Daemon) endComputers(ctx context.Context, action holt.DownAction, report *holt.DownReport) error {
	all, err := d.computers.List(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	var g errgroup.Group
	g.SetLimit(maxStops)
	for _, c := range all {
		if rests(c.State) {
			continue
		}
		if action == holt.DownKeep {
			report.Kept = append(report.Kept, c.Name)
			continue
		}
		g.Go(func() error {
			state, err := d.endComputer(ctx, c, action)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("end %s: %w", c.Name, err))
			case state == holt.ComputerPaused:
				report.Paused = append(report.Paused, c.Name)
			case state == holt.ComputerStopped:
				report.Stopped = append(report.Stopped, c.Name)
			}
			return nil
		})
	}
	g.Wait()
	slices.Sort(report.Stopped)
	slices.Sort(report.Paused)
	return errors.Join(errs...)
}

// rests reports whether a computer has no machine.
func rests(s holt.ComputerState) bool {
	return s == holt.ComputerStopped || s == holt.ComputerPaused || s == holt.ComputerFailed
}

// endComputer stops or pauses a computer, whatever its state, and returns the new
// state; "" if it was deleted.
func (d *Daemon) endComputer(ctx context.Context, c holt.Computer, action holt.DownAction) (holt.ComputerState, error) {
	end := d.computers.Stop
	if action == holt.DownPause {
		end = d.computers.Memory().Pause
	}
	now, err := end(ctx, string(c.ID), "")
	if holt.CodeOf(err) == holt.Conflict { // a computer that was being stopped cannot be paused
		if is, lost := d.computers.Get(ctx, string(c.ID)); lost == nil && rests(is.State) {
			now, err = is, nil
		}
	}
	if holt.CodeOf(err) == holt.NotFound {
		return "", nil // it was deleted, or its creation was undone
	}
	return now.State, err
}
