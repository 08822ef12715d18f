package client

import (
	"context"
	"net/http"

	"holt"
)

// Ticket makes a ticket for one WebSocket, for a browser to open it.
func (c *Client) Ticket(ctx context.Context, spec holt.TicketSpec) (out holt.Ticket, err error) {
	err = c.json(ctx, call{method: http.MethodPost, path: join("tickets"), body: spec}, &out)
	return out, err
}
