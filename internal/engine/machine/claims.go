package machine

import "sync"

// Claims is the set of machine processes that an engine controls. The zero
// value is empty and ready to use.
type Claims struct {
	mu  sync.Mutex
	set map[Process]bool
}

// Add adds p.
func (c *Claims) Add(p Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == nil {
		c.set = map[Process]bool{}
	}
	c.set[p] = true
}

// Remove removes p.
func (c *Claims) Remove(p Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.set, p)
}

// Has reports whether p is in the set.
func (c *Claims) Has(p Process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set[p]
}
