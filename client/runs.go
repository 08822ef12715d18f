package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Runs are commands in computers.
type Runs struct{ c *Client }

// Start starts a command and returns without waiting for it.
func (n Runs) Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error) {
	return do(ctx, n.c, api.StartRun, api.ComputerBody[holt.RunSpec]{api.OneComputer{computer}, api.Keyed{key}, spec})
}

// Get returns a run.
func (n Runs) Get(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return do(ctx, n.c, api.GetRun, api.OneRun{string(id)})
}

// List returns up to limit (at most 1000) runs of a computer, or of all with "",
// newest first, beginning after the run with the given id ("": with the newest).
func (n Runs) List(ctx context.Context, computer string, after holt.RunID, limit int) ([]holt.Run, error) {
	paging := api.Paging{Limit: limit, Cursor: string(after)}
	if computer == "" {
		page, err := do(ctx, n.c, api.ListAllRuns, paging)
		return page.Items, err
	}
	page, err := do(ctx, n.c, api.ListRuns, api.ComputerList{api.OneComputer{computer}, paging})
	return page.Items, err
}

// Signal sends a signal, as SIGTERM, to all processes of the run.
func (n Runs) Signal(ctx context.Context, id holt.RunID, signal, key string) error {
	return doNone(ctx, n.c, api.SignalRun, api.RunSignal{api.OneRun{string(id)}, api.Keyed{key}, holt.SignalSpec{Signal: signal}})
}

// Receipt says what a run changed in its computer's workspace.
func (n Runs) Receipt(ctx context.Context, id holt.RunID) (holt.Receipt, error) {
	return do(ctx, n.c, api.GetReceipt, api.OneRun{string(id)})
}
