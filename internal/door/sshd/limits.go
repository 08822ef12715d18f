package sshd

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	handshakeTime = time.Minute // from the start of a connection until it is authenticated
	authTries     = 6           // in a connection, including keys that are only offered
	mostPending   = 64          // connections that are not authenticated, see pendings
	mostPendingOf = 16          // of one address
	mostConns     = 256         // authenticated connections; half of that for one tenant, and half in addition for the person
	mostConnsOf   = 64          // of one caller
	mostChannels  = 256         // of all, with the same halves
	mostOf        = 96          // of one caller
	mostIn        = 64          // of one connection
	mostForwards  = 16          // listeners of one connection

	beat      = 30 * time.Second // between keepalive requests
	silence   = 90 * time.Second // for the answer to one
	idleLimit = 30 * time.Minute // of a connection without channels and listeners

	mostEnv      = 64       // variables of a session
	mostEnvBytes = 32 << 10 // with their names

	// An address may fail failBurst times, and then once every failEvery.
	failBurst     = 20
	failEvery     = 3 * time.Second
	mostAddresses = 4096 // with remembered failures
)

// connSlot is a connection's share of the limits. It is acquired during authentication, since the client can get a
// message only until then.
type connSlot struct {
	tell  func(banner string) error
	leave func()
	full  error
}

// acquire acquires the slot for a caller, or sends the client the reason in a banner.
func (s *connSlot) acquire(g *Gate, who *caller) {
	if s.leave, s.full = g.conns.Enter(who.shares(mostConns, mostConnsOf)...); s.full != nil {
		_ = s.tell("holt: " + plainError(s.full) + "\r\n") // the client may have disconnected
	}
}

// failures limits failed authentications by address.
type failures struct {
	now func() time.Time
	mu  sync.Mutex
	of  map[string]time.Time // when the failures of an address expire
}

// tooMany reports whether an address must wait.
func (f *failures) tooMany(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[address].Sub(f.now()) > failBurst*failEvery
}

// failed counts a failure.
func (f *failures) failed(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if f.of == nil {
		f.of = map[string]time.Time{}
	}
	if len(f.of) >= mostAddresses {
		for a, until := range f.of {
			if !until.After(now) {
				delete(f.of, a)
			}
		}
		if len(f.of) >= mostAddresses { // the failures that expire first are forgotten
			var first string
			for a, until := range f.of {
				if first == "" || until.Before(f.of[first]) {
					first = a
				}
			}
			delete(f.of, first)
		}
	}
	from := f.of[address]
	if from.Before(now) {
		from = now
	}
	f.of[address] = from.Add(failEvery)
}

// versionConn is a connection whose first bytes are remembered. A client that does not speak SSH does not count as a
// failed authentication, since it can be a browser that a page of another site sends here.
type versionConn struct {
	net.Conn
	first []byte // written during the exchange of versions
}

const greeting = "SSH-"

func (c *versionConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if left := len(greeting) - len(c.first); left > 0 {
		c.first = append(c.first, p[:min(n, left)]...)
	}
	return n, err
}

// speaksSSH must be called after the exchange of versions, when first is no longer written.
func (c *versionConn) speaksSSH() bool { return string(c.first) == greeting }

// place returns the key of an address for limits: the address, or a /64 of IPv6.
func place(address string) string {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := ap.Addr().Unmap()
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}
