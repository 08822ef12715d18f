package agent

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"holt"
)

const (
	ringSize = 4 << 20  // maximum bytes of output kept for one run
	ringMin  = 64 << 10 // minimum, however many runs there are
	ringAll  = 64 << 20 // for all running runs together, and again for ended ones
	pieceMax = 32 << 10 // bytes in one piece of output

	pieceCost = 128 // approximate overhead of a piece, bytes
	// How long a full ring waits before output is dropped: without a follower…
	patienceNone = 5 * time.Second
	// …for a follower that has left, and may return over another connection…
	patienceBack = 15 * time.Second
	// …for a follower that left because its host did, whose daemon may be restarting…
	patienceHost = time.Minute
	// …and, for a detached run or one that has ended after a request, for a
	// follower that reads nothing. Other runs wait for such a follower without
	// limit.
	patienceSlow = 30 * time.Second
	longWait     = time.Hour // interval of checks of a ring that waits for a follower
)

// piece is a part of one stream's output. Its data is append-only, so readers
// may keep slices of it.
type piece struct {
	kind   byte // eventStdout or eventStderr
	offset int64
	data   []byte
}

func (p *piece) end() int64 { return p.offset + int64(len(p.data)) }

// output keeps the last bytes that a run wrote, both streams together, at
// absolute offsets. It does not drop bytes that a follower has yet to read: the
// run is blocked instead, as under ssh. Without a follower it drops the oldest
// bytes. A detached run is not blocked for long by a follower that does not
// read.
type output struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each change
	pieces    []*piece
	start     int64 // offset of the first byte kept
	end       int64
	cost      int // memory used: bytes kept, and pieceCost for each piece
	limit     int
	closed    bool
	detached  bool
	followers map[*follower]bool
	dropFrom  time.Time // from this time unread bytes may be dropped
}

// follower is the position of one reader of an output.
type follower struct{ at int64 }

func newOutput(limit int, detached bool, now time.Time) *output {
	return &output{
		changed: make(chan struct{}), limit: limit, detached: detached,
		followers: map[*follower]bool{}, dropFrom: now.Add(patienceNone),
	}
}

func (o *output) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// write appends output of a run. It blocks while the ring is full of bytes that
// a follower has yet to read.
func (o *output) write(kind byte, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(p) > 0 && !o.closed {
		n := min(len(p), pieceMax)
		o.room(n)
		o.append(kind, p[:n])
		p = p[n:]
		o.notify()
	}
}

// room makes room for n bytes. mu is held and may be released temporarily.
func (o *output) room(n int) {
	for o.cost+n+pieceCost > o.limit && len(o.pieces) > 0 {
		if wait := o.mustKeep(time.Now()); wait > 0 {
			changed := o.changed
			o.mu.Unlock()
			select {
			case <-changed:
			case <-time.After(wait):
			}
			o.mu.Lock()
			continue
		}
		o.dropOldest()
	}
}

// mustKeep returns how long the oldest piece must still be kept.
func (o *output) mustKeep(now time.Time) time.Duration {
	wait := o.dropFrom.Sub(now)
	if len(o.followers) == 0 {
		return wait
	}
	for f := range o.followers {
		switch behind := f.at < o.pieces[0].end(); {
		case behind && o.detached:
			return wait
		case behind:
			return longWait
		}
	}
	return 0 // all followers have read it
}

func (o *output) dropOldest() {
	o.cost -= len(o.pieces[0].data) + pieceCost
	o.pieces[0] = nil
	o.pieces = o.pieces[1:]
	o.start = o.end
	if len(o.pieces) > 0 {
		o.start = o.pieces[0].offset
	}
}

func (o *output) append(kind byte, p []byte) {
	if n := len(o.pieces); n > 0 {
		last := o.pieces[n-1]
		if last.kind == kind && len(last.data)+len(p) <= pieceMax {
			last.data = append(last.data, p...)
			o.end += int64(len(p))
			o.cost += len(p)
			return
		}
	}
	o.pieces = append(o.pieces, &piece{kind: kind, offset: o.end, data: append([]byte(nil), p...)})
	o.end += int64(len(p))
	o.cost += len(p) + pieceCost
}

// close marks the end of the output.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.notify()
}

// shrink drops the oldest pieces until at most limit bytes are left, and makes
// limit the new maximum.
func (o *output) shrink(limit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = limit
	for o.closed && o.cost > limit {
		o.dropOldest()
	}
}

// last returns the end of the output, as much as fits into most bytes of
// events, and the offset behind it.
func (o *output) last(most int) (pieces []piece, end int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.pieces) - 1; i >= 0 && most > eventHeader; i-- {
		p := *o.pieces[i]
		cut := max(0, eventHeader+len(p.data)-most)
		p.offset, p.data = p.offset+int64(cut), p.data[cut:]
		most -= eventHeader + len(p.data)
		pieces = append(pieces, p)
	}
	slices.Reverse(pieces)
	return pieces, o.end
}

func (o *output) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cost
}

// follow registers a reader at offset.
func (o *output) follow(offset int64) (*follower, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if offset < 0 || offset > o.end {
		return nil, holt.Errorf(holt.InvalidArgument, "offset %d is not in the run's output of %d bytes", offset, o.end)
	}
	f := &follower{at: offset}
	o.followers[f] = true
	o.dropFrom = time.Now().Add(patienceSlow)
	return f, nil
}

// hurry makes the output wait no longer for an idle follower than a detached run's does.
func (o *output) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.detached {
		o.detached, o.dropFrom = true, time.Now().Add(patienceSlow)
		o.notify()
	}
}

// unfollow removes a reader; the output then waits for its return.
func (o *output) unfollow(f *follower, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.followers, f)
	if o.detached {
		wait = patienceNone
	}
	if len(o.followers) == 0 {
		o.dropFrom = time.Now().Add(wait)
	}
	o.notify()
}

// next returns the output after f: bytes of one stream, or a gap (kind
// eventGap, with the number of lost bytes), or kind 0 at the end of the output.
// It does not advance f.
func (o *output) next(ctx context.Context, f *follower) (kind byte, offset int64, data []byte, lost int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if f.at < o.start {
			return eventGap, f.at, nil, o.start - f.at, nil
		}
		i := sort.Search(len(o.pieces), func(i int) bool { return f.at < o.pieces[i].end() })
		if i < len(o.pieces) {
			p := o.pieces[i]
			return p.kind, f.at, p.data[f.at-p.offset:], 0, nil
		}
		if o.closed {
			return 0, f.at, nil, 0, nil
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
			o.mu.Lock()
		case <-ctx.Done():
			o.mu.Lock()
			return 0, 0, nil, 0, ctx.Err()
		}
	}
}

// advance records that f's reader has received n more bytes.
func (o *output) advance(f *follower, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f.at += n
	o.dropFrom = time.Now().Add(patienceSlow)
	o.notify()
}
