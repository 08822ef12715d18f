package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"holt"
)

// Services are programs that computers keep running.
type Services struct{ c *Client }

func servicePath(computer, name string, more ...string) string {
	return join(append([]string{"computers", computer, "services", name}, more...)...)
}

// Add has a computer keep a program running, and starts it; it does not wait until that is ready.
func (n Services) Add(ctx context.Context, computer string, spec holt.ServiceSpec, key string) (out holt.Service, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", computer, "services"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// List returns the services of a computer by name.
func (n Services) List(ctx context.Context, computer string) ([]holt.Service, error) {
	return list[holt.Service](ctx, n.c, join("computers", computer, "services"), nil)
}

// Get returns a service.
func (n Services) Get(ctx context.Context, computer, name string) (out holt.Service, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: servicePath(computer, name)}, &out)
	return out, err
}

// Do starts, stops, restarts or deletes (verb) a service, and returns it.
func (n Services) Do(ctx context.Context, computer, name, verb, key string) (out holt.Service, err error) {
	k := call{method: http.MethodPost, path: servicePath(computer, name, verb), keyed: true, key: key}
	if verb == "delete" {
		k.method, k.path = http.MethodDelete, servicePath(computer, name)
	}
	err = n.c.json(ctx, k, &out)
	return out, err
}

// Logs writes what a service has logged to w.
func (n Services) Logs(ctx context.Context, computer, name string, q holt.ServiceLogQuery, w io.Writer) error {
	query := url.Values{}
	if q.Lines > 0 {
		query.Set("lines", strconv.Itoa(q.Lines))
	}
	if q.Follow {
		query.Set("follow", "true")
	}
	return n.c.copyTo(ctx, call{method: http.MethodGet, path: servicePath(computer, name, "logs"), query: query}, w)
}
