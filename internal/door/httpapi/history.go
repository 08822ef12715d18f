package httpapi

import (
	"bufio"
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

func (s *Server) history() {
	n := s.opt.Nouns.History
	bind(s, api.CreateCheckpoint, func(ctx context.Context, in *api.WorkspaceBody[holt.CheckpointSpec]) (holt.Checkpoint, error) {
		return n.Checkpoint(ctx, in.Workspace, in.Body, in.Key)
	})
	bindList(s, api.ListCheckpoints, func(ctx context.Context, in *api.CheckpointsOf) ([]holt.Checkpoint, error) {
		return n.Checkpoints(ctx, in.Workspace)
	})
	bind(s, api.GetCheckpoint, func(ctx context.Context, in *api.OneCheckpoint) (holt.Checkpoint, error) {
		return n.GetCheckpoint(ctx, in.Workspace, in.Checkpoint)
	})
	bind(s, api.DeleteCheckpoint, func(ctx context.Context, in *api.CheckpointRemoval) (holt.Freed, error) {
		return n.DeleteCheckpoint(ctx, in.Workspace, in.Checkpoint, in.DryRun, in.Key)
	})
	bind(s, api.RestoreWorkspace, func(ctx context.Context, in *api.WorkspaceRestore) (holt.ChangeReport, error) {
		return n.Restore(ctx, in.Workspace, in.Body, in.Key)
	})
	bind(s, api.UndoRun, func(ctx context.Context, in *api.WorkspaceUndo) (holt.ChangeReport, error) {
		return n.Undo(ctx, in.Workspace, in.Body, in.Key)
	})
	bind(s, api.FileHistory, func(ctx context.Context, in *api.PastFile) (holt.Page[holt.PathEvent], error) {
		all, err := n.History(ctx, in.Workspace, in.Path)
		return holt.Page[holt.PathEvent]{Items: listed(all)}, err
	})
	bind(s, api.BlameFile, func(ctx context.Context, in *api.PastFile) (holt.Writer, error) {
		return n.Blame(ctx, in.Workspace, in.Path)
	})
	bind(s, api.WorkspaceReceipt, func(ctx context.Context, in *api.ReceiptOf) (holt.Receipt, error) {
		return n.Receipt(ctx, in.Workspace, in.Run)
	})
	s.diffs()
}

func (s *Server) diffs() {
	n := s.opt.Nouns.History
	bind(s, api.DiffPoints, s.points)
	s.diff(api.DiffWorkspace, api.DiffWorkspace.Answer.Type, func(ctx context.Context, ref string, spec holt.DiffSpec, out *bufio.Writer) error {
		enc := json.NewEncoder(out)
		return n.Diff(ctx, ref, spec, func(c holt.Change) error { return enc.Encode(c) })
	})
	s.diff(api.DiffText, "text/x-diff; charset=utf-8", func(ctx context.Context, ref string, spec holt.DiffSpec, out *bufio.Writer) error {
		return n.TextDiff(ctx, ref, spec, out)
	})
}

// points fills in what a call leaves out.
func (s *Server) points(ctx context.Context, in *api.TwoPoints) (holt.DiffSpec, error) {
	return s.opt.Nouns.History.DiffPoints(ctx, in.Workspace, holt.DiffSpec{From: in.From, To: in.To, Paths: in.Path})
}

// diff answers an endpoint with what write writes.
func (s *Server) diff(c api.Call[api.TwoPoints, api.Stream], contentType string, write func(ctx context.Context, ref string, spec holt.DiffSpec, out *bufio.Writer) error) {
	bindStream(s, c, func(ctx context.Context, in *api.TwoPoints) (*huma.StreamResponse, error) {
		spec, err := s.points(ctx, in) // while there can still be a status
		if err != nil {
			return nil, err
		}
		return s.raw(ctx, contentType, func(ctx context.Context, w *rawWriter) error {
			out := bufio.NewWriterSize(w, 32<<10)
			if err := write(ctx, in.Workspace, spec, out); err != nil {
				return err
			}
			return out.Flush()
		}), nil
	})
}
