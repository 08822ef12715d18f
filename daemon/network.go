package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"holt"
	"holt/image"
	"holt/netstack"
	"holt/network"
)

// networks returns the networks of the daemon's machines; nil: they have none.
func (d *Daemon) networks() *network.Networks {
	if len(d.cfg.Network) == 0 {
		return nil
	}
	r := &reach{log: d.log}
	go r.get(context.Background()) // it is known when the first machine starts
	return network.New(network.Options{Command: d.cfg.Network, Reach: r.get, Groups: d.groups, Log: d.log, Own: func(dir string) http.Handler {
		id := holt.ComputerID(filepath.Base(dir))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.answerOwn(w, r, id) })
	}})
}

// Own says who answers computers that speak of themselves at http://holt.internal/; until then nobody does.
func (d *Daemon) Own(of func(holt.ComputerID) http.Handler) { d.own.Store(&of) }

func (d *Daemon) answerOwn(w http.ResponseWriter, r *http.Request, id holt.ComputerID) {
	of := d.own.Load()
	if of == nil {
		network.Away(w)
		return
	}
	(*of)(id).ServeHTTP(w, r)
}

const (
	reachFresh = 5 * time.Minute
	reachWait  = 2 * time.Second // for the host's resolvers
	mostReach  = 64              // addresses
)

// reach is where the host itself gets packages from, as far as that is at addresses which no guest could
// reach otherwise: of a mirror or a proxy beside the host.
type reach struct {
	log *slog.Logger

	mu   sync.Mutex
	at   time.Time
	last []netip.AddrPort
}

// get returns the addresses. Who does not answer in time keeps those that were known.
func (r *reach) get(ctx context.Context) []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < reachFresh {
		return r.last
	}
	ctx, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	var out []netip.AddrPort
	for _, one := range image.PackageHosts() {
		all, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", one.Host)
		if err != nil {
			r.log.Debug("look up where packages come from", "host", one.Host, "err", err)
		}
		for _, ip := range all {
			if ip = ip.Unmap(); !netstack.Public(ip) && len(out) < mostReach {
				out = append(out, netip.AddrPortFrom(ip, one.Port))
			}
		}
	}
	if ctx.Err() == nil || r.at.IsZero() {
		r.last = out
	}
	r.at = time.Now()
	return r.last
}
