// Package netstack is the network of one computer: a TCP/IP stack in user space at the other end of
// the machine's only Ethernet link. Connections and datagrams of the guest end here; what its policy
// lets pass is opened again from the host, by a socket of this process. The host needs no interface,
// no route and no privilege for it, and machines with the same address stand side by side.
//
// It is no router: nothing of the guest's packets goes out but their payload, so there is no spoofed
// source, no fragment and no odd flag to get past a filter with. It is no firewall of what comes in
// either: nobody outside reaches a guest through it.
//
// The link is a stream of frames, each behind its length (4 bytes, big endian), as QEMU's netdev
// "stream" speaks it. Frames that are not ARP for, or IPv4 to, somebody here from the guest's own
// address are dropped before the stack sees them.
//
// Names are resolved here as well ([Policy]): a guest that may reach a domain reaches the addresses
// that this resolver gave it for that, and no address is given that the policy refuses whatever its
// name, so that a name which is bound to an inner address (DNS rebinding) leads nowhere.
//
// Bounds, since the guest is hostile: [maxFlows] connections, as many flows of datagrams, buffers of
// [maxBuffer] bytes a side, [maxNames] names, [maxDestinations] counters.
//
// Lock order: none is held while another is taken.
package netstack
