package chunk

import (
	"context"
	"sync"
	"time"

	"holt"
)

// Fault is a [Store] for tests: it makes calls of the underlying store slow, failing or wrong.
type Fault struct {
	Under Store

	mu   sync.Mutex
	hook func(call, name string) Failure
}

// Failure is what happens to one call. The zero value: the call succeeds.
type Failure struct {
	Err   error         // the call fails
	Late  bool          // with Err: the call takes effect first
	Wait  time.Duration // delay before the call; ends early with the context
	Hang  bool          // the call blocks until its context ends
	Wrong bool          // Get returns wrong bytes
	Short bool          // Get fails because the object is too short
}

// SetHook makes fn decide the failure of each call; nil: calls succeed. Calls
// are put, get, stat, list and delete.
func (f *Fault) SetHook(fn func(call, name string) Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = fn
}

// do runs a call with the failure that the hook returns.
func (f *Fault) do(ctx context.Context, call, name string, fn func() error) (Failure, error) {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook == nil {
		return Failure{}, fn()
	}
	fault := hook(call, name)
	if fault.Wait > 0 || fault.Hang {
		after := time.NewTimer(fault.Wait)
		defer after.Stop()
		ring := after.C
		if fault.Hang {
			ring = nil
		}
		select {
		case <-ring:
		case <-ctx.Done():
			return fault, holt.Errorf(holt.Timeout, "%s %s: %w", call, name, ctx.Err())
		}
	}
	if fault.Err != nil && !fault.Late {
		return fault, fault.Err
	}
	err := fn()
	if fault.Err != nil {
		err = fault.Err
	}
	return fault, err
}

// Put implements [Store].
func (f *Fault) Put(ctx context.Context, name string, b []byte) error {
	_, err := f.do(ctx, "put", name, func() error { return f.Under.Put(ctx, name, b) })
	return err
}

// Get implements [Store].
func (f *Fault) Get(ctx context.Context, name string, p []byte, off int64) error {
	fault, err := f.do(ctx, "get", name, func() error { return f.Under.Get(ctx, name, p, off) })
	if err == nil && fault.Short {
		clear(p[len(p)/2:])
		return errShortObject(name, off+int64(len(p)), off+int64(len(p)/2))
	}
	if err == nil && fault.Wrong && len(p) > 0 {
		p[len(p)/2] ^= 0x10
	}
	return err
}

// Stat implements [Store].
func (f *Fault) Stat(ctx context.Context, name string) (size int64, err error) {
	_, err = f.do(ctx, "stat", name, func() error { size, err = f.Under.Stat(ctx, name); return err })
	return size, err
}

// List implements [Store].
func (f *Fault) List(ctx context.Context, prefix string, fn func(Object) error) error {
	_, err := f.do(ctx, "list", prefix, func() error { return f.Under.List(ctx, prefix, fn) })
	return err
}

// Delete implements [Store].
func (f *Fault) Delete(ctx context.Context, name string) error {
	_, err := f.do(ctx, "delete", name, func() error { return f.Under.Delete(ctx, name) })
	return err
}

var _ = []Store{(*Memory)(nil), (*Dir)(nil), (*Fault)(nil), (*Cache)(nil)}
