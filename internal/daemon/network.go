package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holt"
	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
	"holt/internal/image"
	"holt/internal/network"
	"holt/internal/network/netstack"
)

// networks opens the networks of machines; nil: machines have none.
func (d *Daemon) networks() *network.Networks {
	if len(d.cfg.Network) == 0 {
		return nil
	}
	d.reach = openReach(d.log, image.PackageHosts)
	d.onClose(closing(d.reach.close))
	return network.New(network.Options{Command: d.cfg.Network, Reach: d.reach.get, Groups: d.groups, Apart: d.apart(), Log: d.log, Own: d.ownOf})
}

// apart reports whether the networks of machines run in jails: with QEMU's machines, or if a jail can be made.
func (d *Daemon) apart() bool {
	ownUser := func(e machine.Engine) bool { return e.Capabilities().OwnUser }
	return slices.ContainsFunc(d.engines.All(), ownUser) ||
		d.engines.Default.Capabilities().OwnNetwork && jail.Check("/bin/true", apart(d.cfg)...) == nil
}

// Own sets the handler of requests that computers make to http://holt.internal/. Until then they get an error.
func (d *Daemon) Own(of func(holt.ComputerID) http.Handler) { d.own.Store(&of) }

// ownOf returns the handler for the computer whose machine is in a directory. A machine of no computer, as one
// that boots a template, gets an error.
func (d *Daemon) ownOf(dir string) http.Handler {
	id, err := holt.ParseComputerID(filepath.Base(dir))
	if err != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { network.Away(w) })
	}
	var mu sync.Mutex
	var handler http.Handler // made at the first request
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

// reach is the addresses of the host's own package sources that a guest could not reach or resolve otherwise,
// as those of a mirror or proxy in the host's network.
type reach struct {
	log    *slog.Logger
	places func() []image.PackageHost
	stale  chan struct{} // has a token when a lookup is due
	known  chan struct{} // closed after the first lookup
	cancel context.CancelFunc
	over   chan struct{}

	mu   sync.Mutex
	at   time.Time
	last []netip.AddrPort
}

// openReach starts the lookups, until close.
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

// get returns the addresses of the last lookup, and starts another if that was long ago.
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

// look looks the addresses up. whole is false if it took too long.
func (r *reach) look(ctx context.Context) (out []netip.AddrPort, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, reachLook)
	defer cancel()
	for _, one := range r.places() {
		all, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", one.Host)
		if err != nil {
			r.log.Debug("look up a package source", "host", one.Host, "err", err)
		}
		for _, ip := range all {
			if ip = ip.Unmap(); netstack.Beside(one.Host, ip) && len(out) < maxReach {
				out = append(out, netip.AddrPortFrom(ip, one.Port))
			}
		}
	}
	return out, ctx.Err() == nil
}
