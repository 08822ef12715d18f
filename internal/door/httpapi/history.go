package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// OneCheckpoint names a checkpoint of a workspace in a path.
type OneCheckpoint struct {
	OneWorkspace
	Checkpoint string `path:"checkpoint" maxLength:"255" doc:"name, or # and its number"`
}

const historyTag = "history"

func (s *Server) history(api huma.API) {
	s.checkpoints(api)
	s.deleteCheckpoint(api)
	s.diff(api)
	s.goBack(api)
	s.whatBecame(api)
}

func (s *Server) checkpoints(api huma.API) {
	nouns := s.opt.Nouns.History
	op := describe(http.MethodPost, "/v1/workspaces/{workspace}/checkpoints", "createCheckpoint", historyTag, "Take a checkpoint")
	op.DefaultStatus = http.StatusCreated
	op.Description = "It costs one record, whatever the workspace holds. One that was given a name stays until it is deleted."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Keyed
		Body holt.CheckpointSpec
	}) (*reply[holt.Checkpoint], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		c, err := nouns.Checkpoint(ctx, ref, in.Body, in.Key)
		return &reply[holt.Checkpoint]{c}, err
	})

	op = describe(http.MethodGet, "/v1/workspaces/{workspace}/checkpoints", "listCheckpoints", historyTag, "List checkpoints, oldest first")
	op.Description = "They are a tree: parent says what each descends from."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Paging
	}) (*reply[holt.Page[holt.Checkpoint]], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		all, err := nouns.Checkpoints(ctx, ref)
		if err != nil {
			return nil, err
		}
		return pageOf(all, func(c holt.Checkpoint) string { return fmt.Sprintf("%020d", c.ID) }, in.Paging), nil
	})

	op = describe(http.MethodGet, "/v1/workspaces/{workspace}/checkpoints/{checkpoint}", "getCheckpoint", historyTag, "Get a checkpoint, or live, the present")
	register(api, op, func(ctx context.Context, in *OneCheckpoint) (*reply[holt.Checkpoint], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		c, err := nouns.GetCheckpoint(ctx, ref, in.Checkpoint)
		return &reply[holt.Checkpoint]{c}, err
	})
}

func (s *Server) deleteCheckpoint(api huma.API) {
	op := describe(http.MethodDelete, "/v1/workspaces/{workspace}/checkpoints/{checkpoint}", "deleteCheckpoint", historyTag, "Delete a checkpoint")
	op.Description = "It answers what that freed: what only this checkpoint could see. A run beside it can no longer be undone."
	register(api, op, func(ctx context.Context, in *struct {
		OneCheckpoint
		Keyed
		DryRun bool `query:"dry_run" doc:"delete nothing, only say what that would free"`
	}) (*reply[holt.Freed], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		freed, err := s.opt.Nouns.History.DeleteCheckpoint(ctx, ref, in.Checkpoint, in.DryRun, in.Key)
		return &reply[holt.Freed]{freed}, err
	})
}

// TwoPoints says what to compare.
type TwoPoints struct {
	OneWorkspace
	From string   `query:"from" maxLength:"255" doc:"a checkpoint, or live; default: the last checkpoint that somebody named, else the oldest there is"`
	To   string   `query:"to" maxLength:"255" doc:"likewise; default: live"`
	Path []string `query:"path,explode" maxItems:"1000" doc:"only what is, or was, at or below one of these; default: everything"`
}

func (s *Server) points(ctx context.Context, in *TwoPoints) (string, holt.DiffSpec, error) {
	spec := holt.DiffSpec{From: in.From, To: in.To}
	ref, err := parseRef(in.Workspace)
	if err != nil {
		return "", spec, err
	}
	if spec.Paths, err = parsePaths(in.Path); err != nil {
		return "", spec, err
	}
	spec, err = s.opt.Nouns.History.DiffPoints(ctx, ref, spec) // while there can still be a status
	return ref, spec, err
}

func (s *Server) diff(api huma.API) {
	const lines = "application/x-ndjson"
	nouns := s.opt.Nouns.History
	op := describe(http.MethodGet, "/v1/workspaces/{workspace}/diff", "diffWorkspace", historyTag, "Compare two states of a workspace")
	op.Description = "One Change a line, all of them: deletions first, then what was renamed, created, changed, and changed without its bytes. What is below a renamed directory has not changed for that."
	op.Responses = rawResponse(lines, "changes, one a line")
	op.Responses["200"].Content[lines].Schema = api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[holt.Change](), true, "")
	register(api, op, func(ctx context.Context, in *TwoPoints) (*huma.StreamResponse, error) {
		ref, spec, err := s.points(ctx, in)
		if err != nil {
			return nil, err
		}
		return s.raw(ctx, lines, func(ctx context.Context, w *rawWriter) error {
			out := bufio.NewWriterSize(w, 32<<10)
			enc := json.NewEncoder(out)
			if err := nouns.Diff(ctx, ref, spec, func(c holt.Change) error { return enc.Encode(c) }); err != nil {
				return err
			}
			return out.Flush()
		}), nil
	})

	op = describe(http.MethodGet, "/v1/workspaces/{workspace}/diff/text", "diffText", historyTag, "Compare the text of files in two states")
	op.Description = "Unified diffs, one file after the other in the order of diffWorkspace. Files that are not text, and those above 16 MiB or 1,048,576 lines, are only named."
	op.Responses = rawResponse("text/x-diff", "unified diffs")
	register(api, op, func(ctx context.Context, in *TwoPoints) (*huma.StreamResponse, error) {
		ref, spec, err := s.points(ctx, in)
		if err != nil {
			return nil, err
		}
		return s.raw(ctx, "text/x-diff; charset=utf-8", func(ctx context.Context, w *rawWriter) error {
			out := bufio.NewWriterSize(w, 32<<10)
			if err := nouns.TextDiff(ctx, ref, spec, out); err != nil {
				return err
			}
			return out.Flush()
		}), nil
	})

	op = describe(http.MethodGet, "/v1/workspaces/{workspace}/diff/points", "diffPoints", historyTag, "Say which two states a comparison would be of")
	register(api, op, func(ctx context.Context, in *TwoPoints) (*reply[holt.DiffSpec], error) {
		_, spec, err := s.points(ctx, in)
		return &reply[holt.DiffSpec]{spec}, err
	})
}

func (s *Server) goBack(api huma.API) {
	nouns := s.opt.Nouns.History
	op := describe(http.MethodPost, "/v1/workspaces/{workspace}/restore", "restoreWorkspace", historyTag, "Make a workspace, or paths of it, what it was")
	op.Description = "The present is checkpointed first, so nothing is lost. It happens wholly or not at all; files keep their inode numbers and times. What is mounted sees it at once."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Keyed
		Body holt.RestoreSpec
	}) (*reply[holt.ChangeReport], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		if in.Body.Checkpoint == "" {
			return nil, holt.Errorf(holt.InvalidArgument, "no checkpoint is named").WithHint("list them, and give the name of one")
		}
		if in.Body.Paths, err = parsePaths(in.Body.Paths); err != nil {
			return nil, err
		}
		report, err := nouns.Restore(ctx, ref, in.Body, in.Key)
		return &reply[holt.ChangeReport]{report}, err
	})

	op = describe(http.MethodPost, "/v1/workspaces/{workspace}/undo", "undoRun", historyTag, "Take back what one run, or one stretch of work in a terminal, changed, and keep what came later")
	op.Description = "What was changed again since is left as it is and reported as a conflict. The present is checkpointed first."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Keyed
		Body holt.UndoSpec
	}) (*reply[holt.ChangeReport], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		if in.Body.Paths, err = parsePaths(in.Body.Paths); err != nil {
			return nil, err
		}
		if in.Body.Run != "" {
			if in.Body.Run, err = holt.ParseWork(in.Body.Run); err != nil {
				return nil, err
			}
		}
		report, err := nouns.Undo(ctx, ref, in.Body, in.Key)
		return &reply[holt.ChangeReport]{report}, err
	})
}

func parsePaths(paths []string) (out []string, err error) {
	for _, p := range paths {
		if p, err = parsePath(p); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// PastFile names a file of a workspace, which may be gone.
type PastFile struct {
	OneWorkspace
	Path string `query:"path" required:"true" maxLength:"4096" doc:"absolute, from the workspace's top"`
}

func (in *PastFile) parse() (ref, file string, err error) {
	return FileOwner{ref: in.Workspace}.parsePath(in.Path)
}

func (s *Server) whatBecame(api huma.API) {
	nouns := s.opt.Nouns.History
	op := describe(http.MethodGet, "/v1/workspaces/{workspace}/history", "fileHistory", historyTag, "Say what became of a file or directory, newest first")
	op.Description = "Of one that is gone, too. All of it comes in one page."
	register(api, op, func(ctx context.Context, in *PastFile) (*reply[holt.Page[holt.PathEvent]], error) {
		ref, file, err := in.parse()
		if err != nil {
			return nil, err
		}
		all, err := nouns.History(ctx, ref, file)
		if all == nil {
			all = []holt.PathEvent{}
		}
		return &reply[holt.Page[holt.PathEvent]]{holt.Page[holt.PathEvent]{Items: all}}, err
	})

	op = describe(http.MethodGet, "/v1/workspaces/{workspace}/blame", "blameFile", historyTag, "Say who last wrote what is at a path")
	register(api, op, func(ctx context.Context, in *PastFile) (*reply[holt.Writer], error) {
		ref, file, err := in.parse()
		if err != nil {
			return nil, err
		}
		w, err := nouns.Blame(ctx, ref, file)
		return &reply[holt.Writer]{w}, err
	})

	op = describe(http.MethodGet, "/v1/workspaces/{workspace}/receipts/{run}", "getReceipt", historyTag, "Say what a run, or work in a terminal, changed in a workspace")
	op.Description = "Also of a run whose computer is gone. A run that changed nothing has an empty receipt."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Run string `path:"run" maxLength:"255" doc:"id of a run or of a stretch of work in a terminal; or a terminal's id or name: the last stretch in it"`
	}) (*reply[holt.Receipt], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		work, err := holt.ParseWork(in.Run)
		if err != nil {
			return nil, err
		}
		receipt, err := nouns.Receipt(ctx, ref, work)
		return &reply[holt.Receipt]{receipt}, err
	})
}
