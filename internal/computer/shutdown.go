package computer

import (
	"context"
	"sync"

	"holt"
)

// shutdown counts the verbs at work, so that the store can wait for them when it closes.
type shutdown struct {
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	starting context.Context // ended: no machine may start
	drain    context.CancelCauseFunc
}

func newShutdown(ctx context.Context) *shutdown {
	g := &shutdown{}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.starting, g.drain = context.WithCancelCause(g.ctx)
	return g
}

// enter begins a verb: close ends the returned context and waits until leave is called.
func (g *shutdown) enter(ctx context.Context) (bounded context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, ending()
	}
	g.wg.Add(1)
	bounded, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.ctx, cancel)
	return bounded, func() { stop(); cancel(); g.wg.Done() }, nil
}

// spawn runs work in the background until close.
func (g *shutdown) spawn(work func(context.Context)) {
	ctx, leave, err := g.enter(g.ctx)
	if err != nil {
		return // it is closed
	}
	go func() {
		defer leave()
		work(ctx)
	}()
}

// close ends all verbs and waits for them.
func (g *shutdown) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.wg.Wait()
}

func (g *shutdown) setDrained(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on {
		g.drain(errDrained)
	} else if g.starting.Err() != nil {
		g.starting, g.drain = context.WithCancelCause(g.ctx)
	}
}

// mayStart refuses to start machines while the store is drained.
func (g *shutdown) mayStart() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if context.Cause(g.starting) == errDrained {
		return ending()
	}
	return nil
}

// whileStarting bounds a context to the time in which machines may start; then its cause is
// [errDrained].
func (g *shutdown) whileStarting(ctx context.Context) (bounded context.Context, leave func()) {
	g.mu.Lock()
	starting := g.starting
	g.mu.Unlock()
	bounded, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(starting, func() { cancel(context.Cause(starting)) })
	return bounded, func() { stop(); cancel(nil) }
}

// detach runs a verb that completes even when its caller leaves, unless the store closes.
func detach[T any](ctx context.Context, g *shutdown, verb func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	_, leave, err := g.enter(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	done := make(chan outcome, 1)
	go func() {
		defer leave()
		value, err := verb(holt.ActingFor(g.ctx, ctx))
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var zero T
		return zero, gone(ctx)
	}
}

func ending() error { return errDrained }

var errDrained = holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("try again when it is back")
