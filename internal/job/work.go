package job

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"holt"
)

const (
	grace      = time.Minute      // for the guest to end a command after its timeout
	flushLimit = 30 * time.Second // for the guest to write back its cached changes
	linger     = 30 * time.Second // for followers to read the rest of the output of a detached command
	rests      = 10 * time.Minute // for followers to read the rest of the output of another command
	joining    = 5 * time.Second  // for callers of Follow to start reading before the worker does
	retry      = 5 * time.Second  // between tries of repeat
	mostSilent = 5 * time.Minute  // that a guest may not answer while its machine runs
)

var (
	errCancelled = errors.New("the job was cancelled")
	errLost      = holt.Errorf(holt.Unavailable, "the machine of the job ended before the command did").WithHint("the command or the host may have ended it; run the job again")
	errNoRoom    = errors.New("no room")
)

// worker drives one job to its end.
type worker struct {
	s         *Store
	r         record
	tenant    string
	memoryMB  int
	made      bool            // the computer exists; guarded by Store.mu
	ctx       context.Context // ends with the daemon, or when the job is cancelled
	cancel    context.CancelCauseFunc
	followers atomic.Int32 // callers of Follow that read the output from the guest
	joined    atomic.Int32 // callers of Follow that have started to
}

// do continues the job from its recorded state until it has ended or is queued again, or the daemon ends.
func (w *worker) do() {
	now, err := w.s.table.list(w.s.ctx, `WHERE id = ? AND ended = 0`, w.r.ID)
	if err != nil || len(now) == 0 {
		return // the job has ended since it was listed
	}
	w.r = now[0]
	if w.r.State != holt.JobCollecting {
		err := w.attempt()
		switch {
		case w.s.ctx.Err() != nil:
			return // the next daemon continues
		case w.cancelled():
			err = nil
		case errors.Is(err, errNoRoom), errors.Is(err, errLost) && w.r.Attempts < mostAttempts, err != nil && w.s.cfg.Computers.Draining():
			w.requeue(err)
			return
		}
		w.r.Error = holt.AsError(err)
		w.r.State = holt.JobCollecting
		if !w.saveRetrying() {
			return
		}
	}
	w.finish()
}

func (w *worker) cancelled() bool { return w.r.cancelled || context.Cause(w.ctx) == errCancelled }

// save writes the job's row and notifies the callers that wait for it.
func (w *worker) save(ctx context.Context) error {
	err := w.s.table.save(ctx, w.r)
	w.s.notify()
	return err
}

// saveRetrying is save, retried until it succeeds. It returns false if the daemon ends first.
func (w *worker) saveRetrying() bool {
	return w.repeat("save", func(ctx context.Context) error { return w.save(ctx) })
}

// repeat retries act until it succeeds. It returns false if the daemon ends first.
func (w *worker) repeat(verb string, act func(context.Context) error) bool {
	for {
		err := act(w.s.ctx)
		if err == nil {
			return true
		}
		if w.s.ctx.Err() != nil {
			return false
		}
		w.s.log.Error(verb+" a job: will retry", "job", w.r.ID, "err", err)
		w.r.Reason = fmt.Sprintf("cannot %s: %v", verb, err)
		select {
		case <-time.After(retry):
		case <-w.s.ctx.Done():
			return false
		}
		w.r.Reason = ""
	}
}

// attempt runs the command to its end in the job's computer. It skips the steps that are already done.
func (w *worker) attempt() error {
	if w.cancelled() {
		return nil
	}
	if w.r.State == holt.JobQueued {
		now := time.Now().UTC()
		w.r.State, w.r.Reason, w.r.StartedAt, w.r.Steps = holt.JobRunning, "", &now, holt.JobSteps{}
		w.r.Attempts++
		if err := w.save(w.ctx); err != nil {
			return err
		}
	}
	c, err := w.computer()
	if err != nil {
		return err
	}
	w.s.computerMade(w)
	w.s.wakeDispatch()
	if err := w.start(c); err != nil {
		return err
	}
	return w.follow()
}

// computer returns the job's computer. It creates one if there is none.
func (w *worker) computer() (holt.Computer, error) {
	c, ok, err := w.runningComputer(w.ctx)
	if ok || err != nil {
		return c, err
	}
	if w.r.RunID != "" {
		return c, errLost
	}
	began := time.Now()
	if err := w.workspace(); err != nil {
		return c, err
	}
	if err := w.s.point("create"); err != nil {
		return c, err
	}
	spec := computerOf(w.r.Spec)
	spec.Name, spec.Workspace = name(w.r.ID), string(w.r.workspace)
	c, err = w.s.cfg.Computers.CreateFor(w.ctx, w.r.ID, spec)
	if err != nil {
		return c, w.refused(err)
	}
	w.r.ComputerID, w.r.Steps.CreateMS = c.ID, time.Since(began).Milliseconds()
	return c, nil
}

// name is the name of the job's computer and of its workspace.
func name(id holt.JobID) string { return "job-" + string(id[len("job_"):]) }

// refused returns errNoRoom or an atLimit if a later try to create the computer can succeed, and err otherwise.
func (w *worker) refused(err error) error {
	if !temporary(err) {
		return err
	}
	if limited, forever := limitReached(err); limited {
		if forever {
			return err
		}
		w.r.Attempts--
		w.s.holdTenant(w.tenant)
		return atLimit{err}
	}
	w.s.mu.Lock()
	alone := len(w.s.active) == 1
	w.s.mu.Unlock()
	if alone && w.r.Attempts >= mostAttempts && !w.s.cfg.Computers.Draining() {
		return err
	}
	if !alone || w.s.cfg.Computers.Draining() {
		w.r.Attempts--
	}
	w.s.log.Warn("no room for a job's computer", "job", w.r.ID, "err", err)
	w.s.pause(pollEvery, noRoom)
	return errNoRoom
}

// workspace creates the job's workspace, with its inputs and the directory of its outputs.
func (w *worker) workspace() error {
	if err := w.s.point("workspace"); err != nil {
		return err
	}
	var from holt.WorkspaceID
	var at string
	var err error
	switch {
	case w.r.Spec.Inputs != "":
		from, err = w.s.inputs(w.ctx, w.r.Spec.Inputs)
	case w.r.Spec.Workspace != "":
		var ref string
		ref, at = holt.CutCheckpoint(w.r.Spec.Workspace)
		from, err = w.s.cfg.Workspaces.Find(w.ctx, ref)
	}
	if err == nil {
		err = w.s.cfg.Workspaces.Make(w.ctx, w.r.workspace, name(w.r.ID), from, at)
	}
	var dir string
	if err == nil {
		dir, err = outputsIn(w.r.Spec.Collect)
	}
	if err == nil && dir != "/" {
		err = w.s.cfg.Workspaces.Mkdir(w.ctx, w.r.workspace, dir)
	}
	return err
}

// start starts the command, unless it has been started.
func (w *worker) start(c holt.Computer) error {
	if w.r.RunID != "" {
		return nil
	}
	if err := w.s.point("start"); err != nil {
		return err
	}
	run, err := w.s.cfg.Runs.Start(w.ctx, string(c.ID), w.r.run, fmt.Sprintf("%s/%d", w.r.ID, w.r.Attempts))
	if err != nil {
		return err
	}
	w.r.ComputerID, w.r.RunID = c.ID, run.ID
	if err := w.s.point("started"); err != nil {
		return err
	}
	return w.save(w.ctx)
}

// follow waits for the command's end, and saves the end of its output.
func (w *worker) follow() error {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(w.ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := w.watch(ctx, began); err != nil {
			cancel(err)
		}
	})
	var out tail
	w.awaitJoined()
	end, err := w.readOutput(ctx, &out)
	why := context.Cause(ctx)
	cancel(nil)
	watching.Wait()
	if out.end > 0 || err == nil {
		if err := w.s.keepOutput(w.r.ID, out.from(w.r.base)); err != nil {
			w.s.log.Warn("save the end of a job's output", "job", w.r.ID, "err", err)
		}
	}
	switch {
	case w.ctx.Err() != nil:
		return context.Cause(w.ctx)
	case why != nil:
		w.r.TimedOut = why == errOverdue
		return why
	case holt.CodeOf(err) == holt.NotFound: // its computer was deleted
		return errLost
	case err != nil:
		return err
	case end == nil || end.State != holt.RunExited || !w.computerRuns():
		w.r.base += out.end
		return errLost
	}
	w.r.ExitCode, w.r.Signal, w.r.TimedOut, w.r.OutOfMemory = end.ExitCode, end.Signal, end.TimedOut, end.OutOfMemory
	w.r.Steps.RunMS = time.Since(began).Milliseconds()
	return w.s.point("exited")
}

// awaitJoined waits until all callers of Follow read the command's output. The guest keeps output for slow readers only
// once they read.
func (w *worker) awaitJoined() {
	w.waitFor(joining, func() bool { return int(w.joined.Load()) >= w.s.followed(w.r.ID) })
}

// waitFor waits until done returns true, limit has passed, or the worker is to end.
func (w *worker) waitFor(limit time.Duration, done func() bool) {
	late := time.After(limit)
	for {
		changed := w.s.change() // before done, so that no change is missed
		if done() {
			return
		}
		select {
		case <-changed:
		case <-late:
			return
		case <-w.ctx.Done():
			return
		}
	}
}

// readOutput reads the command's output to its end. It tolerates a guest that does not answer for mostSilent: if many
// computers are resumed at once they are slow.
func (w *worker) readOutput(ctx context.Context, out *tail) (end *holt.Run, err error) {
	var silent time.Time // since when the guest has not answered
	for {
		asked := time.Now()
		err = w.s.cfg.Runs.Follow(ctx, w.r.RunID, out.end, func(e holt.RunEvent) error {
			out.add(e)
			end = e.Run
			return nil
		})
		if holt.CodeOf(err) != holt.Unavailable || ctx.Err() != nil {
			return end, err
		}
		if silent.IsZero() || time.Since(asked) > time.Minute { // the call took that long, so the guest has answered
			silent = time.Now()
		}
		if time.Since(silent) > mostSilent {
			return end, err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
		}
	}
}

// computerRuns reports whether the job's computer runs. If not, the stop of the computer may have ended the command.
func (w *worker) computerRuns() bool {
	all, err := w.s.cfg.Computers.OfJob(w.ctx, w.r.ID)
	return err == nil && len(all) == 1 && all[0].State == holt.ComputerRunning
}

// requeue discards the computer and workspace of an attempt and queues the job again.
func (w *worker) requeue(why error) {
	if !w.repeat("remove the computer and workspace of", w.clear) {
		return
	}
	w.r.State, w.r.RunID, w.r.ComputerID, w.r.workspace = holt.JobQueued, "", "", holt.NewWorkspaceID()
	w.r.Reason = noRoom
	if errors.As(why, new(atLimit)) {
		w.r.Reason = why.Error()
	} else if why != errNoRoom {
		w.r.Reason = "its machine ended before the command did; it starts again"
	}
	w.saveRetrying()
}

// clear removes the job's computer and workspace.
func (w *worker) clear(ctx context.Context) error {
	if err := w.deleteComputer(ctx); err != nil {
		return err
	}
	if err := w.s.point("remove"); err != nil {
		return err
	}
	return w.s.cfg.Workspaces.Remove(ctx, w.r.workspace)
}

func (w *worker) deleteComputer(ctx context.Context) error {
	all, err := w.s.cfg.Computers.OfJob(ctx, w.r.ID)
	if err != nil {
		return err
	}
	for _, c := range all {
		if _, err := w.s.cfg.Computers.Delete(ctx, string(c.ID), ""); err != nil && holt.CodeOf(err) != holt.NotFound {
			return err
		}
	}
	return nil
}

// finish keeps the job's outputs, removes everything else, and records how the job ended.
func (w *worker) finish() {
	if !w.cancelled() && w.r.RunID != "" {
		began := time.Now()
		if err := w.collect(w.s.ctx); err != nil && w.r.Error == nil {
			w.r.Error = holt.AsError(err)
		}
		if !w.publish() {
			return
		}
		w.r.Steps.CollectMS = time.Since(began).Milliseconds()
		w.awaitFollowers()
	}
	began := time.Now()
	done := w.repeat("delete the computer of", func(ctx context.Context) error {
		if err := w.s.point("delete"); err != nil {
			return err
		}
		return w.deleteComputer(ctx)
	})
	if !done {
		return
	}
	w.r.Steps.DeleteMS = time.Since(began).Milliseconds()
	if w.cancelled() || w.r.Outputs == nil || !w.r.Outputs.Kept {
		w.r.Outputs = nil
		if !w.repeat("remove the workspace of", w.clear) {
			return
		}
		w.r.workspace = ""
	}
	w.end()
}

// end records how the job ended.
func (w *worker) end() {
	now := time.Now().UTC()
	w.r.EndedAt, w.r.Reason = &now, ""
	switch {
	case w.cancelled():
		w.r.State, w.r.Error = holt.JobCancelled, nil
	case w.r.Error != nil || w.r.ExitCode != 0:
		w.r.State = holt.JobFailed
	default:
		w.r.State = holt.JobDone
	}
	if w.s.point("end") == nil && w.saveRetrying() {
		w.s.log.Info("job ended", "job", w.r.ID, "state", w.r.State, "exit_code", w.r.ExitCode, "create_ms", w.r.Steps.CreateMS, "run_ms", w.r.Steps.RunMS,
			"collect_ms", w.r.Steps.CollectMS, "delete_ms", w.r.Steps.DeleteMS)
	}
}

// collect measures the job's outputs, after the guest has written back its cached changes.
func (w *worker) collect(ctx context.Context) error {
	if err := w.s.point("collect"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, flushLimit)
	defer cancel()
	flushed := w.s.cfg.Workspaces.Flush(ctx, w.r.workspace)
	dir, err := outputsIn(w.r.Spec.Collect)
	if err != nil {
		return err
	}
	u, err := w.s.cfg.Workspaces.Measure(context.WithoutCancel(ctx), w.r.workspace, dir)
	switch {
	case holt.CodeOf(err) == holt.NotFound:
		return nil // the command removed the directory: no outputs
	case err != nil:
		return fmt.Errorf("collect outputs: %w", err)
	}
	w.r.Outputs = &holt.JobOutputs{Files: u.Files, Bytes: u.Bytes, Kept: u.Files+u.Dirs > 1}
	if flushed != nil {
		return fmt.Errorf("write back the guest's cached outputs: %w", flushed)
	}
	return nil
}

// awaitFollowers waits until all callers of Follow that read from the guest have the rest of the output.
func (w *worker) awaitFollowers() {
	limit := rests
	if w.r.Spec.Run.Detached {
		limit = linger
	}
	w.waitFor(limit, func() bool { return w.followers.Load() == 0 })
}
