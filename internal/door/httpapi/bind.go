package httpapi

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

// bind has f answer an endpoint, over HTTP and for whoever else calls through the registry.
func bind[In, Out any](s *Server, c api.Call[In, Out], f func(context.Context, *In) (Out, error)) {
	api.Bind(s.registry, c, f)
	if _, none := any(*new(Out)).(api.None); none {
		register(s.huma, operation(c.Endpoint), func(ctx context.Context, in *In) (*noContent, error) {
			_, err := api.Do(ctx, s.registry, c, in)
			return &noContent{}, err
		})
		return
	}
	register(s.huma, operation(c.Endpoint), func(ctx context.Context, in *In) (*reply[Out], error) {
		out, err := api.Do(ctx, s.registry, c, in)
		return &reply[Out]{out}, err
	})
}

// bindList has f list the items of an endpoint, which is answered in pages.
func bindList[In, Item any](s *Server, l api.List[In, Item], f func(context.Context, *In) ([]Item, error)) {
	api.BindList(s.registry, l, f)
	register(s.huma, operation(l.Endpoint), func(ctx context.Context, in *In) (*reply[holt.Page[Item]], error) {
		all, err := api.DoList(ctx, s.registry, l, in)
		if err != nil {
			return nil, err
		}
		return pageOf(all, l.Key, api.PagingOf(in)), nil
	})
}

// bindStream has f answer an endpoint whose answer is not JSON. f is called once the caller's right is checked.
func bindStream[In, Out any](s *Server, c api.Call[In, Out], responses map[string]*huma.Response, f func(context.Context, *In) (*huma.StreamResponse, error)) {
	op := operation(c.Endpoint)
	op.Responses = responses
	register(s.huma, op, func(ctx context.Context, in *In) (*huma.StreamResponse, error) {
		ctx, err := s.registry.Enter(ctx, c.Endpoint, in)
		if err != nil {
			return nil, err
		}
		return f(ctx, in)
	})
}

// operation describes an endpoint to huma.
func operation(e *api.Endpoint) huma.Operation {
	return huma.Operation{Method: e.Method, Path: e.Path, OperationID: e.ID, Tags: []string{e.Tag}, Summary: e.Title, Description: e.Doc, DefaultStatus: e.Status}
}
