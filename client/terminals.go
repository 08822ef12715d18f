package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Terminals are programs on terminals of their own in computers. ref is a
// terminal's id or name.
type Terminals struct{ c *Client }

// Open returns the terminal of the spec's name that runs, or starts one.
func (n Terminals) Open(ctx context.Context, computer string, spec holt.TerminalSpec, key string) (holt.Terminal, error) {
	return do(ctx, n.c, api.OpenTerminal, api.ComputerBody[holt.TerminalSpec]{api.OneComputer{computer}, api.Keyed{key}, spec})
}

// Get returns a terminal.
func (n Terminals) Get(ctx context.Context, computer, ref string) (holt.Terminal, error) {
	return do(ctx, n.c, api.GetTerminal, api.OneTerminal{api.OneComputer{computer}, ref})
}

// List returns the terminals of a computer by name.
func (n Terminals) List(ctx context.Context, computer string) ([]holt.Terminal, error) {
	return doList(ctx, n.c, api.ListTerminals, api.ComputerList{OneComputer: api.OneComputer{computer}})
}

// Signal sends a signal, as SIGINT, to what is in a terminal's foreground;
// SIGKILL ends all its processes.
func (n Terminals) Signal(ctx context.Context, computer, ref, signal, key string) error {
	return doNone(ctx, n.c, api.SignalTerminal, api.TerminalSignal{api.OneTerminal{api.OneComputer{computer}, ref}, api.Keyed{key}, holt.SignalSpec{Signal: signal}})
}

// Close ends a terminal and returns it.
func (n Terminals) Close(ctx context.Context, computer, ref, key string) (holt.Terminal, error) {
	return do(ctx, n.c, api.CloseTerminal, api.TerminalKeyed{api.OneTerminal{api.OneComputer{computer}, ref}, api.Keyed{key}})
}
