package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// OneRun names a run in a path.
type OneRun struct {
	Run string `path:"run" doc:"run id"`
}

func (s *Server) runs(api huma.API) {
	const tag = "runs"
	nouns := s.opt.Nouns.Runs

	op := describe(http.MethodPost, "/v1/computers/{computer}/runs", "startRun", tag, "Run a command")
	op.DefaultStatus = http.StatusCreated
	op.Description = "Answers once it has started; follow its events for output and end. A stopped computer is started first."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.RunSpec
	}) (*reply[holt.Run], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		if (in.Body.Command == "") == (len(in.Body.Argv) == 0) {
			return nil, holt.Errorf(holt.InvalidArgument, "a run needs either a command or an argv")
		}
		run, err := nouns.Start(ctx, ref, in.Body, in.Key)
		return &reply[holt.Run]{run}, err
	})

	s.listRuns(api)

	register(api, describe(http.MethodGet, "/v1/runs/{run}", "getRun", tag, "Get a run"),
		func(ctx context.Context, in *OneRun) (*reply[holt.Run], error) {
			id, err := holt.ParseRunID(in.Run)
			if err != nil {
				return nil, err
			}
			run, err := nouns.Get(ctx, id)
			return &reply[holt.Run]{run}, err
		})

	s.runEvents(api)
	s.runInput(api)
	s.runReceipt(api)

	op = describe(http.MethodPost, "/v1/runs/{run}/signal", "signalRun", tag, "Send a signal to every process of a run")
	register(api, op, func(ctx context.Context, in *struct {
		OneRun
		Keyed
		Body holt.SignalSpec
	}) (*noContent, error) {
		id, err := holt.ParseRunID(in.Run)
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Signal(ctx, id, in.Body.Signal, in.Key)
	})
}

func (s *Server) listRuns(api huma.API) {
	op := describe(http.MethodGet, "/v1/computers/{computer}/runs", "listRuns", "runs", "List the runs of a computer, newest first")
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Paging
	}) (*reply[holt.Page[holt.Run]], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		return s.pageOfRuns(ctx, ref, in.Paging)
	})

	op = describe(http.MethodGet, "/v1/runs", "listAllRuns", "runs", "List the runs of all computers, newest first")
	register(api, op, func(ctx context.Context, in *struct{ Paging }) (*reply[holt.Page[holt.Run]], error) {
		return s.pageOfRuns(ctx, "", in.Paging)
	})
}

func (s *Server) pageOfRuns(ctx context.Context, computer string, page Paging) (*reply[holt.Page[holt.Run]], error) {
	var after holt.RunID
	if page.Cursor != "" {
		var err error
		if after, err = holt.ParseRunID(page.Cursor); err != nil {
			return nil, err
		}
	}
	runs, err := s.opt.Nouns.Runs.List(ctx, computer, after, page.Limit+1)
	if err != nil {
		return nil, err
	}
	out := &reply[holt.Page[holt.Run]]{Body: holt.Page[holt.Run]{Items: append([]holt.Run{}, runs...)}}
	if len(runs) > page.Limit {
		out.Body.Items = out.Body.Items[:page.Limit]
		out.Body.Next = string(runs[page.Limit-1].ID)
	}
	return out, nil
}

func (s *Server) runEvents(api huma.API) {
	op := describe(http.MethodGet, "/v1/runs/{run}/events", "followRun", "runs", "Follow the output and the end of a run")
	op.Description = "Server-sent events: the name is the event's kind, the data a RunEvent, the id the offset behind it. " +
		"A client that comes again with that id as Last-Event-ID (or offset) misses nothing. The stream is complete " +
		"only when it ended with an exit event; one named error carries an Error. Comments keep a quiet stream alive."
	op.Responses = eventResponses(api)
	register(api, op, func(ctx context.Context, in *struct {
		OneRun
		EventsFrom
	}) (*huma.StreamResponse, error) {
		id, err := holt.ParseRunID(in.Run)
		if err != nil {
			return nil, err
		}
		offset, err := in.offset()
		if err != nil {
			return nil, err
		}
		run, err := s.opt.Nouns.Runs.Get(ctx, id)
		if err != nil {
			return nil, err // while there can still be a status
		}
		if run.State == holt.RunRunning {
			s.begun(requestOf(ctx))
		}
		return s.events(ctx, func(ctx context.Context, emit func(holt.RunEvent) error) error {
			return s.opt.Nouns.Runs.Follow(ctx, id, offset, emit)
		}), nil
	})
}

// inputEnd says where an input stands.
type inputEnd struct {
	Offset int64 `json:"offset" doc:"bytes that the run has taken since its start: where the next call goes on"`
}

func (s *Server) runInput(api huma.API) {
	op := describe(http.MethodPut, "/v1/runs/{run}/stdin", "writeRunInput", "runs", "Write to the standard input of a run")
	op.Description = "The body goes to the run as it comes. It may be sent in any number of calls, one after the other; " +
		"the one with eof closes the input. A call that was cut off can be repeated with its offset: what the run has already is skipped."
	op.RequestBody = rawBody("bytes for the standard input")
	register(api, op, func(ctx context.Context, in *struct {
		OneRun
		RawRequest
		Offset string `query:"offset" pattern:"^[0-9]{1,18}$" doc:"where in the input the body begins, bytes from its start; default: where it stands"`
		EOF    bool   `query:"eof" default:"true" doc:"close the input at the end of the body"`
		Wanted bool   `query:"wanted" doc:"wait first until a process of the run reads its input"`
	}) (*reply[inputEnd], error) {
		id, err := holt.ParseRunID(in.Run)
		if err != nil {
			return nil, err
		}
		offset := int64(-1)
		if in.Offset != "" {
			if offset, err = strconv.ParseInt(in.Offset, 10, 64); err != nil {
				return nil, holt.Errorf(holt.InvalidArgument, "%q is not an offset", in.Offset)
			}
		}
		ctx, cancel := s.stream(ctx)
		defer cancel()
		body := requestOf(ctx).body
		body.patient, body.linger = 0, 0 // a person may be typing, or not
		end, err := s.opt.Nouns.Runs.Input(ctx, id, offset, in.r.Body, in.EOF, in.Wanted)
		return &reply[inputEnd]{inputEnd{end}}, err
	})
}

func (s *Server) runReceipt(api huma.API) {
	op := describe(http.MethodGet, "/v1/runs/{run}/receipt", "getRunReceipt", "runs", "Say what a run changed in its computer's workspace")
	op.Description = "Of a run that has ended it is final: it waits until what the guest held in memory is written."
	register(api, op, func(ctx context.Context, in *OneRun) (*reply[holt.Receipt], error) {
		id, err := holt.ParseRunID(in.Run)
		if err != nil {
			return nil, err
		}
		receipt, err := s.opt.Nouns.Runs.Receipt(ctx, id)
		return &reply[holt.Receipt]{receipt}, err
	})
}
