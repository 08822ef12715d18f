// Package preview is the door for previews: browsers and programs reach ports of computers by host name,
// PORT-COMPUTER.DOMAIN. It also configures the TLS of the daemon's TCP listeners. It does not decide who may make
// previews and links: that is checked with the actor of the call. It does not know the API.
//
// A request's Host names a computer and a port ([Host]), or is an added domain. The request is admitted by an API
// token, by the token of a link (in a header, or in the cookie that the link sets), or because the preview is
// public. Then the computer is woken, and the request is forwarded to that port through the guest agent.
//
// The host artifacts.DOMAIN has the links to artifacts, /ID-SECRET/FILE ([Links]): bytes that a hostile computer may have made, at
// an origin that has nothing else and where no script runs.
//
// Format: a link's token is an HMAC with a key in the data directory, over the computer, the port, the serial of the
// preview's row, its expiry and the API token that made it. Tokens are not stored. They become invalid when
// the row is deleted.
//
// Lock order: [streams] and [waker] have one lock each. No lock is taken while another is held.
//
// Traps: a request is added to the streams before it is admitted, so that a concurrent withdrawal of the right ends it.
// Connections of the pool do not count as uses of a computer ([Ports].Reach); each request marks its own use. Headers
// of a client that only a proxy may set (X-Forwarded-…, also with underscores), and holt's cookie and tokens, never
// reach the guest. The guest's answer sets no cookie for another host. Queries are never logged, since they can have a
// link's token, and neither are paths of links to artifacts, which have their secret.
package preview
