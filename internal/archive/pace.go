package archive

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// pace slows background work down while other processes on this host wait for a
// processor: then it works a quarter of the time. /proc/pressure/cpu says whether
// they wait. Without that file the work rests as long as it works.
type pace struct {
	pressure string // the file; "" for the kernel's

	mu     sync.Mutex
	since  time.Time
	waited time.Duration // the kernel's count at that time
}

const (
	paceTight   = 10          // percent of the time: if processes wait longer, the work is slowed down
	paceRests   = 3           // times as long as the work takes
	paceLongest = time.Second // bounds what one step counts for: the work before it may be long ago
)

// rest returns when the work may continue, or the error of ctx.
func (p *pace) rest(ctx context.Context) error {
	d := p.due(time.Now())
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
	p.waited, _ = p.read()
	return nil
}

// due returns how long to rest after working until now.
func (p *pace) due(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	worked := min(now.Sub(p.since), paceLongest)
	waited, ok := p.read()
	switch {
	case p.since.IsZero(): // the first step
		return 0
	case !ok:
		return worked
	case (waited-p.waited)*100 > worked*paceTight:
		return paceRests * worked
	}
	return 0
}

// read returns for how long processes have waited for a processor since boot.
func (p *pace) read() (time.Duration, bool) {
	file := p.pressure
	if file == "" {
		file = "/proc/pressure/cpu"
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	some, _, _ := strings.Cut(string(b), "\n") // some avg10=… avg60=… avg300=… total=µs
	_, total, _ := strings.Cut(some, "total=")
	n, err := strconv.ParseInt(total, 10, 64)
	return time.Duration(n) * time.Microsecond, err == nil
}
