// Package preview is the door through which browsers and programs reach ports of computers by host name,
// PORT-COMPUTER.DOMAIN, and the TLS of the daemon's TCP listeners. It is not a policy: who may have a preview, and
// make links to one, is asked of the nouns with the actor of the call. It does not know the API.
//
// Form: a request's Host names a computer and a port ([Host]), or is a domain that was added. It is let in by an API
// token, by the token of a link (a header, or the cookie that opening the link leaves), or since the preview is
// public; then its computer is woken, and it goes through a connection of the guest agent's to that port, and
// nowhere else. A link's token is an HMAC, with a key of the data directory, over computer, port, a serial of the
// preview's row, its end and the API token that made it: none is stored, and with the row all of them end.
//
// Lock order: [streams] and [waker] have one lock each, under which nothing else is taken.
//
// Traps: a stream is entered before it is looked up whether it may come, so that who takes a right away finds it.
// Connections of the pool are no uses of a computer ([Ports].Reach); each request marks its own. What a client
// sends that speaks for us (X-Forwarded-…, also with underscores) never reaches the guest, nor do our cookie and
// tokens, and the guest's answer sets no cookie for another host. A query is never logged: it may hold a link's token.
package preview
