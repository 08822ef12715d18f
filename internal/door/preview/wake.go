package preview

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"holt"
)

const (
	wakesAtOnce = 4   // computers that are woken at a time
	mostWaiting = 64  // requests that wait for one computer
	mostWaitAll = 512 // and for all; half of that for one tenant, which wakes at most wakesAtOnce-1 at a time
	pageAfter   = 1500 * time.Millisecond
	recentWake  = time.Minute // after a wake, in which programs may not listen yet

	// Public visits can keep a computer awake for publicMost, and for 1/publicShare of the time after that, so that a
	// crawler cannot keep it awake.
	publicMost  = time.Hour
	publicShare = 3
	publicVisit = 10 * time.Minute // the most that one visit costs
	publicTick  = time.Minute
)

// waker wakes computers, each once for all requests that wait for it.
type waker struct {
	mu      sync.Mutex
	going   map[holt.ComputerID]*waking
	waiting int
	allowed map[holt.ComputerID]*allowance
	woke    map[holt.ComputerID]time.Time
	slots   chan struct{}
	tenants map[string]*wakesOf
}

// wakesOf limits the wakes of a tenant's computers.
type wakesOf struct {
	waiting int
	slots   chan struct{}
}

// of returns the wakes of a tenant. w.mu is held.
func (w *waker) of(tenant string) *wakesOf {
	if w.tenants[tenant] == nil {
		w.tenants[tenant] = &wakesOf{slots: make(chan struct{}, wakesAtOnce-1)}
	}
	return w.tenants[tenant]
}

type waking struct {
	waiting int
	done    chan struct{}
	err     error
}

func newWaker() waker {
	return waker{going: map[holt.ComputerID]*waking{}, allowed: map[holt.ComputerID]*allowance{}, woke: map[holt.ComputerID]time.Time{}, slots: make(chan struct{}, wakesAtOnce), tenants: map[string]*wakesOf{}}
}

// allowance is how long public visits may still keep a computer awake.
type allowance struct {
	left             time.Duration
	counted, visited time.Time
}

// visit reports whether a public visit counts as a use of a computer.
func (w *waker) visit(id holt.ComputerID, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.allowed[id]
	if a == nil {
		a = &allowance{left: publicMost, counted: now, visited: now.Add(-publicVisit)}
		w.allowed[id] = a
	}
	a.left = min(publicMost, a.left+now.Sub(a.counted)/publicShare)
	a.counted = now
	if a.left <= 0 {
		return false
	}
	a.left -= min(publicVisit, now.Sub(a.visited))
	a.visited = now
	return true
}

// recentlyWoken reports whether a preview has woken a computer within recentWake.
func (w *waker) recentlyWoken(id holt.ComputerID, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return now.Sub(w.woke[id]) < recentWake
}

// startWake starts to wake a computer, unless that is in progress. The wake continues if the caller leaves, which calls the
// returned function.
func (d *Door) startWake(ctx context.Context, c holt.Computer, detail string) (*waking, func(), error) {
	id, w := c.ID, &d.waker
	w.mu.Lock()
	defer w.mu.Unlock()
	one, tenant := w.going[id], w.of(tenantOf(c))
	if w.waiting >= mostWaitAll || tenant.waiting >= mostWaitAll/2 || one != nil && one.waiting >= mostWaiting {
		return nil, nil, holt.Errorf(holt.TooMany, "too many requests wait for a computer to wake").WithHint("try again in some seconds")
	}
	if one == nil {
		one = &waking{done: make(chan struct{})}
		w.going[id] = one
		d.wg.Go(func() {
			ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			defer context.AfterFunc(d.ctx, cancel)()
			err := d.wake(ctx, id, tenant, detail)
			w.mu.Lock()
			defer w.mu.Unlock()
			if one.err = err; err == nil {
				w.woke[id] = time.Now()
			}
			delete(w.going, id)
			close(one.done)
		})
	}
	one.waiting++
	tenant.waiting++
	w.waiting++
	return one, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		one.waiting--
		tenant.waiting--
		w.waiting--
	}, nil
}

func (d *Door) wake(ctx context.Context, id holt.ComputerID, tenant *wakesOf, detail string) error {
	for _, slots := range []chan struct{}{tenant.slots, d.waker.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, done, err := d.store.cfg.Computers.Wake(ctx, string(id), holt.UseConnection, detail)
	if err == nil {
		done()
	}
	return err
}

// errWakes makes the door answer with the page that waits.
var errWakes = holt.Errorf(holt.Unavailable, "the computer is waking up")

// errPublicLimit is for visitors of a public preview.
var errPublicLimit = holt.Errorf(holt.TooMany, "the computer is not running").WithHint("too many visitors: at present, public previews do not wake this computer; try again later, or use a private link")

// use wakes the computer and marks a use of it until done is called. For a browser that navigates it returns errWakes if
// the wake takes long; the page that is shown then reloads itself.
func (d *Door) use(r *http.Request, s site, v visitor) (done func(), err error) {
	id, detail := s.computer.ID, useOf(r, s)
	counts := v.how != byPublic || d.waker.visit(id, d.store.now())
	if s.computer.State != holt.ComputerRunning {
		if !counts {
			return nil, errPublicLimit
		}
		if err := d.await(r, s.computer, v, detail); err != nil {
			return nil, err
		}
	}
	switch {
	case !counts:
		answerOf(r.Context()).idle = true
		return func() {}, nil
	case v.how == byToken || r.Header.Get("Upgrade") != "": // each use is checked with the token
		return d.marked(v, v.ctx, id, detail)
	}
	return d.leases.take(leaseKey{id, s.port, v.how}, func() (func(), error) {
		return d.marked(v, d.ctx, id, fmt.Sprintf("preview of port %d", s.port))
	})
}

// marked marks a use until done is called. A public use ends earlier if the allowance does, which is checked until life
// ends.
func (d *Door) marked(v visitor, life context.Context, id holt.ComputerID, detail string) (done func(), err error) {
	_, done, err = d.store.cfg.Computers.Wake(v.ctx, string(id), holt.UseConnection, detail)
	if err == nil && v.how == byPublic {
		done = d.metered(life, id, done)
	}
	return done, err
}

func (d *Door) await(r *http.Request, c holt.Computer, v visitor, detail string) error {
	one, left, err := d.startWake(v.ctx, c, detail)
	if err != nil {
		return err
	}
	defer left()
	var page <-chan time.Time
	if wantsPage(r) {
		timer := time.NewTimer(pageAfter)
		defer timer.Stop()
		page = timer.C
	}
	select {
	case <-one.done:
		return one.err
	case <-page:
		return errWakes
	case <-v.ctx.Done():
		return context.Cause(v.ctx)
	}
}

// metered returns the done of a public use, and calls the given done when the allowance is exhausted.
func (d *Door) metered(ctx context.Context, id holt.ComputerID, done func()) func() {
	ctx, cancel := context.WithCancel(ctx)
	beat := time.AfterFunc(publicTick, func() {
		tick := time.NewTicker(publicTick)
		defer tick.Stop()
		for d.waker.visit(id, d.store.now()) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		done()
	})
	return func() { beat.Stop(); cancel(); done() }
}

// useOf describes a request, for why-awake.
func useOf(r *http.Request, s site) string {
	what := r.Method
	if upgrade := r.Header.Get("Upgrade"); upgrade != "" {
		what = holt.Clip(upgrade, 32)
	}
	return fmt.Sprintf("preview of port %d: %s %s", s.port, what, holt.Clip(r.URL.Path, 100))
}
