package httpapi

import (
	"context"
	"io"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

// bind has f answer an endpoint, over HTTP and for whoever else calls through the registry.
func bind[In, Out any](s *Server, c api.Call[In, Out], f func(context.Context, *In) (Out, error)) {
	api.Bind(s.registry, c, f)
	if _, none := any(*new(Out)).(api.None); none {
		register(s.huma, s.operation(c.Endpoint), func(ctx context.Context, in *In) (*noContent, error) {
			_, err := api.Do(ctx, s.registry, c, in)
			return &noContent{}, err
		})
		return
	}
	answerWith(s, c, func(out Out) reply[Out] { return reply[Out]{out} })
}

// bindReply is [bind] for an answer with headers, which the function reply makes.
func bindReply[In, Out, Reply any](s *Server, c api.Call[In, Out], f func(context.Context, *In) (Out, error), reply func(Out) Reply) {
	api.Bind(s.registry, c, f)
	answerWith(s, c, reply)
}

func answerWith[In, Out, Reply any](s *Server, c api.Call[In, Out], reply func(Out) Reply) {
	register(s.huma, s.operation(c.Endpoint), func(ctx context.Context, in *In) (*Reply, error) {
		out, err := api.Do(ctx, s.registry, c, in)
		if err != nil {
			return nil, err
		}
		r := reply(out)
		return &r, nil
	})
}

// body is the body of a call that takes no JSON.
func body(ctx context.Context) io.Reader { return requestOf(ctx).r.Body }

// bindList has f list the items of an endpoint, which is answered in pages.
func bindList[In, Item any](s *Server, l api.List[In, Item], f func(context.Context, *In) ([]Item, error)) {
	api.BindList(s.registry, l, f)
	register(s.huma, s.operation(l.Endpoint), func(ctx context.Context, in *In) (*reply[holt.Page[Item]], error) {
		all, err := api.DoList(ctx, s.registry, l, in)
		if err != nil {
			return nil, err
		}
		return pageOf(all, l.Key, api.PagingOf(in)), nil
	})
}

// bindStream has f answer an endpoint whose answer is not JSON. f is called once the caller's right is checked.
func bindStream[In any](s *Server, c api.Call[In, api.Stream], f func(context.Context, *In) (*huma.StreamResponse, error)) {
	api.BindStream(s.registry, c)
	register(s.huma, s.operation(c.Endpoint), func(ctx context.Context, in *In) (*huma.StreamResponse, error) {
		ctx, err := s.registry.Enter(ctx, c.Endpoint, in)
		if err != nil {
			return nil, err
		}
		return f(ctx, in)
	})
}

// operation describes an endpoint to huma.
func (s *Server) operation(e *api.Endpoint) huma.Operation {
	op := huma.Operation{Method: e.Method, Path: e.Path, OperationID: e.ID, Tags: []string{e.Tag}, Summary: e.Title, Description: e.Doc, DefaultStatus: e.Status}
	op.Metadata = map[string]any{endpointKey: e}
	if e.Takes != "" {
		op.RequestBody = rawBody(e.Takes)
		for _, mediaType := range e.Types {
			op.RequestBody.Content[mediaType] = &huma.MediaType{}
		}
	}
	for _, p := range api.FileParams(e) {
		op.Parameters = append(op.Parameters, &huma.Param{Name: p[0], In: "path", Required: true, Description: p[1], Schema: &huma.Schema{Type: huma.TypeString}})
	}
	if a := e.Answer; a.Status != 0 {
		content := &huma.MediaType{}
		if a.Of != nil {
			content.Schema = s.huma.OpenAPI().Components.Schemas.Schema(a.Of, true, "")
		}
		op.Responses = map[string]*huma.Response{strconv.Itoa(a.Status): {Description: a.Doc, Content: map[string]*huma.MediaType{a.Type: content}}}
	}
	for status, doc := range e.Also {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: doc}
	}
	return op
}

// endpointKey is the key of an operation's endpoint in its metadata.
const endpointKey = "endpoint"
