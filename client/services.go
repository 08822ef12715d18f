package client

import (
	"context"
	"io"

	"holt"
	"holt/internal/api"
)

// Services are programs that computers keep running.
type Services struct{ c *Client }

// Add has a computer keep a program running, and starts it; it does not wait until that is ready.
func (n Services) Add(ctx context.Context, computer string, spec holt.ServiceSpec, key string) (holt.Service, error) {
	return do(ctx, n.c, api.AddService, api.ComputerBody[holt.ServiceSpec]{api.OneComputer{computer}, api.Keyed{key}, spec})
}

// List returns the services of a computer by name.
func (n Services) List(ctx context.Context, computer string) ([]holt.Service, error) {
	return doList(ctx, n.c, api.ListServices, api.ComputerList{OneComputer: api.OneComputer{computer}})
}

// Get returns a service.
func (n Services) Get(ctx context.Context, computer, name string) (holt.Service, error) {
	return do(ctx, n.c, api.GetService, api.OneService{api.OneComputer{computer}, name})
}

// Do starts, stops, restarts or deletes (verb) a service, and returns it.
func (n Services) Do(ctx context.Context, computer, name, verb, key string) (holt.Service, error) {
	e, ok := api.ServiceVerbs[verb]
	if !ok {
		return holt.Service{}, holt.Errorf(holt.InvalidArgument, "unknown verb %q", verb).WithHint("use start, stop, restart or delete")
	}
	return do(ctx, n.c, e, api.ServiceKeyed{api.OneService{api.OneComputer{computer}, name}, api.Keyed{key}})
}

// Logs writes what a service has logged to w.
func (n Services) Logs(ctx context.Context, computer, name string, q holt.ServiceLogQuery, w io.Writer) error {
	return n.c.copyTo(ctx, callOf(api.ServiceLogs, api.ServiceLog{api.OneService{api.OneComputer{computer}, name}, max(0, q.Lines), q.Follow}), w)
}
