package httpapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

var errorType = reflect.TypeFor[holt.Error]()

// OneComputer names a computer in a path.
type OneComputer struct {
	Computer string `path:"computer" doc:"name or id"`
}

func (s *Server) computers(api huma.API) {
	const tag = "computers"
	nouns := s.opt.Nouns.Computers

	op := describe(http.MethodPost, "/v1/computers", "createComputer", tag, "Create and start a computer")
	op.DefaultStatus = http.StatusCreated
	op.Description = "Answers when its agent does. A create that fails leaves nothing."
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Body holt.ComputerSpec
	}) (*reply[holt.Computer], error) {
		c, err := nouns.Create(ctx, in.Body, in.Key)
		return &reply[holt.Computer]{c}, err
	})

	register(api, describe(http.MethodGet, "/v1/computers", "listComputers", tag, "List computers by name"),
		func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.Computer]], error) {
			all, err := nouns.List(ctx)
			if err != nil {
				return nil, err
			}
			return pageOf(all, func(c holt.Computer) string { return c.Name }, *in), nil
		})

	register(api, describe(http.MethodGet, "/v1/computers/{computer}", "getComputer", tag, "Get a computer"),
		func(ctx context.Context, in *OneComputer) (*reply[holt.Computer], error) {
			ref, err := parseRef(in.Computer)
			if err != nil {
				return nil, err
			}
			c, err := nouns.Get(ctx, ref)
			return &reply[holt.Computer]{c}, err
		})

	s.life(api, "start", "Start a stopped computer, or let a paused one go on; a running one is left as it is", nouns.Start)
	s.life(api, "stop", "Shut a computer down; both disks stay", nouns.Stop)

	op = describe(http.MethodDelete, "/v1/computers/{computer}", "deleteComputer", tag, "Delete a computer with its root disk and the workspace that was made with it")
	op.Description = "Its snapshots and schedules go with it. Its forks go on; the answer names all of them."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
	}) (*reply[holt.DeletedComputer], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		deleted, err := nouns.Delete(ctx, ref, in.Key)
		return &reply[holt.DeletedComputer]{deleted}, err
	})
	s.logs(api)
}

// life registers a verb that changes the state of a computer.
func (s *Server) life(api huma.API, verb, summary string, f func(context.Context, string, string) (holt.Computer, error)) {
	op := describe(http.MethodPost, "/v1/computers/{computer}/"+verb, verb+"Computer", "computers", summary)
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
	}) (*reply[holt.Computer], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		c, err := f(ctx, ref, in.Key)
		return &reply[holt.Computer]{c}, err
	})
}

func (s *Server) logs(api huma.API) {
	op := describe(http.MethodGet, "/v1/computers/{computer}/logs", "computerLogs", "computers", "Read the machine's console log")
	op.Responses = rawResponse("text/plain", "the log's bytes")
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Tail   int64 `query:"tail_bytes" minimum:"0" doc:"only the last so many bytes; 0: everything"`
		Follow bool  `query:"follow" doc:"go on with what is added"`
	}) (*huma.StreamResponse, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		if in.Follow {
			s.begun(requestOf(ctx))
		}
		return s.raw(ctx, "text/plain; charset=utf-8", func(ctx context.Context, w *rawWriter) error {
			defer w.q.wait(ctx)()
			return s.opt.Nouns.Computers.Logs(ctx, ref, holt.LogQuery{TailBytes: in.Tail, Follow: in.Follow}, w)
		}), nil
	})
}
