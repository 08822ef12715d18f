package holt

// Egress says what a computer reaches outside of itself.
type Egress string

const (
	EgressOpen  Egress = "open"  // the internet, and what Allow names
	EgressAllow Egress = "allow" // what Allow names
	EgressOff   Egress = "off"   // nothing but holt.internal
)

// NetworkPolicy is what a computer may reach. Whatever it says, the host's own addresses, private
// networks and a cloud's metadata addresses are out of reach unless Allow names their network: a name
// does not do, since whoever owns it can have it stand for any address.
type NetworkPolicy struct {
	Egress Egress `json:"egress" enum:"open,allow,off"`
	// Allow holds domains (example.com, *.example.com for all below it), IPv4 addresses and networks
	// (192.0.2.0/24), each with a port behind a colon or for all ports. The port of a service on the
	// host's loopback is host.holt.internal:PORT.
	Allow []string `json:"allow,omitempty" maxItems:"256"`
}

// Traffic is what went to and from one destination.
type Traffic struct {
	Destination string `json:"destination"` // a domain that the computer asked for, or an address; "": all others
	Sent        int64  `json:"sent"`        // bytes of payload
	Received    int64  `json:"received"`    // bytes of payload
	Connections int64  `json:"connections"` // and flows of datagrams, that were opened
	Open        int64  `json:"open"`        // of them, now
	Refused     int64  `json:"refused"`     // by the policy
}

// HostSecret is a secret that a computer's proxy (proxy.holt.internal:3128) adds to its requests to one
// host, so that it never enters the computer.
type HostSecret struct {
	Host string `json:"host"` // its exact name, with :PORT or at the usual one
	// Header is set to Value; if it is empty, Authorization is to "Bearer " and Value.
	Header string `json:"header,omitempty"`
	// Placeholder is what Value takes the place of, in Header or in all headers: the computer sends it.
	Placeholder string `json:"placeholder,omitempty"`
	Value       string `json:"value"`
	Plain       bool   `json:"plain,omitempty"` // also over http://, where all between see it
}
