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
	wakesAtOnce  = 4   // computers that are woken at a time
	mostWaiting  = 64  // requests that wait for one computer
	mostWaitAll  = 512 // and for all; half of that for one tenant's, of whose computers one fewer is woken at a time
	pageAfter    = 1500 * time.Millisecond
	freshlyWoken = time.Minute // in which its programs may not listen yet

	// What strangers can do to a computer by coming to a public preview: so much time awake at first, and a third of
	// all time after that. A crawler cannot keep one awake.
	strangersMost  = time.Hour
	strangersShare = 3
	strangersTail  = 10 * time.Minute // that one visit costs at most
	strangersBeat  = time.Minute
)

// waker wakes computers, each once however many ask.
type waker struct {
	mu      sync.Mutex
	going   map[holt.ComputerID]*waking
	waiting int
	allowed map[holt.ComputerID]*allowance
	woke    map[holt.ComputerID]time.Time
	slots   chan struct{}
	tenants map[string]*wakesOf // that have had any
}

// wakesOf are those of a tenant's computers.
type wakesOf struct {
	waiting int
	slots   chan struct{}
}

// of returns those of a tenant; mu is held.
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

// allowance is how long strangers may still have a computer awake.
type allowance struct {
	left             time.Duration
	counted, visited time.Time
}

// visit says whether a stranger's visit may be a use of a computer.
func (w *waker) visit(id holt.ComputerID, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.allowed[id]
	if a == nil {
		a = &allowance{left: strangersMost, counted: now, visited: now.Add(-strangersTail)}
		w.allowed[id] = a
	}
	a.left = min(strangersMost, a.left+now.Sub(a.counted)/strangersShare)
	a.counted = now
	if a.left <= 0 {
		return false
	}
	a.left -= min(strangersTail, now.Sub(a.visited))
	a.visited = now
	return true
}

// freshly says whether a preview has woken a computer just now.
func (w *waker) freshly(id holt.ComputerID, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return now.Sub(w.woke[id]) < freshlyWoken
}

// rouse begins to wake a computer, unless somebody does already. It goes on when its caller leaves.
func (d *Door) rouse(ctx context.Context, c holt.Computer, detail string) (*waking, func(), error) {
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

// errWakes is for who sees the page that waits.
var errWakes = holt.Errorf(holt.Unavailable, "the computer is waking up")

// errResting is for strangers.
var errResting = holt.Errorf(holt.TooMany, "the computer rests").WithHint("its public preview has been visited so much that it may rest now; try again later, or come with a link")

// use has the computer awake and marks a use of it until done is called. A browser that shows a page is not kept
// waiting for long: errWakes is then the answer, and the page asks again.
func (d *Door) use(r *http.Request, s site, v visitor) (done func(), err error) {
	id, detail := s.computer.ID, useOf(r, s)
	counts := v.how != byPublic || d.waker.visit(id, d.store.now())
	if s.computer.State != holt.ComputerRunning {
		if !counts {
			return nil, errResting
		}
		if err := d.await(r, s.computer, v, detail); err != nil {
			return nil, err
		}
	}
	switch {
	case !counts:
		answerOf(r.Context()).idle = true
		return func() {}, nil
	case v.how == byToken || r.Header.Get("Upgrade") != "": // who has a token is asked about each time
		return d.marked(v, v.ctx, id, detail)
	}
	return d.leases.take(leaseKey{id, s.port, v.how}, func() (func(), error) {
		return d.marked(v, d.ctx, id, fmt.Sprintf("preview of port %d", s.port))
	})
}

// marked marks a use until done is called; a stranger's ends before, with the allowance, which is looked at while life goes on.
func (d *Door) marked(v visitor, life context.Context, id holt.ComputerID, detail string) (done func(), err error) {
	_, done, err = d.store.cfg.Computers.Wake(v.ctx, string(id), holt.UseConnection, detail)
	if err == nil && v.how == byPublic {
		done = d.metered(life, id, done)
	}
	return done, err
}

func (d *Door) await(r *http.Request, c holt.Computer, v visitor, detail string) error {
	one, left, err := d.rouse(v.ctx, c, detail)
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

// metered is done of a stranger's use, which ends before the stranger leaves when strangers have had the computer awake for long.
func (d *Door) metered(ctx context.Context, id holt.ComputerID, done func()) func() {
	ctx, cancel := context.WithCancel(ctx)
	beat := time.AfterFunc(strangersBeat, func() {
		tick := time.NewTicker(strangersBeat)
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

// useOf says what a request is, for why-awake.
func useOf(r *http.Request, s site) string {
	what := r.Method
	if upgrade := r.Header.Get("Upgrade"); upgrade != "" {
		what = holt.Clip(upgrade, 32)
	}
	return fmt.Sprintf("preview of port %d: %s %s", s.port, what, holt.Clip(r.URL.Path, 100))
}
