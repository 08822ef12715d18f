package computer

import (
	"context"
	"sync"

	"holt"
)

// preemption lets who waits for the snapshot of a template end the boot in the background that makes the
// same: its machine gets only what the host has to spare.
type preemption struct {
	mu     sync.Mutex
	wanted map[string]int // by key: how many wait for it
	key    string         // of the boot in the background
	cancel context.CancelCauseFunc
}

// errPreempted is of a boot in the background, which says nothing of its template.
var errPreempted = holt.Errorf(holt.Unavailable, "the boot was cancelled: a caller boots the same template")

// want ends the boot of a key in the background, and lets none begin until done is called.
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

// background begins the one boot that nobody waits for; its context ends when somebody does.
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
