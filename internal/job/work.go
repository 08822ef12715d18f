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
	grace      = time.Minute      // that a guest has to end a command whose time is over
	flushLimit = 30 * time.Second // to write what it holds in memory
	linger     = 30 * time.Second // that followers have for the rest of the output of a detached command
	rests      = 10 * time.Minute // that they have if the command waited for them
	joining    = 5 * time.Second  // that they have to come before the command may be ahead of them
	retry      = 5 * time.Second  // before what could not be thrown away is tried again
	mostSilent = 5 * time.Minute  // that a guest may not answer while its machine runs
)

var (
	errCancelled = errors.New("the job was cancelled")
	errLost      = holt.Errorf(holt.Unavailable, "the job's machine ended under it").WithHint("its command may have ended it, or the host; run the job again")
	errNoRoom    = errors.New("no room")
)

// worker takes one job to its end.
type worker struct {
	s         *Store
	r         record
	tenant    string
	memoryMB  int
	made      bool            // its computer; Store.mu
	ctx       context.Context // ends with the daemon, or when somebody cancels the job
	cancel    context.CancelCauseFunc
	followers atomic.Int32 // who read its output from the guest
	joined    atomic.Int32 // how many have begun to
}

// do goes on from wherever the job is, until it has ended, waits again, or the daemon ends.
func (w *worker) do() {
	now, err := w.s.table.list(w.s.ctx, `WHERE id = ? AND ended = 0`, w.r.ID)
	if err != nil || len(now) == 0 {
		return // it ended since it was listed
	}
	w.r = now[0]
	if w.r.State != holt.JobCollecting {
		err := w.attempt()
		switch {
		case w.s.ctx.Err() != nil:
			return // the next daemon goes on
		case w.cancelled():
			err = nil
		case errors.Is(err, errNoRoom), errors.Is(err, errLost) && w.r.Attempts < mostAttempts, err != nil && w.s.cfg.Computers.Draining():
			w.again(err)
			return
		}
		w.r.Error = holt.AsError(err)
		w.r.State = holt.JobCollecting
		if !w.keep() {
			return
		}
	}
	w.finish()
}

func (w *worker) cancelled() bool { return w.r.cancelled || context.Cause(w.ctx) == errCancelled }

// save writes the job down and tells who waits for it.
func (w *worker) save(ctx context.Context) error {
	err := w.s.table.save(ctx, w.r)
	w.s.tell()
	return err
}

// keep is save until it is done. It says whether that was before the daemon's end.
func (w *worker) keep() bool {
	return w.until("write down", func(ctx context.Context) error { return w.save(ctx) })
}

// until does what must not be left, again and again. It is false if the daemon ends first.
func (w *worker) until(verb string, act func(context.Context) error) bool {
	for {
		err := act(w.s.ctx)
		if err == nil {
			return true
		}
		if w.s.ctx.Err() != nil {
			return false
		}
		w.s.log.Error(verb+" a job", "job", w.r.ID, "err", err)
		w.r.Reason = fmt.Sprintf("cannot %s: %v", verb, err)
		select {
		case <-time.After(retry):
		case <-w.s.ctx.Done():
			return false
		}
		w.r.Reason = ""
	}
}

// attempt has the command run to its end in a computer of the job's own. Whatever of that was
// done before is not done again.
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
	w.s.madeOne(w)
	w.s.ring()
	if err := w.start(c); err != nil {
		return err
	}
	return w.follow()
}

// computer returns the job's, which it makes if there is none.
func (w *worker) computer() (holt.Computer, error) {
	c, ok, err := w.standing(w.ctx)
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

// name is what the job's computer and workspace are called.
func name(id holt.JobID) string { return "job-" + string(id[len("job_"):]) }

// refused says whether a computer that could not be made is worth another try: when others
// make room, or with the next daemon.
func (w *worker) refused(err error) error {
	if !forNow(err) {
		return err
	}
	if limited, forever := limitReached(err); limited {
		if forever {
			return err
		}
		w.r.Attempts--
		w.s.limit(w.tenant)
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
	w.s.pause(look, noRoom)
	return errNoRoom
}

// workspace makes the job's, with its inputs and the directory of its outputs.
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

// start starts the command, unless it was.
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

// follow waits for the command's end, and keeps the end of its output.
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
	w.join()
	end, err := w.listen(ctx, &out)
	why := context.Cause(ctx)
	cancel(nil)
	watching.Wait()
	if out.end > 0 || err == nil {
		if err := w.s.keepOutput(w.r.ID, out.from(w.r.base)); err != nil {
			w.s.log.Warn("the end of a job's output is not kept", "job", w.r.ID, "err", err)
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
	case end == nil || end.State != holt.RunExited || !w.stands():
		w.r.base += out.end
		return errLost
	}
	w.r.ExitCode, w.r.Signal, w.r.TimedOut, w.r.OutOfMemory = end.ExitCode, end.Signal, end.TimedOut, end.OutOfMemory
	w.r.Steps.RunMS = time.Since(began).Milliseconds()
	return w.s.point("exited")
}

// join waits until all who follow the job's output follow the command's: what this worker has read is kept for them only
// from then on.
func (w *worker) join() {
	w.waitFor(joining, func() bool { return int(w.joined.Load()) >= w.s.followed(w.r.ID) })
}

// waitFor waits until the followers are as they should be, the limit has passed, or the worker is to end.
func (w *worker) waitFor(limit time.Duration, done func() bool) {
	late := time.After(limit)
	for {
		changed := w.s.change() // before the look, so that no change in between is missed
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

// listen reads the command's output to its end. A guest may be slow to answer, as many are that are resumed at once.
func (w *worker) listen(ctx context.Context, out *tail) (end *holt.Run, err error) {
	var silent time.Time // since when it has not answered
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
		if silent.IsZero() || time.Since(asked) > time.Minute { // one that is mute says so sooner
			silent = time.Now()
		}
		if time.Since(silent) > mostSilent {
			return end, err
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
		}
	}
}

// stands says whether the job's computer runs: the end of a command in one that is being stopped may not be its own.
func (w *worker) stands() bool {
	all, err := w.s.cfg.Computers.OfJob(w.ctx, w.r.ID)
	return err == nil && len(all) == 1 && all[0].State == holt.ComputerRunning
}

// again throws away what an attempt has made and has the job wait for the next.
func (w *worker) again(why error) {
	if !w.until("throw away", w.clear) {
		return
	}
	w.r.State, w.r.RunID, w.r.ComputerID, w.r.workspace = holt.JobQueued, "", "", holt.NewWorkspaceID()
	w.r.Reason = noRoom
	if errors.As(why, new(atLimit)) {
		w.r.Reason = why.Error()
	} else if why != errNoRoom {
		w.r.Reason = "its machine ended under it; it is begun again"
	}
	w.keep()
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

// finish keeps the job's outputs, throws all else away, and says how it ended.
func (w *worker) finish() {
	if !w.cancelled() && w.r.RunID != "" {
		began := time.Now()
		if err := w.collect(w.s.ctx); err != nil && w.r.Error == nil {
			w.r.Error = holt.AsError(err)
		}
		w.r.Steps.CollectMS = time.Since(began).Milliseconds()
		w.await()
	}
	began := time.Now()
	done := w.until("delete the computer of", func(ctx context.Context) error {
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
		if !w.until("remove the workspace of", w.clear) {
			return
		}
		w.r.workspace = ""
	}
	w.end()
}

// end writes down how the job ended.
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
	if w.s.point("end") == nil && w.keep() {
		w.s.log.Info("job ended", "job", w.r.ID, "state", w.r.State, "exit_code", w.r.ExitCode, "create_ms", w.r.Steps.CreateMS, "run_ms", w.r.Steps.RunMS,
			"collect_ms", w.r.Steps.CollectMS, "delete_ms", w.r.Steps.DeleteMS)
	}
}

// collect looks what the job has left. What the guest holds in memory is written first.
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
		return nil // the command removed it: there are none
	case err != nil:
		return fmt.Errorf("collect outputs: %w", err)
	}
	w.r.Outputs = &holt.JobOutputs{Files: u.Files, Bytes: u.Bytes, Kept: u.Files+u.Dirs > 1}
	if flushed != nil {
		return fmt.Errorf("the guest did not write what it held of its outputs: %w", flushed)
	}
	return nil
}

// await waits until all who follow the job's output from its guest have the rest of it.
func (w *worker) await() {
	limit := rests
	if w.r.Spec.Run.Detached {
		limit = linger
	}
	w.waitFor(limit, func() bool { return w.followers.Load() == 0 })
}
