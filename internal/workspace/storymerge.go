package workspace

import (
	"context"

	"holt"
)

// Merge brings changes of another workspace to this one; names are what people
// call the two.
func (s Story) Merge(ctx context.Context, from *Workspace, name, into string, spec holt.MergeSpec) (out holt.MergeReport, err error) {
	r, err := s.W.Merge(ctx, s.Caller, from, MergeOptions{Paths: spec.Paths, DryRun: spec.DryRun, Text: spec.Text, Name: name, Into: into, Ours: spec.Ours, Theirs: spec.Theirs})
	out.ChangeReport, err = s.report("", r.Report, err)
	if err != nil {
		return out, err
	}
	if r.After != 0 {
		out.After = s.name(r.After)
	}
	out.Merged, out.Ours, out.Theirs = r.Merged, r.Ours, r.Theirs
	return out, nil
}
