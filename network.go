package holt

// Egress is the mode of a network policy.
type Egress string

const (
	EgressOpen  Egress = "open"  // the internet, and destinations in Allow
	EgressAllow Egress = "allow" // only destinations in Allow
	EgressOff   Egress = "off"   // nothing but holt.internal
)

// NetworkPolicy controls what a computer may reach. The host's own addresses, private networks and
// cloud metadata addresses are always blocked, unless Allow lists their address or network. A host name
// is not enough, because its owner can point it to any address.
type NetworkPolicy struct {
	Egress Egress `json:"egress" enum:"open,allow,off"`
	// Allow holds domains (example.com, *.example.com for all below it), IPv4 addresses and networks
	// (192.0.2.0/24), each with a port behind a colon or for all ports. The port of a service on the
	// host's loopback is host.holt.internal:PORT.
	Allow []string `json:"allow,omitempty" maxItems:"256"`
}

// Traffic counts the traffic with one destination.
type Traffic struct {
	Destination string `json:"destination"` // a domain that the computer resolved, or an address; "": all others
	Sent        int64  `json:"sent"`        // bytes of payload
	Received    int64  `json:"received"`    // bytes of payload
	Connections int64  `json:"connections"` // opened connections and datagram flows
	Open        int64  `json:"open"`        // open now
	Refused     int64  `json:"refused"`     // refused by the policy
}

// HostSecret is a secret that a computer's proxy (proxy.holt.internal:3128) adds to requests to one host.
// It never enters the computer.
type HostSecret struct {
	Host string `json:"host"` // exact host name, optionally with :PORT
	// Header is set to Value. If it is empty, Authorization is set to "Bearer " and Value.
	Header string `json:"header,omitempty"`
	// Placeholder is text in the computer's request that Value replaces, in Header or in all headers.
	Placeholder string `json:"placeholder,omitempty"`
	Value       string `json:"value"`
	Plain       bool   `json:"plain,omitempty"` // also for http://, unencrypted
}
