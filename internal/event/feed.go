package event

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holt"
)

// atOnce is the number of events that a follower copies under the lock.
const atOnce = 256

// Feed is the newest events in memory. The zero Feed is ready to use.
type Feed struct {
	Kept int // number of events that are kept; 0: [holt.EventsKept]

	mu   sync.Mutex
	ring []numbered    // oldest first
	last int64         // number of the newest event
	gone int64         // number of the newest event that is not kept
	news chan struct{} // closed by the next event; nil: no follower waits
}

type numbered struct {
	n int64
	holt.Event
}

// Add appends an event. It sets the event's ID and, if it is zero, At.
func (f *Feed) Add(e holt.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	f.add(f.last+1, e)
	f.wake()
}

// add appends an event. f.mu is held.
func (f *Feed) add(n int64, e holt.Event) {
	e.ID = strconv.FormatInt(n, 10)
	f.ring, f.last = append(f.ring, numbered{n, e}), n
	kept := f.Kept
	if kept == 0 {
		kept = holt.EventsKept
	}
	if over := len(f.ring) - kept; over > 0 {
		f.gone = f.ring[over-1].n
		f.ring = slices.Delete(f.ring, 0, over)
	}
}

// wake wakes the followers that wait. f.mu is held.
func (f *Feed) wake() {
	if f.news != nil {
		close(f.news)
		f.news = nil
	}
}

// Follow calls emit with a ready event, and then in order with every event that q selects and the caller's tenant
// has. If the events since q.After are not all kept the first event is a reset instead, and only new events follow.
// Without q.Follow it returns nil after the newest event. It returns the error of emit or ctx.
//
// Errors: InvalidArgument.
func (f *Feed) Follow(ctx context.Context, q holt.EventQuery, emit func(holt.Event) error) error {
	want, err := newFilter(ctx, q)
	if err != nil {
		return err
	}
	first, at, err := f.begin(q)
	if err != nil {
		return err
	}
	if err := emit(first); err != nil {
		return err
	}
	for {
		list, news, behind := f.after(at)
		if behind {
			first, at, _ = f.begin(holt.EventQuery{After: strconv.FormatInt(at, 10), Follow: true})
			if err := emit(first); err != nil {
				return err
			}
			continue
		}
		for _, e := range list {
			at = e.n
			if want.takes(e.Event) {
				if err := emit(e.Event); err != nil {
					return err
				}
			}
		}
		if len(list) > 0 {
			continue
		}
		if !q.Follow {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin returns the first event for a follower, and the number of the event after which it starts.
func (f *Feed) begin(q holt.EventQuery) (first holt.Event, at int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := holt.EventReady
	switch {
	case q.After != "":
		at, err = strconv.ParseInt(q.After, 10, 64)
		if err != nil || at < 0 || q.After[0] == '+' {
			return first, 0, holt.Errorf(holt.InvalidArgument, "invalid event id %q", holt.Clip(q.After, 80)).WithHint("give the id of an event from this stream")
		}
		if at < f.gone || at > f.last {
			kind, at = holt.EventReset, f.last
		}
	case q.Follow:
		at = f.last
	default:
		at = f.gone
	}
	return holt.Event{ID: strconv.FormatInt(at, 10), At: time.Now().UTC(), Kind: kind}, at, nil
}

// after returns the next events after number at, or a channel that the next event closes. behind: some are no longer kept.
func (f *Feed) after(at int64) (list []numbered, news <-chan struct{}, behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at < f.gone {
		return nil, nil, true
	}
	i, _ := slices.BinarySearchFunc(f.ring, at+1, func(e numbered, n int64) int { return int(min(1, max(-1, e.n-n))) })
	if i < len(f.ring) {
		return slices.Clone(f.ring[i:min(len(f.ring), i+atOnce)]), nil, false
	}
	if f.news == nil {
		f.news = make(chan struct{})
	}
	return nil, f.news, false
}

// filter selects the events of a follower by its query and its tenant.
type filter struct {
	all      bool // of every tenant
	tenant   string
	kinds    []string
	computer string
}

func newFilter(ctx context.Context, q holt.EventQuery) (filter, error) {
	in := holt.Confined(ctx)
	for _, k := range q.Kinds {
		known := slices.ContainsFunc(holt.EventKinds, func(kind holt.EventKind) bool {
			noun, _, dotted := strings.Cut(string(kind), ".")
			return string(kind) == k || dotted && noun == k
		})
		if !known {
			return filter{}, holt.Errorf(holt.InvalidArgument, "unknown event kind %q", holt.Clip(k, 80)).
				WithHint("give computer, run, terminal, snapshot, workspace, checkpoint, job, schedule or firing, or a single kind such as computer.state")
		}
	}
	return filter{all: in == "", tenant: in, kinds: q.Kinds, computer: q.Computer}, nil
}

func (w filter) takes(e holt.Event) bool {
	if !w.all && e.Tenant != w.tenant {
		return false
	}
	if w.computer != "" && string(e.Computer) != w.computer && e.ComputerName != w.computer {
		return false
	}
	noun, _, _ := strings.Cut(string(e.Kind), ".")
	return len(w.kinds) == 0 || slices.Contains(w.kinds, string(e.Kind)) || slices.Contains(w.kinds, noun)
}
