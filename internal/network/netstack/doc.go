// Package netstack is the network of one computer: a TCP/IP stack in user space at the other end of
// the machine's only Ethernet link. Connections and datagrams of the guest end here; what its policy
// lets pass is opened again from the host, by a socket of this process. The host needs no interface,
// no route and no privilege for it, and machines with the same address stand side by side.
//
// It is no router: nothing of the guest's packets goes out but their payload and their time to live, so there is no spoofed
// source, no fragment and no odd flag to get past a filter with. It is no firewall of what comes in
// either: nobody outside reaches a guest through it. docs/design/network.md says what is held.
//
// The link is a stream of frames, each behind its length (4 bytes, big endian), as QEMU's netdev
// "stream" speaks it. Frames that are not ARP, or IPv4 from the guest's own address, are dropped
// before the stack sees them.
//
// Names are resolved here as well ([Policy]): a guest that may reach a domain reaches the addresses
// that this resolver gave it for that, and no address is given that the policy refuses whatever its
// name, so that a name which is bound to an inner address (DNS rebinding) leads nowhere. Names of the network
// that the host is in are not told (private.go). Where an
// address may be reached only for a name, what is said first on a connection counts too (hear.go):
// TLS must ask for a name that is allowed, each request of HTTP must be to one. What was opened for a name goes on
// when the name does not count for new connections any more; names are kept by who asks ([Stack.Known]).
//
// At the gateway's address are holt.internal ([Options].Internal) and an HTTP proxy, which adds the
// secrets of hosts to requests ([Stack.SetSecrets]), so that the guest never has them. What the proxy
// reaches is what the guest does.
//
// Pings go on by sockets of the host that need no privilege, and the errors of routers come back, about datagrams, too (echo.go,
// icmp.go). Nothing is answered in another's name; what the policy refuses the gateway calls prohibited.
//
// Bounds, since the guest is hostile: [maxFlows] connections in and out, as many flows of datagrams, of
// which the stillest gives way, buffers of [maxBuffer] bytes a side for the first [wideFlows] and
// [fewBuffer] for the others, [maxNames] names, [maxDestinations] counters, of which the least join.
//
// Traps: a listener at 0.0.0.0 of the host is reached by dialing 0.0.0.0, which is no address of an
// interface ([never]). net/http says "Unsolicited response" to the standard logger when a server does
// so: whose process this is sends that nowhere.
//
// Lock order: none is held while another is taken.
package netstack
