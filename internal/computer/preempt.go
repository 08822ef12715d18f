package computer

import (
	"context"
	"sync"

	"holt"
)

// preemption cancels the background boot of a template when a caller wants the same template: a
// background machine gets only spare resources.
type preemption struct {
	mu     sync.Mutex
	wanted map[string]int // by key: how many wait for it
	key    string         // of the boot in the background
	cancel context.CancelCauseFunc
}

// errPreempted is the error of a cancelled background boot. It says nothing about the template.
var errPreempted = holt.Errorf(holt.Unavailable, "the boot was cancelled: a caller boots the same template")

// want cancels the background boot of a key, and prevents others until done is called.
func (p *preemption) want(key string) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted == nil {
		p.wanted = map[string]int{}
	}
	p.wanted[key]++
	if p.key == key {
		p.cancel(errPreempted)
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.wanted[key]--; p.wanted[key] == 0 {
			delete(p.wanted, key)
		}
	}
}

// background begins the only background boot; its context ends when a caller wants the same.
func (p *preemption) background(ctx context.Context, key string) (bounded context.Context, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bounded, cancel := context.WithCancelCause(ctx)
	if p.wanted[key] > 0 {
		cancel(errPreempted)
	}
	p.key, p.cancel = key, cancel
	return bounded, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.key, p.cancel = "", nil
		cancel(nil)
	}
}
