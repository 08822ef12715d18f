package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Ticket makes a ticket for one WebSocket, for a browser to open it.
func (c *Client) Ticket(ctx context.Context, spec holt.TicketSpec) (holt.Ticket, error) {
	return do(ctx, c, api.CreateTicket, api.TicketFor{spec})
}
