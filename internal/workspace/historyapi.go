package workspace

import (
	"context"
	"fmt"
	"io"

	"holt"
)

// History is a workspace's past in the words of the API, as [Files] is its files.
// Errors are [holt.Error].
type History struct {
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
func (h History) Checkpoint(spec holt.CheckpointSpec, flushed bool) (holt.Checkpoint, error) {
	c, err := h.W.Checkpoint(CheckpointOptions{Name: spec.Name,
		CheckpointNote: CheckpointNote{Auto: spec.Name == "", Reason: spec.Note, Flushed: flushed}})
	return c.toAPI(), err
}

func (c Checkpoint) toAPI() holt.Checkpoint {
	return holt.Checkpoint{ID: int64(c.ID), Name: c.Name, Parent: int64(c.Parent), Auto: c.Auto, Note: c.Reason, Run: c.Run, Flushed: c.Flushed,
		CreatedAt: c.CreatedAt, Files: c.Files, Bytes: c.Bytes}
}

// Checkpoints lists the checkpoints, oldest first.
func (h History) Checkpoints() []holt.Checkpoint {
	all := []holt.Checkpoint{}
	for _, c := range h.W.Checkpoints() {
		all = append(all, c.toAPI())
	}
	return all
}

// Find returns a checkpoint, or the present.
func (h History) Find(ref string) (holt.Checkpoint, error) {
	if ref == Live {
		parent, changed := h.W.Present()
		stat := h.W.Stat()
		return holt.Checkpoint{Name: Live, Parent: int64(parent), Changed: changed, CreatedAt: h.W.tree.opt.Now().UTC(), Files: stat.Files, Bytes: stat.Bytes}, nil
	}
	c, err := h.W.FindCheckpoint(ref)
	return c.toAPI(), err
}

// Delete removes a checkpoint and says what that freed.
func (h History) Delete(ctx context.Context, ref string, dryRun bool) (holt.Freed, error) {
	if ref == Live {
		return holt.Freed{}, holt.Errorf(holt.InvalidArgument, "live is the present state, not a checkpoint: it cannot be deleted")
	}
	freed, err := h.W.DeleteCheckpoint(ctx, ref, dryRun)
	return holt.Freed(freed), err
}

// since returns the checkpoint that a comparison begins with unless another is
// named: the last that a person named among those that the present descends
// from, else the oldest of them.
func (h History) since() (string, error) {
	parent, _ := h.W.Present()
	all := h.W.Checkpoints()
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
		WithHint("take one with holt workspace checkpoint; a run that changes something takes its own")
}

// Resolve fills in what a diff leaves out: from since the last checkpoint that
// somebody named, else since the oldest there is; to the present. NotFound if
// there is no such checkpoint.
func (h History) Resolve(spec holt.DiffSpec) (holt.DiffSpec, error) {
	if spec.To == "" {
		spec.To = Live
	}
	if spec.From == "" {
		var err error
		if spec.From, err = h.since(); err != nil {
			return spec, err
		}
	}
	for _, ref := range []string{spec.From, spec.To} {
		if _, err := h.Find(ref); err != nil {
			return spec, err
		}
	}
	_, err := cleanPaths(spec.Paths)
	return spec, err
}

// Diff calls fn for every path that differs, deletions first, until it fails.
func (h History) Diff(ctx context.Context, spec holt.DiffSpec, fn func(holt.Change) error) error {
	spec, err := h.Resolve(spec)
	if err != nil {
		return err
	}
	return h.W.Diff(ctx, spec.From, spec.To, DiffOptions{Paths: spec.Paths}, func(c Change) error { return fn(c.toAPI()) })
}

// Across says what must change in a state of this workspace to make it that of
// another of its family.
func (h History) Across(ctx context.Context, at string, other *Workspace, otherAt string) (out holt.FilesDiff, err error) {
	all, err := h.W.Across(ctx, at, other, otherAt)
	if err != nil {
		return out, err
	}
	out.Changes, out.Counts, out.Omitted = changesToAPI(all)
	return out, nil
}

// TextDiff writes how the content of files differs, one unified diff after the
// other in the order of Diff. A line says what was renamed.
func (h History) TextDiff(ctx context.Context, spec holt.DiffSpec, out io.Writer) error {
	spec, err := h.Resolve(spec)
	if err != nil {
		return err
	}
	return h.W.Diff(ctx, spec.From, spec.To, DiffOptions{Paths: spec.Paths}, func(c Change) error {
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
		return h.W.textDiff(ctx, spec.From, spec.To, was, c.Path, out)
	})
}

func (w Writer) toAPI() holt.Writer { return holt.Writer(w) }

// toAPI says a change in the words of the API.
func (c Change) toAPI() holt.Change {
	return holt.Change{Kind: holt.ChangeKind(c.Kind), Path: holt.OSString(c.Path), From: holt.OSString(c.From), Type: c.Type, Content: c.Content, Metadata: c.Metadata,
		SizeBefore: c.SizeBefore, SizeAfter: c.SizeAfter, By: c.By.toAPI()}
}

// changesToAPI lists the first changes and counts all of them.
func changesToAPI(all []Change) (list []holt.Change, counts holt.Counts, omitted int) {
	list = make([]holt.Change, 0, min(len(all), mostChanges))
	for _, c := range all {
		told := c.toAPI()
		counts.Add(told)
		if len(list) < mostChanges {
			list = append(list, told)
		}
	}
	return list, counts, len(all) - len(list)
}

// name returns the name of a checkpoint, "" if there is none.
func (h History) name(id CheckpointID) string {
	h.W.tree.mu.RLock()
	defer h.W.tree.mu.RUnlock()
	c, _ := h.W.tree.checkpoints.byID(id)
	return c.Name
}

func (h History) report(run string, r Report, err error) (holt.ChangeReport, error) {
	if err != nil {
		return holt.ChangeReport{}, err
	}
	out := holt.ChangeReport{Run: run, Before: h.name(r.Before)}
	out.Changes, out.Counts, out.Omitted = changesToAPI(r.Changes)
	for _, c := range r.Conflicts {
		out.Conflicts = append(out.Conflicts, holt.PathConflict{Path: holt.OSString(c.Path), Code: c.Code, Reason: c.Reason})
	}
	return out, nil
}

// Restore makes the workspace, or paths of it, what it was at a checkpoint.
func (h History) Restore(ctx context.Context, spec holt.RestoreSpec) (holt.ChangeReport, error) {
	r, err := h.W.Restore(ctx, h.Caller, spec.Checkpoint, RestoreOptions{Paths: spec.Paths, DryRun: spec.DryRun})
	return h.report("", r, err)
}

// work returns the run or stretch that is meant: without a name the last run that
// changed something, by a terminal the last stretch in it.
func (h History) work(ctx context.Context, ref string) (string, error) {
	if ref == "" {
		return h.W.LastRun(ctx)
	}
	terminals := []holt.TerminalID{holt.TerminalID(ref)}
	if _, err := holt.ParseTerminalID(ref); err != nil {
		if _, err := holt.ParseName(ref); err != nil {
			return ref, nil
		}
		if terminals = nil; h.Terminals != nil {
			if terminals, err = h.Terminals(ctx, ref); err != nil {
				return "", err
			}
		}
	}
	if len(terminals) == 0 {
		return "", holt.Errorf(holt.NotFound, "no terminal %q has used this workspace", ref).WithHint("holt workspace checkpoints lists runs and terminals that changed files")
	}
	return h.W.LastRun(ctx, terminals...)
}

// Undo takes one run back, or one stretch of work in a terminal: without a name
// the last run that changed something. Conflict for a run that has not ended, but for a dry run.
func (h History) Undo(ctx context.Context, spec holt.UndoSpec) (out holt.ChangeReport, err error) {
	if spec.Run, err = h.work(ctx, spec.Run); err != nil {
		return out, err
	}
	if run, isRun := holt.ParseRunID(spec.Run); isRun == nil && h.Running != nil && !spec.DryRun {
		if running, err := h.Running(ctx, run); err != nil {
			return out, err
		} else if running {
			return out, holt.Errorf(holt.Conflict, "run %s is still in progress and could change the files again", run).
				WithHint("end it with holt run kill %s, wait for it with holt run follow %s, or undo another run", run, run)
		}
	}
	r, err := h.W.Undo(ctx, h.Caller, spec.Run, RestoreOptions{Paths: spec.Paths, DryRun: spec.DryRun})
	return h.report(spec.Run, r, err)
}

// Receipt says what a run or stretch changed; see [History.Undo].
func (h History) Receipt(ctx context.Context, run string) (holt.Receipt, error) {
	run, err := h.work(ctx, run)
	if err != nil {
		return holt.Receipt{}, err
	}
	r, err := h.W.Receipt(ctx, run)
	if err != nil {
		return holt.Receipt{}, err
	}
	out := holt.Receipt{Run: r.Run, Before: h.name(r.Before), After: h.name(r.After)}
	out.Changes, out.Counts, out.Omitted = changesToAPI(r.Changes)
	return out, nil
}

// Events says what became of a path, newest first.
func (h History) Events(ctx context.Context, path string) ([]holt.PathEvent, error) {
	events, err := h.W.History(ctx, path)
	out := make([]holt.PathEvent, len(events))
	for i, e := range events {
		out[i] = holt.PathEvent{By: e.By.toAPI(), Author: e.Author.toAPI(), Size: e.Size, Gone: e.Gone, Checkpoint: h.name(e.Checkpoint)}
		if !e.At.IsZero() {
			at := e.At
			out[i].At = &at
		}
	}
	return out, err
}

// Blame says who last wrote what is at a path.
func (h History) Blame(ctx context.Context, path string) (holt.Writer, error) {
	w, err := h.W.Blame(ctx, path)
	return w.toAPI(), err
}

// Merge brings changes of another workspace to this one; names are what people
// call the two.
func (h History) Merge(ctx context.Context, from *Workspace, name, into string, spec holt.MergeSpec) (out holt.MergeReport, err error) {
	r, err := h.W.Merge(ctx, h.Caller, from, MergeOptions{Paths: spec.Paths, DryRun: spec.DryRun, Text: spec.Text, Name: name, Into: into, Ours: spec.Ours, Theirs: spec.Theirs})
	out.ChangeReport, err = h.report("", r.Report, err)
	if err != nil {
		return out, err
	}
	if r.After != 0 {
		out.After = h.name(r.After)
	}
	out.Merged, out.Ours, out.Theirs = r.Merged, r.Ours, r.Theirs
	return out, nil
}
