package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"holt"
)

// Runs are commands in computers.
type Runs struct{ c *Client }

// Start starts a command and returns without waiting for it.
func (n Runs) Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (out holt.Run, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", computer, "runs"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Get returns a run.
func (n Runs) Get(ctx context.Context, id holt.RunID) (out holt.Run, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("runs", string(id))}, &out)
	return out, err
}

// List returns up to limit (at most 1000) runs of a computer, or of all with "",
// newest first, beginning after the run with the given id ("": with the newest).
func (n Runs) List(ctx context.Context, computer string, after holt.RunID, limit int) ([]holt.Run, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		query.Set("cursor", string(after))
	}
	path := join("runs")
	if computer != "" {
		path = join("computers", computer, "runs")
	}
	var page holt.Page[holt.Run]
	err := n.c.json(ctx, call{method: http.MethodGet, path: path, query: query}, &page)
	return page.Items, err
}

// Signal sends a signal, as SIGTERM, to all processes of the run.
func (n Runs) Signal(ctx context.Context, id holt.RunID, signal, key string) error {
	return n.c.json(ctx, call{method: http.MethodPost, path: join("runs", string(id), "signal"),
		body: holt.SignalSpec{Signal: signal}, keyed: true, key: key}, nil)
}

// Receipt says what a run changed in its computer's workspace.
func (n Runs) Receipt(ctx context.Context, id holt.RunID) (out holt.Receipt, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("runs", string(id), "receipt")}, &out)
	return out, err
}
