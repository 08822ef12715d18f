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

// atOnce is how many events a follower takes under the lock.
const atOnce = 256

// Feed is the last events, in memory. The zero Feed is empty and ready.
type Feed struct {
	Kept int // how many; 0: [holt.EventsKept]

	mu   sync.Mutex
	ring []numbered    // oldest first
	last int64         // the number of the last one that there ever was
	gone int64         // all up to this one are not kept
	news chan struct{} // closed when there are more; nil: nobody waits
}

type numbered struct {
	n int64
	holt.Event
}

// Add numbers an event and tells it. Its ID and, if it is zero, At are set.
func (f *Feed) Add(e holt.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	f.add(f.last+1, e)
	f.tell()
}

// add puts one at the end; mu is held.
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

// tell wakes whoever waits; mu is held.
func (f *Feed) tell() {
	if f.news != nil {
		close(f.news)
		f.news = nil
	}
}

// Follow calls emit with a ready event, and then with every event that q asks for and the caller may see, in
// order. If what happened since q.After is not kept the first is a reset in place of ready, and the others are those from now on.
// It returns nil at the end of what is over unless q.Follow, and otherwise emit's error or ctx's.
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

// begin says where a follower begins, and what it is told first.
func (f *Feed) begin(q holt.EventQuery) (first holt.Event, at int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := holt.EventReady
	switch {
	case q.After != "":
		at, err = strconv.ParseInt(q.After, 10, 64)
		if err != nil || at < 0 || q.After[0] == '+' {
			return first, 0, holt.Errorf(holt.InvalidArgument, "%q is not the id of an event", holt.Clip(q.After, 80)).WithHint("give the id of an event that was received")
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

// after returns the next events after one, or what is closed when there are some. behind: not all of them are kept.
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

// filter is what a follower wants, and may see.
type filter struct {
	all      bool // the daemon's own work
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
			return filter{}, holt.Errorf(holt.InvalidArgument, "there are no events of kind %q", holt.Clip(k, 80)).
				WithHint("kinds are computer, run, terminal, snapshot, workspace, checkpoint, job, schedule and firing, or one as computer.state")
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
