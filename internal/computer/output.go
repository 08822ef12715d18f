package computer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/hosterror"
)

const (
	outputDir  = "output" // in a computer's directory, with a file for each run of which output is kept
	outputTemp = "new"    // there, until it has a run's name

	keptOutput = 1 << 20  // of each run the end of its output that takes this many bytes as events
	mostOutput = 64 << 20 // bytes of the output files of one computer's ended runs; running ones share half of that
	diskBlock  = 4 << 10  // of which even the smallest takes one
)

// outputs saves the output of runs for when no guest has it any more. Files are not synced: one
// that a power loss truncates does not decode, and counts as lost.
type outputs struct {
	table     runTable
	dir       func(holt.ComputerID) string // of a computer
	most      int64                        // mostOutput, but in tests
	log       *slog.Logger
	failpoint func(string) error
}

func (o outputs) path(computer holt.ComputerID, name string) string {
	return filepath.Join(o.dir(computer), outputDir, name)
}

// put saves what a guest has of a run's output. Calls for one computer must not overlap.
func (o outputs) put(ctx context.Context, computer holt.ComputerID, out agent.RunOutput) error {
	id, bytes := out.Run.ID, int64(0)
	// What was taken before stays, if the guest has nothing any more.
	if slices.ContainsFunc(out.Events, func(e holt.RunEvent) bool { return e.Kind != holt.RunGap }) {
		b := agent.EncodeOutput(out.Events)
		if err := o.write(computer, id, b); err != nil {
			return hosterror.Full(fmt.Errorf("keep a run's output: %w", err))
		}
		bytes = onDisk(int64(len(b)))
	}
	if err := o.failpoint("run/kept"); err != nil {
		return err
	}
	gone, err := o.table.took(context.WithoutCancel(ctx), computer, id, bytes, out.Run.State == holt.RunExited, out.End, o.most)
	o.remove(computer, gone)
	return err
}

// onDisk is the size of a file on disk.
func onDisk(size int64) int64 { return (size + diskBlock - 1) / diskBlock * diskBlock }

func (o outputs) write(computer holt.ComputerID, id holt.RunID, b []byte) error {
	temp := o.path(computer, outputTemp)
	err := os.WriteFile(temp, b, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(filepath.Dir(temp), 0o700); err != nil {
			return err
		}
		err = os.WriteFile(temp, b, 0o600)
	}
	if err == nil {
		err = o.failpoint("run/output")
	}
	if err == nil {
		err = os.Rename(temp, o.path(computer, string(id)))
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

func (o outputs) remove(computer holt.ComputerID, ids []holt.RunID) {
	for _, id := range ids {
		if err := os.Remove(o.path(computer, string(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.log.Warn("remove output of run", "computer", computer, "run", id, "err", err)
		}
	}
}

// get returns the saved events of a run from offset 0 on; none if there are none.
func (o outputs) get(computer holt.ComputerID, id holt.RunID) []holt.RunEvent {
	f, err := os.Open(o.path(computer, string(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var events []holt.RunEvent
	if err == nil {
		defer f.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(f, keptOutput+diskBlock)); err == nil {
			events, err = agent.DecodeOutput(b)
		}
	}
	if err != nil {
		o.log.Warn("read output of run", "computer", computer, "run", id, "err", err)
	}
	return events
}

// since returns what is known of an ended run's output from an offset on, with gaps for what is
// lost.
func (o outputs) since(ctx context.Context, run holt.Run, from int64) ([]holt.RunEvent, error) {
	end, known, err := o.table.written(ctx, run.ID)
	events := o.get(run.ComputerID, run.ID)
	if n := len(events); !known && n > 0 {
		end = eventEnd(events[n-1])
	}
	return between(events, from, end), err
}

// between returns the output between two offsets, with gaps for what events lack.
func between(events []holt.RunEvent, from, to int64) (list []holt.RunEvent) {
	gap := func(upto int64) {
		if from < upto {
			list = append(list, holt.RunEvent{Kind: holt.RunGap, Offset: from, Dropped: upto - from})
			from = upto
		}
	}
	for _, e := range events {
		first, last := max(e.Offset, from), min(eventEnd(e), to)
		if e.Offset >= to {
			break
		}
		if e.Kind == holt.RunGap || first >= last {
			continue
		}
		gap(first)
		e.Data = e.Data[first-e.Offset : last-e.Offset]
		e.Offset, from = first, last
		list = append(list, e)
	}
	gap(to)
	return list
}

func eventEnd(e holt.RunEvent) int64 { return e.Offset + int64(len(e.Data)) + e.Dropped }

// tidy makes a computer's files and the records of its runs match, which a crash may prevent.
func (o outputs) tidy(ctx context.Context, computer holt.ComputerID) error {
	entries, err := os.ReadDir(filepath.Dir(o.path(computer, outputTemp)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	recorded, err := o.table.files(ctx, computer)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		id := holt.RunID(entry.Name())
		bytes, known := recorded[id]
		if !known {
			o.remove(computer, []holt.RunID{id})
			continue
		}
		if info, err := entry.Info(); err == nil && bytes == 0 {
			if err := o.table.found(ctx, id, onDisk(info.Size())); err != nil {
				return err
			}
		}
	}
	return nil
}

// share is how much is saved of each of so many running runs.
func (o outputs) share(runs int) int {
	share := o.most/2/int64(max(1, runs)) - diskBlock // with what a file has besides
	return int(min(keptOutput, max(0, share)))
}

// take saves the last bytes of a run's output, unless that was done since its end.
func (a *runTracker) take(ctx context.Context, c *agent.Client, id holt.RunID, last int) error {
	ctx, cancel := context.WithTimeout(ctx, a.l.limits.Answer)
	defer cancel()
	done, err := a.l.runs.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	if taken, err := a.table.taken(ctx, id); taken || err != nil {
		return err
	}
	out, err := c.RunOutput(ctx, id, last)
	if err != nil && (broken(c) || ctx.Err() != nil) {
		return err
	}
	if err != nil { // the guest has forgotten it
		a.l.log.Debug("get output of run", "computer", a.l.id, "run", id, "err", err)
		return nil
	}
	return a.outputs.put(ctx, a.l.id, out)
}

// keep saves the output of ended runs. It returns false if the host is out of space, and leaves the
// rest for the next try; the next session retries other failures.
func (a *runTracker) keep(ctx context.Context, c *agent.Client) (room bool) {
	for _, id := range a.l.runs.untaken() {
		err := a.take(ctx, c, id, keptOutput)
		if err != nil && (broken(c) || ctx.Err() != nil) {
			return true
		}
		a.note(c, id, err)
		if holt.CodeOf(hosterror.Full(err)) == holt.OutOfSpace {
			return false
		}
		a.l.runs.took(id)
	}
	return true
}

// note logs why a run's output is not saved.
func (a *runTracker) note(c *agent.Client, id holt.RunID, err error) {
	if err == nil || broken(c) || a.l.ctx.Err() != nil {
		return
	}
	level := slog.LevelWarn
	if holt.CodeOf(err) == holt.Timeout { // the guest hangs
		level = slog.LevelDebug
	}
	a.l.log.Log(a.l.ctx, level, "save output of run", "computer", a.l.id, "run", id, "err", err)
}

// takeAll saves the output of all runs, including running ones, before their machine ends. It takes
// at most limit.
func (a *runTracker) takeAll(ctx context.Context, c *agent.Client, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ids := a.l.runs.all()
	for _, id := range ids {
		a.note(c, id, a.take(ctx, c, id, a.outputs.share(len(ids))))
	}
	a.collect(ctx, c) // what has ended was not lost
	a.keep(ctx, c)
}

// takeRunning saves new output of running runs, in case their machine is killed. taken has the
// offsets of the last call. It returns false if the host is out of space.
func (a *runTracker) takeRunning(ctx context.Context, c *agent.Client, taken map[holt.RunID]int64) (room bool) {
	ids := a.l.runs.all()
	maps.DeleteFunc(taken, func(id holt.RunID, _ int64) bool { return !slices.Contains(ids, id) })
	for _, id := range ids {
		end, err := a.written(ctx, c, id)
		if err == nil && end != taken[id] {
			err = a.take(ctx, c, id, a.outputs.share(len(ids)))
			if holt.CodeOf(hosterror.Full(err)) == holt.OutOfSpace {
				a.note(c, id, err)
				return false
			}
			taken[id] = end
		}
		if err != nil {
			return true // the heartbeat, or the next round, finds out more
		}
	}
	return true
}

func (a *runTracker) written(ctx context.Context, c *agent.Client, id holt.RunID) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, a.l.limits.Answer)
	defer cancel()
	out, err := c.RunOutput(ctx, id, 0)
	return out.End, err
}

// handOver saves the output of all runs and flushes the guest, in case the computer is never
// resumed. A hung guest is waited for once.
func (l *live) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.limits.Flush)
	defer cancel()
	if client, _, _ := l.state(); client != nil {
		l.runTracker.takeAll(ctx, client, l.limits.Flush/2)
	}
	if err := l.flush(ctx); err != nil {
		l.log.Debug("flush guest", "computer", l.id, "err", err)
	}
}
