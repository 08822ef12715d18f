package workspace

import (
	"context"
	"fmt"
	"io"

	"holt"
)

// Story is a workspace's past in the words of the API, as [Files] is its files.
// Errors are [holt.Error].
type Story struct {
	W      *Workspace
	Caller Caller // whom restores and undos are attributed to
	// Terminals returns the terminals that have, or had, a name. Nil: there are none.
	Terminals func(ctx context.Context, name string) ([]holt.TerminalID, error)
	// Running says whether a run has not ended. Nil: all have.
	Running func(ctx context.Context, run holt.RunID) (bool, error)
}

// mostChanges is how many changes a report lists. The others are counted.
const mostChanges = 1000

// Checkpoint takes a checkpoint. One without a name is automatic: it goes when
// it is old.
func (s Story) Checkpoint(spec holt.CheckpointSpec, flushed bool) (holt.Checkpoint, error) {
	c, err := s.W.Checkpoint(CheckpointOptions{Name: spec.Name,
		CheckpointNote: CheckpointNote{Auto: spec.Name == "", Reason: spec.Note, Flushed: flushed}})
	return c.told(), err
}

func (c Checkpoint) told() holt.Checkpoint {
	return holt.Checkpoint{ID: int64(c.ID), Name: c.Name, Parent: int64(c.Parent), Auto: c.Auto, Note: c.Reason, Run: c.Run, Flushed: c.Flushed,
		CreatedAt: c.CreatedAt, Files: c.Files, Bytes: c.Bytes}
}

// Checkpoints lists the checkpoints, oldest first.
func (s Story) Checkpoints() []holt.Checkpoint {
	all := []holt.Checkpoint{}
	for _, c := range s.W.Checkpoints() {
		all = append(all, c.told())
	}
	return all
}

// Find returns a checkpoint, or the present.
func (s Story) Find(ref string) (holt.Checkpoint, error) {
	if ref == Live {
		parent, changed := s.W.Present()
		stat := s.W.Stat()
		return holt.Checkpoint{Name: Live, Parent: int64(parent), Changed: changed, CreatedAt: s.W.tree.opt.Now().UTC(), Files: stat.Files, Bytes: stat.Bytes}, nil
	}
	c, err := s.W.FindCheckpoint(ref)
	return c.told(), err
}

// Delete removes a checkpoint and says what that freed.
func (s Story) Delete(ctx context.Context, ref string, dryRun bool) (holt.Freed, error) {
	if ref == Live {
		return holt.Freed{}, holt.Errorf(holt.InvalidArgument, "live is the present, not a checkpoint")
	}
	freed, err := s.W.DeleteCheckpoint(ctx, ref, dryRun)
	return holt.Freed(freed), err
}

// since returns the checkpoint that a comparison begins with unless another is
// named: the last that a person named among those that the present descends
// from, else the oldest of them.
func (s Story) since() (string, error) {
	parent, _ := s.W.Present()
	all := s.W.Checkpoints()
	found := ""
	for i := len(all) - 1; i >= 0; i-- { // a parent is older
		if c := all[i]; c.ID == parent {
			if found, parent = c.Name, c.Parent; !c.Auto {
				break
			}
		}
	}
	if found == "" {
		return "", nothingBefore()
	}
	return found, nil
}

func nothingBefore() error {
	return holt.Errorf(holt.NotFound, "the workspace has no checkpoint to compare with").
		WithHint("take one first: holt workspace checkpoint; runs take their own when they change something")
}

// Resolve fills in what a diff leaves out: from since the last checkpoint that
// somebody named, else since the oldest there is; to the present. NotFound if
// there is no such checkpoint.
func (s Story) Resolve(spec holt.DiffSpec) (holt.DiffSpec, error) {
	if spec.To == "" {
		spec.To = Live
	}
	if spec.From == "" {
		var err error
		if spec.From, err = s.since(); err != nil {
			return spec, err
		}
	}
	for _, ref := range []string{spec.From, spec.To} {
		if _, err := s.Find(ref); err != nil {
			return spec, err
		}
	}
	_, err := cleanPaths(spec.Paths)
	return spec, err
}

// Diff calls fn for every path that differs, deletions first, until it fails.
func (s Story) Diff(ctx context.Context, spec holt.DiffSpec, fn func(holt.Change) error) error {
	spec, err := s.Resolve(spec)
	if err != nil {
		return err
	}
	return s.W.Diff(ctx, spec.From, spec.To, DiffOptions{Paths: spec.Paths}, func(c Change) error { return fn(c.told()) })
}

// Across says what must change in a state of this workspace to make it that of
// another of its family.
func (s Story) Across(ctx context.Context, at string, other *Workspace, otherAt string) (out holt.FilesDiff, err error) {
	all, err := s.W.Across(ctx, at, other, otherAt)
	if err != nil {
		return out, err
	}
	out.Changes, out.Counts, out.Omitted = changesTold(all)
	return out, nil
}

// TextDiff writes how the content of files differs, one unified diff after the
// other in the order of Diff. A line says what was renamed.
func (s Story) TextDiff(ctx context.Context, spec holt.DiffSpec, out io.Writer) error {
	spec, err := s.Resolve(spec)
	if err != nil {
		return err
	}
	return s.W.Diff(ctx, spec.From, spec.To, DiffOptions{Paths: spec.Paths}, func(c Change) error {
		was := c.Path
		if c.Kind == ChangeRenamed {
			was = c.From
			if _, err := fmt.Fprintf(out, "rename from %s\nrename to %s\n", quoteName(was), quoteName(c.Path)); err != nil {
				return err
			}
		}
		inPlace := c.Kind == ChangeRenamed || c.Kind == ChangeContent || c.Kind == ChangeMetadata
		if c.Type != "file" || inPlace && !c.Content {
			return nil
		}
		return s.W.textDiff(ctx, spec.From, spec.To, was, c.Path, out)
	})
}

func (w Writer) told() holt.Writer { return holt.Writer(w) }

// told says a change in the words of the API.
func (c Change) told() holt.Change {
	return holt.Change{Kind: holt.ChangeKind(c.Kind), Path: holt.OSString(c.Path), From: holt.OSString(c.From), Type: c.Type, Content: c.Content, Metadata: c.Metadata,
		SizeBefore: c.SizeBefore, SizeAfter: c.SizeAfter, By: c.By.told()}
}

// changesTold lists the first changes and counts all of them.
func changesTold(all []Change) (list []holt.Change, counts holt.Counts, omitted int) {
	list = make([]holt.Change, 0, min(len(all), mostChanges))
	for _, c := range all {
		told := c.told()
		counts.Add(told)
		if len(list) < mostChanges {
			list = append(list, told)
		}
	}
	return list, counts, len(all) - len(list)
}

// name returns the name of a checkpoint, "" if there is none.
func (s Story) name(id CheckpointID) string {
	s.W.tree.mu.RLock()
	defer s.W.tree.mu.RUnlock()
	c, _ := s.W.tree.checkpointByID(id)
	return c.Name
}

func (s Story) report(run string, r Report, err error) (holt.ChangeReport, error) {
	if err != nil {
		return holt.ChangeReport{}, err
	}
	out := holt.ChangeReport{Run: run, Before: s.name(r.Before)}
	out.Changes, out.Counts, out.Omitted = changesTold(r.Changes)
	for _, c := range r.Conflicts {
		out.Conflicts = append(out.Conflicts, holt.PathConflict{Path: holt.OSString(c.Path), Code: c.Code, Reason: c.Reason})
	}
	return out, nil
}

// Restore makes the workspace, or paths of it, what it was at a checkpoint.
func (s Story) Restore(ctx context.Context, spec holt.RestoreSpec) (holt.ChangeReport, error) {
	r, err := s.W.Restore(ctx, s.Caller, spec.Checkpoint, RestoreOptions{Paths: spec.Paths, DryRun: spec.DryRun})
	return s.report("", r, err)
}

// work returns the run or stretch that is meant: without a name the last run that
// changed something, by a terminal the last stretch in it.
func (s Story) work(ctx context.Context, ref string) (string, error) {
	if ref == "" {
		return s.W.LastWork(ctx)
	}
	terminals := []holt.TerminalID{holt.TerminalID(ref)}
	if _, err := holt.ParseTerminalID(ref); err != nil {
		if _, err := holt.ParseName(ref); err != nil {
			return ref, nil
		}
		if terminals = nil; s.Terminals != nil {
			if terminals, err = s.Terminals(ctx, ref); err != nil {
				return "", err
			}
		}
	}
	if len(terminals) == 0 {
		return "", holt.Errorf(holt.NotFound, "no terminal %q has, or had, this workspace", ref).WithHint("holt workspace checkpoints lists what changed something")
	}
	return s.W.LastWork(ctx, terminals...)
}

// Undo takes one run back, or one stretch of work in a terminal: without a name
// the last run that changed something. Conflict for a run that has not ended, but for a dry run.
func (s Story) Undo(ctx context.Context, spec holt.UndoSpec) (out holt.ChangeReport, err error) {
	if spec.Run, err = s.work(ctx, spec.Run); err != nil {
		return out, err
	}
	if run, isRun := holt.ParseRunID(spec.Run); isRun == nil && s.Running != nil && !spec.DryRun {
		if running, err := s.Running(ctx, run); err != nil {
			return out, err
		} else if running {
			return out, holt.Errorf(holt.Conflict, "the run %s has not ended: it could go on changing what would be taken back", run).
				WithHint("holt run kill %s ends it, holt run follow %s waits for its end; or name another one to undo", run, run)
		}
	}
	r, err := s.W.Undo(ctx, s.Caller, spec.Run, RestoreOptions{Paths: spec.Paths, DryRun: spec.DryRun})
	return s.report(spec.Run, r, err)
}

// Receipt says what a run or stretch changed; see [Story.Undo].
func (s Story) Receipt(ctx context.Context, run string) (holt.Receipt, error) {
	run, err := s.work(ctx, run)
	if err != nil {
		return holt.Receipt{}, err
	}
	r, err := s.W.Receipt(ctx, run)
	if err != nil {
		return holt.Receipt{}, err
	}
	out := holt.Receipt{Run: r.Run, Before: s.name(r.Before), After: s.name(r.After)}
	out.Changes, out.Counts, out.Omitted = changesTold(r.Changes)
	return out, nil
}

// History says what became of a path, newest first.
func (s Story) History(ctx context.Context, path string) ([]holt.PathEvent, error) {
	events, err := s.W.History(ctx, path)
	out := make([]holt.PathEvent, len(events))
	for i, e := range events {
		out[i] = holt.PathEvent{By: e.By.told(), Author: e.Author.told(), Size: e.Size, Gone: e.Gone, Checkpoint: s.name(e.Checkpoint)}
		if !e.At.IsZero() {
			at := e.At
			out[i].At = &at
		}
	}
	return out, err
}

// Blame says who last wrote what is at a path.
func (s Story) Blame(ctx context.Context, path string) (holt.Writer, error) {
	w, err := s.W.Blame(ctx, path)
	return w.told(), err
}
