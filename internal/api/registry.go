package api

import (
	"context"
	"slices"

	"holt"
)

// Registry has the functions that endpoints are bound to. Every way into the daemon calls through it, so that none can leave
// out the check of the caller's right. It is filled before the first call, and not changed afterwards.
type Registry struct {
	authorizer Authorizer
	calls      map[*Endpoint]any
}

// Authorizer decides who may make which call.
type Authorizer interface {
	// Check returns the context to use from there on, or Forbidden. in points to the input of e.
	Check(ctx context.Context, e *Endpoint, in any) (context.Context, error)
	// Seen returns Forbidden if the caller may not see an item of e's list, or e's answer.
	Seen(ctx context.Context, e *Endpoint, item any) error
}

// NewRegistry returns a registry without endpoints. a must not be nil.
func NewRegistry(a Authorizer) *Registry {
	if a == nil {
		panic("a registry needs an authorizer")
	}
	return &Registry{authorizer: a, calls: map[*Endpoint]any{}}
}

// Bind has f answer an endpoint.
func Bind[In, Out any](r *Registry, c Call[In, Out], f func(context.Context, *In) (Out, error)) {
	r.bind(c.Endpoint, f)
}

// BindList has f list the items of an endpoint, all of them, in any order.
func BindList[In, Item any](r *Registry, l List[In, Item], f func(context.Context, *In) ([]Item, error)) {
	r.bind(l.Endpoint, f)
}

// BindStream notes that an endpoint is answered by hand, by what calls [Registry.Enter].
func BindStream[In any](r *Registry, c Call[In, Stream]) { r.bind(c.Endpoint, c) }

// Unbound returns the endpoints that no function answers.
func (r *Registry) Unbound() []*Endpoint {
	return slices.DeleteFunc(slices.Clone(all), func(e *Endpoint) bool { return r.calls[e] != nil })
}

func (r *Registry) bind(e *Endpoint, f any) {
	if r.calls[e] != nil {
		panic("endpoint " + e.ID + " is bound twice")
	}
	r.calls[e] = f
}

// Do makes a call: it parses the names in the input, checks the caller's right, and calls what is bound.
func Do[In, Out any](ctx context.Context, r *Registry, c Call[In, Out], in *In) (out Out, err error) {
	if ctx, err = r.Enter(ctx, c.Endpoint, in); err != nil {
		return out, err
	}
	f, ok := r.calls[c.Endpoint].(func(context.Context, *In) (Out, error))
	if !ok {
		return out, unbound(c.Endpoint)
	}
	if out, err = f(ctx, in); err != nil {
		return out, err
	}
	if err := r.authorizer.Seen(ctx, c.Endpoint, out); err != nil {
		return *new(Out), err
	}
	return out, nil
}

// DoList is [Do] for a list: it returns the items that the caller may see.
func DoList[In, Item any](ctx context.Context, r *Registry, l List[In, Item], in *In) ([]Item, error) {
	ctx, err := r.Enter(ctx, l.Endpoint, in)
	if err != nil {
		return nil, err
	}
	f, ok := r.calls[l.Endpoint].(func(context.Context, *In) ([]Item, error))
	if !ok {
		return nil, unbound(l.Endpoint)
	}
	found, err := f(ctx, in)
	if err != nil {
		return nil, err
	}
	seen := make([]Item, 0, len(found))
	for _, item := range found {
		switch err := r.authorizer.Seen(ctx, l.Endpoint, item); {
		case err == nil:
			seen = append(seen, item)
		case holt.CodeOf(err) != holt.Forbidden:
			return nil, err
		}
	}
	return seen, nil
}

// Enter is what [Do] does before it calls: for streams, which are answered by hand. in points to the input. What is returned is
// the context to use from there on.
func (r *Registry) Enter(ctx context.Context, e *Endpoint, in any) (context.Context, error) {
	if err := parse(in); err != nil {
		return ctx, err
	}
	return r.authorizer.Check(ctx, e, in)
}

// Seen returns Forbidden if the caller may not see an item of e's answer: for streams.
func (r *Registry) Seen(ctx context.Context, e *Endpoint, item any) error {
	return r.authorizer.Seen(ctx, e, item)
}

func unbound(e *Endpoint) error {
	return holt.Errorf(holt.Internal, "endpoint %s is not bound", e.ID)
}
