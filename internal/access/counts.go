package access

import (
	"sync"

	"holt"
)

// Counts counts what callers have.
type Counts struct {
	What string // that is
	mu   sync.Mutex
	of   map[string]int
}

// Share is what several have together.
type Share struct {
	Whose string // " of …", or "" of all
	Most  int
}

// Enter counts one in each of the shares until left is called, or in none: TooMany.
func (c *Counts) Enter(shares ...Share) (left func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range shares {
		if c.of[s.Whose] >= s.Most {
			return nil, holt.Errorf(holt.TooMany, "%d %s%s are open already", s.Most, c.What, s.Whose).WithHint("close some, or try again when some have ended")
		}
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	for _, s := range shares {
		c.of[s.Whose]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range shares {
			if c.of[s.Whose]--; c.of[s.Whose] == 0 {
				delete(c.of, s.Whose)
			}
		}
	}), nil
}

// Open is how many are counted in a share now.
func (c *Counts) Open(whose string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[whose]
}
