package holt

import "time"

// TicketLife is the lifetime of a ticket.
const TicketLife = 30 * time.Second

// TicketSpec describes a ticket to create.
type TicketSpec struct {
	Path   string `json:"path" maxLength:"2048" doc:"path of the WebSocket from /v1/ on, with its complete query; no parameters can be added later"`
	Origin string `json:"origin,omitempty" maxLength:"255" doc:"origin of the page that will connect, such as https://app.example, if it is not this server; default: a page of this server, or a program"`
}

// Ticket allows its holder to open one WebSocket, once, with the rights of its creator. It is for
// browsers, which cannot send headers with a WebSocket.
type Ticket struct {
	Protocol  string    `json:"protocol" doc:"offer it as second subprotocol after holt; the server selects holt: new WebSocket(url, ['holt', protocol])"`
	ExpiresAt time.Time `json:"expires_at"`
}
