package access

import (
	"sync"

	"holt"
)

// Counts limits the number of open calls or connections in each of several shares.
type Counts struct {
	What string // the plural that errors use, such as "calls"
	mu   sync.Mutex
	of   map[string]int
}

// Share is a limit that several callers have together.
type Share struct {
	Of   string // " of …" in errors, and the key of the count; "": all
	Most int
}

// Enter counts one in each of the shares until left is called. If one share is full it counts in none and returns TooMany.
func (c *Counts) Enter(shares ...Share) (left func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range shares {
		if c.of[s.Of] >= s.Most {
			return nil, holt.Errorf(holt.TooMany, "%d %s%s are open already", s.Most, c.What, s.Of).WithHint("close some, or try again later")
		}
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	for _, s := range shares {
		c.of[s.Of]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range shares {
			if c.of[s.Of]--; c.of[s.Of] == 0 {
				delete(c.of, s.Of)
			}
		}
	}), nil
}

// Open returns the count of a share.
func (c *Counts) Open(whose string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[whose]
}
