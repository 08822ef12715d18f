package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"holt"
	"holt/internal/api"
)

// mostAhead is how much of an input is read ahead of what the run has taken,
// and the most that one call carries: many small calls would cost a round trip
// through the guest each.
const mostAhead = 4 << 20

// held tells how a call that waits for a run broke: if it took at least this long, a daemon was there and held it.
const held = 100 * time.Millisecond

// Input copies r to the run's standard input at offset, counted from the
// input's start; a negative offset continues at its current end. At the end of r,
// eof says whether to close the input. It returns the offset of the next call.
// A call that breaks is repeated: what the run has already it does not take
// twice. It returns Conflict when the run has ended or its input is closed.
//
// With wanted it reads nothing of r until a process of the run waits for input.
//
// It may return while a Read of r is still blocked, when ctx ends.
func (n Runs) Input(ctx context.Context, id holt.RunID, offset int64, r io.Reader, eof, wanted bool) (int64, error) {
	if offset < 0 || wanted {
		var err error
		if offset, err = n.put(ctx, id, offset, nil, false, wanted); err != nil {
			return 0, err
		}
	}
	src := newAhead(r)
	defer src.stop()
	for {
		data, end, err := src.next(ctx)
		if err != nil {
			return offset, err
		}
		last := end && eof
		if len(data) > 0 || last {
			if offset, err = n.put(ctx, id, offset, data, last, false); err != nil {
				return offset, err
			}
		}
		if end {
			return offset, nil
		}
	}
}

// put sends one piece of an input, again and again if the connection breaks,
// and returns where the next begins. With a negative offset data must be empty.
func (n Runs) put(ctx context.Context, id holt.RunID, offset int64, data []byte, eof, wanted bool) (int64, error) {
	in := api.RunInput{OneRun: api.OneRun{string(id)}, EOF: eof, Wanted: wanted}
	if offset >= 0 {
		in.Offset = strconv.FormatInt(offset, 10)
	}
	k := callOf(api.WriteRunInput, in)
	var w wait
	for {
		var out api.InputEnd
		k.raw = bytes.NewReader(data)
		began := time.Now()
		err := n.c.once(ctx, k, &out)
		var lost *lostError
		if !errors.As(err, &lost) && holt.CodeOf(err) != holt.Unavailable { // the daemon, or the way into the guest
			return out.Offset, err
		}
		if wanted && (lost == nil || !lost.dial) && time.Since(began) >= held {
			w.since = time.Now() // there was a daemon that waited for the run
		}
		if !n.c.again(ctx, &w, lost) {
			return out.Offset, err
		}
	}
}

// ahead reads a reader ahead of its use.
type ahead struct {
	mu      sync.Mutex
	room    sync.Cond     // on mu: next has taken what was there, or stop
	some    chan struct{} // of one: there is something for next
	buf     []byte
	spare   []byte // what next gave out last
	err     error  // of the reader
	stopped bool
}

// newAhead starts to read. The goroutine ends with the reader, or after stop
// with the Read that it is in.
func newAhead(r io.Reader) *ahead {
	a := &ahead{some: make(chan struct{}, 1)}
	a.room.L = &a.mu
	go a.pump(r)
	return a
}

func (a *ahead) pump(r io.Reader) {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		a.mu.Lock()
		for len(a.buf) > 0 && len(a.buf)+n > mostAhead && !a.stopped {
			a.room.Wait()
		}
		a.buf, a.err = append(a.buf, buf[:n]...), err
		over := err != nil || a.stopped
		a.mu.Unlock()
		select {
		case a.some <- struct{}{}:
		default: // it knows
		}
		if over {
			return
		}
	}
}

func (a *ahead) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	a.room.Broadcast()
}

// next waits for something and returns all that is there, which is the
// caller's until the next call, and whether it is the end.
func (a *ahead) next(ctx context.Context) (data []byte, end bool, err error) {
	select {
	case <-a.some:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	data, a.buf, a.spare = a.buf, a.spare[:0], a.buf
	a.room.Broadcast()
	if a.err != nil && a.err != io.EOF {
		return nil, false, a.err // what was read before it is of no use alone
	}
	return data, a.err == io.EOF, nil
}
