// Package netstack is the network of one computer: a TCP/IP stack in user space at the other end of
// the machine's only Ethernet link. Connections and datagrams of the guest end here. If the policy
// permits a destination, this process opens a socket of the host to it and copies the payload. The host
// needs no interface, no route and no privilege, and machines can have the same address.
//
// It is not a router: only payload and time to live of the guest's packets leave it, so a guest cannot send
// spoofed sources, fragments or unusual flags. It forwards nothing from outside to a guest.
// docs/design/network.md lists the guarantees.
//
// The link is a stream of frames, each after its length (4 bytes, big endian), the protocol of QEMU's
// netdev "stream". Frames other than ARP, and IPv4 from the guest's own address, are dropped
// before the stack sees them.
//
// The resolver enforces the policy too ([Policy]). A guest that may reach a domain may reach the addresses
// that the resolver returned for it. The resolver returns no address that the policy refuses for every
// name, which prevents DNS rebinding, and no names of the network that the host is in
// (private.go). If an address may be reached only by its name, the first bytes of a connection are
// checked too (sniff.go): the SNI of TLS, or the host of each HTTP request, must be an allowed name. An
// open connection is not interrupted when its name expires. The caller stores names ([Stack.Known]).
//
// The gateway's address serves holt.internal ([Options].Internal) and an HTTP proxy, which adds the
// secrets of hosts to requests ([Stack.SetSecrets]), so that they never enter the guest. The proxy
// enforces the same policy.
//
// Pings are sent from unprivileged ICMP sockets of the host, and ICMP errors of routers are returned to the guest,
// also those about datagrams (echo.go, icmp.go). The stack does not answer in the name of other hosts. For
// refused packets the gateway returns "administratively prohibited".
//
// Limits, since the guest is hostile: [maxFlows] connections in and out; as many flows of datagrams, of
// which the longest idle is ended for a new one; buffers of [maxBuffer] bytes a side for the first [wideFlows] and
// [fewBuffer] for the others; [maxNames] names; [maxDestinations] counters.
//
// Traps: dialing 0.0.0.0 reaches listeners of the host, although it is not an address of an
// interface ([never]). net/http logs "Unsolicited response" to the standard logger, which servers can
// trigger: the caller must discard it.
//
// Lock order: no lock is held while another is taken.
package netstack
