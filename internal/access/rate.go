package access

import (
	"sync"
	"time"
)

// Rate limits the rate of calls of each of many callers by a token bucket. It keeps a bounded number of buckets: if
// there are more callers it discards full buckets, and then arbitrary ones. A zero PerSecond is no limit.
type Rate struct {
	PerSecond float64
	Burst     float64

	mu   sync.Mutex
	of   map[string]bucket
	now  func() time.Time
	most int // tests: mostBuckets otherwise
}

type bucket struct {
	left float64 // at the time at
	at   time.Time
}

// mostBuckets buckets take about 2 MiB.
const mostBuckets = 20_000

// Take takes one call of who's bucket. If that is empty it returns the time until it has one.
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

// room makes room for another bucket. r.mu is held.
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
		if b.left+now.Sub(b.at).Seconds()*r.PerSecond >= r.Burst { // full: the same as no bucket
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
