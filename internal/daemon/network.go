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
	"holt/internal/image"
	"holt/internal/network"
	"holt/internal/network/netstack"
)

// networks returns the networks of the daemon's machines; nil: they have none.
func (d *Daemon) networks() *network.Networks {
	if len(d.cfg.Network) == 0 {
		return nil
	}
	d.reach = openReach(d.log, image.PackageHosts)
	return network.New(network.Options{Command: d.cfg.Network, Reach: d.reach.get, Groups: d.groups, Apart: d.engine.Capabilities().OwnUser, Log: d.log, Own: d.ownOf})
}

// Own says who answers computers that speak of themselves at http://holt.internal/; until then nobody does.
func (d *Daemon) Own(of func(holt.ComputerID) http.Handler) { d.own.Store(&of) }

// ownOf returns what answers the computer whose machine is in a directory. Nobody answers a machine that is no
// computer's, as a template's that is booted.
func (d *Daemon) ownOf(dir string) http.Handler {
	id, err := holt.ParseComputerID(filepath.Base(dir))
	if err != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { network.Away(w) })
	}
	var mu sync.Mutex
	var handler http.Handler // made when it is known who answers
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if of := d.own.Load(); handler == nil && of != nil {
			handler = (*of)(id)
		}
		h := handler
		mu.Unlock()
		if h == nil {
			network.Away(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

const (
	reachFresh = 5 * time.Minute
	reachWait  = 2 * time.Second // for who needs it first
	reachLook  = 20 * time.Second
	mostReach  = 64 // addresses
)

// reach is where the host itself gets packages from, as far as that is at addresses which no guest could
// reach otherwise, or has a name which it would not be told: of a mirror or a proxy beside the host.
type reach struct {
	log    *slog.Logger
	places func() []image.PackageHost
	stale  chan struct{} // has a token when it is to be looked up
	known  chan struct{} // closed when it was looked up once
	cancel context.CancelFunc
	over   chan struct{}

	mu   sync.Mutex
	at   time.Time
	last []netip.AddrPort
}

// openReach begins to look it up, until close.
func openReach(log *slog.Logger, places func() []image.PackageHost) *reach {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reach{log: log, places: places, stale: make(chan struct{}, 1), known: make(chan struct{}), cancel: cancel, over: make(chan struct{})}
	go func() {
		defer close(r.over)
		r.run(ctx)
	}()
	r.stale <- struct{}{}
	return r
}

func (r *reach) close() {
	r.cancel()
	<-r.over
}

func (r *reach) run(ctx context.Context) {
	for first := true; ; first = false {
		select {
		case <-r.stale:
		case <-ctx.Done():
			return
		}
		all, whole := r.look(ctx)
		r.mu.Lock()
		if whole || first {
			r.last = all
		}
		r.at = time.Now()
		r.mu.Unlock()
		if first {
			close(r.known)
		}
	}
}

// get returns the addresses as they are known, and has those looked up that were so long ago.
func (r *reach) get(ctx context.Context) []netip.AddrPort {
	wait := time.NewTimer(reachWait)
	defer wait.Stop()
	select {
	case <-r.known:
	case <-wait.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) >= reachFresh {
		select {
		case r.stale <- struct{}{}:
		default:
		}
	}
	return r.last
}

// look looks the addresses up; whole: all has answered in time.
func (r *reach) look(ctx context.Context) (out []netip.AddrPort, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, reachLook)
	defer cancel()
	for _, one := range r.places() {
		all, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", one.Host)
		if err != nil {
			r.log.Debug("look up where packages come from", "host", one.Host, "err", err)
		}
		for _, ip := range all {
			if ip = ip.Unmap(); netstack.Beside(one.Host, ip) && len(out) < mostReach {
				out = append(out, netip.AddrPortFrom(ip, one.Port))
			}
		}
	}
	return out, ctx.Err() == nil
}
