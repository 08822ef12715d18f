package httpapi

import (
	"context"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

func (s *Server) runs() {
	n := s.opt.Nouns.Runs
	bind(s, api.StartRun, func(ctx context.Context, in *api.ComputerBody[holt.RunSpec]) (holt.Run, error) {
		if (in.Body.Command == "") == (len(in.Body.Argv) == 0) {
			return holt.Run{}, holt.Errorf(holt.InvalidArgument, "a run needs either a command or an argv")
		}
		return n.Start(ctx, in.Computer, in.Body, in.Key)
	})
	bind(s, api.ListRuns, func(ctx context.Context, in *api.ComputerList) (holt.Page[holt.Run], error) {
		return s.pageOfRuns(ctx, in.Computer, in.Paging)
	})
	bind(s, api.ListAllRuns, func(ctx context.Context, in *api.Paging) (holt.Page[holt.Run], error) {
		return s.pageOfRuns(ctx, "", *in)
	})
	bind(s, api.GetRun, func(ctx context.Context, in *api.OneRun) (holt.Run, error) { return n.Get(ctx, holt.RunID(in.Run)) })
	bindStream(s, api.FollowRun, func(ctx context.Context, in *api.RunEvents) (*huma.StreamResponse, error) {
		run, err := n.Get(ctx, holt.RunID(in.Run)) // while there can still be a status
		if err != nil {
			return nil, err
		}
		return s.follow(ctx, in.EventsFrom, run.State == holt.RunRunning, func(ctx context.Context, offset int64, emit func(holt.RunEvent) error) error {
			return n.Follow(ctx, run.ID, offset, emit)
		})
	})
	bind(s, api.WriteRunInput, s.runInput)
	bind(s, api.GetReceipt, func(ctx context.Context, in *api.OneRun) (holt.Receipt, error) {
		return n.Receipt(ctx, holt.RunID(in.Run))
	})
	bind(s, api.SignalRun, func(ctx context.Context, in *api.RunSignal) (api.None, error) {
		return api.None{}, n.Signal(ctx, holt.RunID(in.Run), in.Body.Signal, in.Key)
	})
}

func (s *Server) pageOfRuns(ctx context.Context, computer string, page api.Paging) (holt.Page[holt.Run], error) {
	return pageAfter(page, holt.ParseRunID, func(r holt.Run) holt.RunID { return r.ID }, func(after holt.RunID, limit int) ([]holt.Run, error) {
		return s.opt.Nouns.Runs.List(ctx, computer, after, limit)
	})
}

// follow answers with events from an offset on. What is still running has an entry in the audit log at its beginning, too.
func (s *Server) follow(ctx context.Context, from api.EventsFrom, running bool, f func(ctx context.Context, offset int64, emit func(holt.RunEvent) error) error) (*huma.StreamResponse, error) {
	offset, err := from.At()
	if err != nil {
		return nil, err
	}
	if running {
		s.begun(requestOf(ctx))
	}
	return s.events(ctx, func(ctx context.Context, emit func(holt.RunEvent) error) error { return f(ctx, offset, emit) }), nil
}

func (s *Server) runInput(ctx context.Context, in *api.RunInput) (api.InputEnd, error) {
	offset, err := offsetOr(in.Offset, -1)
	if err != nil {
		return api.InputEnd{}, err
	}
	ctx, cancel := s.stream(ctx)
	defer cancel()
	q := requestOf(ctx)
	q.body.patient, q.body.linger = 0, 0 // a person may be typing, or not
	end, err := s.opt.Nouns.Runs.Input(ctx, holt.RunID(in.Run), offset, q.r.Body, in.EOF, in.Wanted)
	return api.InputEnd{Offset: end}, err
}

// offsetOr parses an offset.
func offsetOr(s string, missing int64) (int64, error) {
	if s == "" {
		return missing, nil
	}
	offset, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		err = holt.Errorf(holt.InvalidArgument, "%q is not an offset", s)
	}
	return offset, err
}
