package client

import (
	"context"
	"net/http"

	"holt"
)

// Terminals are programs on terminals of their own in computers. ref is a
// terminal's id or name.
type Terminals struct{ c *Client }

func terminalPath(computer, ref string, more ...string) string {
	return join(append([]string{"computers", computer, "terminals", ref}, more...)...)
}

// Open returns the terminal of the spec's name that runs, or starts one.
func (n Terminals) Open(ctx context.Context, computer string, spec holt.TerminalSpec, key string) (out holt.Terminal, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", computer, "terminals"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Get returns a terminal.
func (n Terminals) Get(ctx context.Context, computer, ref string) (out holt.Terminal, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: terminalPath(computer, ref)}, &out)
	return out, err
}

// List returns the terminals of a computer by name.
func (n Terminals) List(ctx context.Context, computer string) ([]holt.Terminal, error) {
	return list[holt.Terminal](ctx, n.c, join("computers", computer, "terminals"), nil)
}

// Signal sends a signal, as SIGINT, to what is in a terminal's foreground;
// SIGKILL ends all its processes.
func (n Terminals) Signal(ctx context.Context, computer, ref, signal, key string) error {
	return n.c.json(ctx, call{method: http.MethodPost, path: terminalPath(computer, ref, "signal"),
		body: holt.SignalSpec{Signal: signal}, keyed: true, key: key}, nil)
}

// Close ends a terminal and returns it.
func (n Terminals) Close(ctx context.Context, computer, ref, key string) (out holt.Terminal, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: terminalPath(computer, ref, "close"), keyed: true, key: key}, &out)
	return out, err
}
