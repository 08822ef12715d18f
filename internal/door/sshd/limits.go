package sshd

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	handshakeTime = time.Minute // from a connection's first byte until it is authenticated
	authTries     = 6           // in a connection, keys that are only offered included
	mostPending   = 64          // connections that are not authenticated, see pendings
	mostPendingOf = 16          // of one address
	mostConns     = 256         // authenticated connections; half of them of one tenant, and as many of the person besides
	mostConnsOf   = 64          // of one caller
	mostChannels  = 256         // of all, likewise
	mostOf        = 96          // of one caller
	mostIn        = 64          // of one connection
	mostForwards  = 16          // listeners of one connection

	beat      = 30 * time.Second // between looks whether the client is there
	silence   = 90 * time.Second // for an answer to that
	idleLimit = 30 * time.Minute // of a connection without channels and listeners

	mostEnv      = 64       // variables of a session
	mostEnvBytes = 32 << 10 // with their names

	// An address may fail failBurst times, and then once in failEvery.
	failBurst     = 20
	failEvery     = 3 * time.Second
	mostAddresses = 4096 // whose failures are remembered
)

// seat is the place of a connection among all. It is taken while a client authenticates: after that it could not be told
// why there is none.
type seat struct {
	tell  func(banner string) error
	leave func()
	full  error
}

// take takes the place for a caller, or tells the client why not.
func (s *seat) take(g *Gate, who *caller) {
	if s.leave, s.full = g.conns.Enter(who.shares(mostConns, mostConnsOf)...); s.full != nil {
		_ = s.tell("holt: " + plainError(s.full) + "\r\n") // who has gone need not hear it
	}
}

// failures remembers which addresses have failed to authenticate of late.
type failures struct {
	now func() time.Time
	mu  sync.Mutex
	of  map[string]time.Time // until when all that an address did is forgiven
}

// tooMany says whether an address has to wait.
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
		if len(f.of) >= mostAddresses { // all of them are at it: the one that would be forgiven first is
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

// greeted is a connection whose first bytes are remembered. Who does not speak SSH tries no credential and costs nothing, and may
// be a page of another site in the browser of somebody who does: that is no failure of the address.
type greeted struct {
	net.Conn
	first []byte // added to while versions are exchanged
}

const greeting = "SSH-"

func (c *greeted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if left := len(greeting) - len(c.first); left > 0 {
		c.first = append(c.first, p[:min(n, left)]...)
	}
	return n, err
}

// speaksSSH may be called when the exchange of versions is over: nothing is added to first after it.
func (c *greeted) speaksSSH() bool { return string(c.first) == greeting }

// place is what stands for an address where failures are counted: of IPv6 the network of a site.
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
