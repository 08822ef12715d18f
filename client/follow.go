package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"time"

	"holt"
	"holt/internal/api"
)

// mostEvent bounds one line of an event stream, in bytes.
const mostEvent = 16 << 20

// Follow calls emit with every event of a run from offset on, each byte once
// and in order, until the exit event was emitted (nil), emit fails (its
// error), or ctx ends. When the daemon or the guest goes away it continues where
// it was once they are back, for as long as Options.Patience allows.
func (n Runs) Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error {
	f := follower{c: n.c, next: offset, emit: emit, call: func(from api.EventsFrom) call {
		return callOf(api.FollowRun, api.RunEvents{api.OneRun{string(id)}, from})
	}}
	return f.follow(ctx)
}

// follow uses as many connections as it takes.
func (f *follower) follow(ctx context.Context) error {
	var w wait
	for {
		f.heard, f.answered = false, false
		err := f.once(ctx)
		if f.done || f.failed != nil {
			return f.failed
		}
		var lost *lostError
		if !errors.As(err, &lost) && holt.CodeOf(err) != holt.Unavailable {
			return err
		}
		switch {
		case f.heard:
			w = wait{since: time.Now()}
		case f.answered && lost != nil:
			w.since = time.Now() // a quiet run, and another daemon than the time before
		}
		if !f.c.again(ctx, &w, lost) {
			return err
		}
	}
}

// follower is one Follow, over any number of connections.
type follower struct {
	c        *Client
	call     func(api.EventsFrom) call
	next     int64 // offset of the first byte that was not emitted
	emit     func(holt.RunEvent) error
	answered bool  // the daemon took this connection's request
	heard    bool  // this connection brought more than an error
	done     bool  // the exit event was emitted
	failed   error // of emit
}

// once follows over one connection until it ends.
func (f *follower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := f.c.open(ctx, f.call(api.EventsFrom{Offset: f.next}))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f.answered = true
	// The server beats; a connection that is silent for longer is dead.
	silence := time.AfterFunc(quiet, func() { cancel(errSilent) })
	defer silence.Stop()
	err = readEvents(resp.Body, func(comment bool) {
		f.heard = f.heard || comment
		silence.Reset(quiet)
	}, func(name string, data []byte) error {
		silence.Stop() // whoever takes the output may take long
		defer silence.Reset(quiet)
		return f.event(name, data)
	})
	switch {
	case f.done || f.failed != nil:
		return nil
	case errors.Is(context.Cause(ctx), errSilent):
		return &lostError{holt.Errorf(holt.Unavailable, "%w", errSilent), false}
	case err == nil:
		return &lostError{holt.Errorf(holt.Unavailable, "the daemon ended while this command followed the run").
			WithHint("the run continues; follow it again when the daemon is back"), false}
	case holt.CodeOf(err) != holt.Internal:
		return err // the server's
	}
	return f.c.broken(ctx, err)
}

var errSilent = errors.New("the connection to the daemon fell silent")

// event handles one server-sent event.
func (f *follower) event(name string, data []byte) error {
	if name == "error" {
		return streamError(data)
	}
	var e holt.RunEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return holt.Errorf(holt.Corrupt, "the daemon sent an invalid event of the run: %w", err)
	}
	if e.Offset < 0 || e.Dropped < 0 || e.Dropped > math.MaxInt64-e.Offset-int64(len(e.Data)) {
		return holt.Errorf(holt.Corrupt, "the daemon sent an event of the run with invalid offsets: %d bytes and %d dropped at %d", len(e.Data), e.Dropped, e.Offset)
	}
	f.heard = true
	end := e.Offset + int64(len(e.Data)) + e.Dropped
	if e.Kind != holt.RunExit {
		if end <= f.next {
			return nil // emitted before
		}
		if over := f.next - e.Offset; over > 0 {
			if len(e.Data) > 0 {
				e.Data = e.Data[over:]
			} else {
				e.Dropped -= over
			}
			e.Offset = f.next
		}
		f.next = end
	}
	if f.failed = f.emit(e); f.failed != nil {
		return f.failed
	}
	if e.Kind == holt.RunExit {
		f.done = true
		return io.EOF
	}
	return nil
}

// streamError is the error that a stream ended with.
func streamError(data []byte) error {
	var e holt.Error
	if err := json.Unmarshal(data, &e); err != nil || e.Code == "" {
		return holt.Errorf(holt.Unavailable, "the daemon sent an invalid error")
	}
	return &e
}

// readEvents parses server-sent events (WHATWG HTML, section 9.2.6) and calls
// event for each until it fails or the stream ends; beat is called for every
// line. Ids are not needed: the data tells the offset.
func readEvents(r io.Reader, beat func(comment bool), event func(name string, data []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var name string
	var data []byte
	for {
		line, err := readLine(in)
		if err == io.EOF {
			return nil // an event that is not complete does not count
		}
		if err != nil {
			return err
		}
		beat(bytes.HasPrefix(line, []byte(":")))
		if len(line) == 0 {
			if len(data) > 0 {
				if err := event(name, data); err != nil {
					return err
				}
			}
			name, data = "", data[:0]
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			if len(data)+len(value) > mostEvent {
				return holt.Errorf(holt.TooMany, "an event is larger than %d MiB", mostEvent>>20)
			}
			data = append(data, value...)
		}
	}
}

// readLine returns the next line without its end. io.EOF: there is no complete one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > mostEvent {
			return nil, holt.Errorf(holt.TooMany, "a line of an event stream is larger than %d MiB", mostEvent>>20)
		}
		if err == nil && line == nil {
			return bytes.TrimSuffix(part[:len(part)-1], []byte("\r")), nil
		}
		line = append(line, part...)
		switch err {
		case nil:
			return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
		case bufio.ErrBufferFull:
		default:
			return nil, err
		}
	}
}
