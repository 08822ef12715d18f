package access

import (
	"sync"
	"time"
)

// Rate bounds how often something may be done by each of many: so many a second in the long run, and so many
// at once. What it remembers is bounded: when there are too many it forgets those that it can let go, and then
// whichever it meets. A zero PerSecond is no bound.
type Rate struct {
	PerSecond float64
	Burst     float64

	mu   sync.Mutex
	of   map[string]bucket
	now  func() time.Time
	most int // tests: mostBuckets otherwise
}

// bucket is what one has left, and when that was so.
type bucket struct {
	left float64
	at   time.Time
}

// mostBuckets bounds how many are remembered: some 2 MiB.
const mostBuckets = 20_000

// Take takes one of who's, or says how long until there is one.
func (r *Rate) Take(who string) (wait time.Duration) {
	if r == nil || r.PerSecond <= 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.now != nil {
		now = r.now()
	}
	b, known := r.of[who]
	if !known {
		b = bucket{r.Burst, now}
	}
	b.left = min(r.Burst, b.left+now.Sub(b.at).Seconds()*r.PerSecond)
	b.at = now
	if b.left < 1 {
		if known {
			r.of[who] = b
		}
		return time.Duration((1 - b.left) / r.PerSecond * float64(time.Second))
	}
	b.left--
	if !known {
		r.room(now)
	}
	r.of[who] = b
	return 0
}

// room makes room for another. The lock is held.
func (r *Rate) room(now time.Time) {
	most := r.most
	if most == 0 {
		most = mostBuckets
	}
	if r.of == nil {
		r.of = map[string]bucket{}
	}
	if len(r.of) < most {
		return
	}
	for who, b := range r.of {
		if b.left+now.Sub(b.at).Seconds()*r.PerSecond >= r.Burst { // as if it had never come
			delete(r.of, who)
		}
	}
	for who := range r.of {
		if len(r.of) < most {
			return
		}
		delete(r.of, who)
	}
}
