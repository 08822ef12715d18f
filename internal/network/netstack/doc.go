// Package netstack is the network of one computer: a TCP/IP stack in user space at the other end of
// the machine's only Ethernet link. Connections and datagrams of the guest end here. If its policy
// allows a flow, a socket of this process opens it again from the host. The host needs no interface,
// no route and no privilege for this, and machines can have the same address.
//
// It is not a router: only the payload and the time to live of the guest's packets leave the stack,
// so that spoofed sources, fragments and odd flags cannot pass a filter. It is not a firewall for
// incoming traffic: nothing outside can reach a guest through it. docs/design/network.md has the
// guarantees.
//
// The link is a stream of frames, each preceded by its length (4 bytes, big endian), the protocol of
// QEMU's netdev "stream". Frames other than ARP, and IPv4 from the guest's own address, are dropped
// before the stack sees them.
//
// The package also resolves names ([Policy]). A guest that may reach a domain may reach the addresses
// that this resolver returned for it. The resolver never returns an address that the policy refuses,
// so that DNS rebinding has no effect. It hides the names of the host's own network (private.go).
// If an address is allowed only for a name, the first bytes of a connection are checked too (hear.go):
// TLS must ask for an allowed name, and each HTTP request must be for one. A flow that was opened for
// a name stays open when the name has expired. The caller stores names ([Stack.Known]).
//
// The gateway's address serves holt.internal ([Options].Internal) and an HTTP proxy, which adds host
// secrets to requests ([Stack.SetSecrets]), so that the guest never has them. The proxy can reach only
// what the guest can reach.
//
// Pings are sent by unprivileged ICMP sockets of the host, and ICMP errors of routers, also about
// datagrams, are passed to the guest (echo.go, icmp.go). The stack never answers in the name of
// another host; for a refused packet the gateway sends ICMP "prohibited".
//
// The guest is hostile, so its resources are bounded: [maxFlows] connections in and out; as many
// flows of datagrams, of which the least recently used is closed; buffers of [maxBuffer] bytes a side
// for the first [wideFlows] and [fewBuffer] for the others; [maxNames] names; [maxDestinations]
// counters, of which the smallest are merged.
//
// Traps: a listener at 0.0.0.0 of the host can be reached by dialing 0.0.0.0, which is not an address
// of an interface ([never]). net/http writes "Unsolicited response" to the standard logger; the
// process must discard that.
//
// Lock order: no lock is taken while another is held.
package netstack
