package holt

import "time"

// TicketLife is how long a ticket can be redeemed.
const TicketLife = 30 * time.Second

// TicketSpec says which WebSocket a ticket is for.
type TicketSpec struct {
	Path   string `json:"path" maxLength:"2048" doc:"of the WebSocket, from /v1/ on; with the whole query that the WebSocket will have: what is not in it cannot be added"`
	Origin string `json:"origin,omitempty" maxLength:"255" doc:"of the page that will connect, as https://app.example; it may then be another than this server's. Default: a page of this server, or a program"`
}

// Ticket lets whoever has it open one WebSocket, once, in the name of who made it: for
// browsers, which can send no header with one.
type Ticket struct {
	Protocol  string    `json:"protocol" doc:"to be offered as a subprotocol, behind holt, which is the one that is answered: new WebSocket(url, ['holt', protocol])"`
	ExpiresAt time.Time `json:"expires_at"`
}
