package agent

import (
	"context"
	"encoding/binary"
	"math"
	"sync"

	"holt"
)

// OpenTerminal returns the guest's terminal with this id, or a running one with
// the spec's name, or starts one. So the returned id may differ.
func (c *Client) OpenTerminal(ctx context.Context, id holt.TerminalID, spec holt.TerminalSpec) (holt.Terminal, error) {
	return c.terminal(ctx, opTermOpen, termArgs{ID: id, Spec: &spec})
}

// CloseTerminal hangs up a terminal (SIGHUP to all its processes), kills
// processes that have not ended after 5 s, and returns its final state. A
// terminal that has ended is not changed.
func (c *Client) CloseTerminal(ctx context.Context, id holt.TerminalID) (holt.Terminal, error) {
	return c.terminal(ctx, opTermClose, termArgs{ID: id})
}

// SignalTerminal sends a signal to a terminal's foreground process group, as
// its keys do; SIGKILL kills all its processes. Conflict if there is none.
func (c *Client) SignalTerminal(ctx context.Context, id holt.TerminalID, signal string) error {
	return c.call(ctx, opTermSignal, termArgs{ID: id, Signal: signal}, nil)
}

// terminal is an operation that returns a terminal.
func (c *Client) terminal(ctx context.Context, op string, args termArgs) (holt.Terminal, error) {
	var t holt.Terminal
	if err := c.call(ctx, op, args, &t); err != nil {
		return holt.Terminal{}, err
	}
	return vetTerminal(t)
}

// Limits of a list of terminals: their number and encoded size.
const (
	mostTerminals     = maxTerminals + 2*keepTerminals
	mostTerminalBytes = 64 << 20
)

// Terminals lists the terminals that the guest remembers, oldest first.
func (c *Client) Terminals(ctx context.Context) ([]holt.Terminal, error) {
	s, err := c.open(ctx, opTermList, nil, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var list []holt.Terminal
	err = readList(s, mostTerminalBytes, func(t holt.Terminal) error {
		if len(list) == mostTerminals {
			return holt.Errorf(holt.Corrupt, "guest listed more than %d terminals", mostTerminals)
		}
		t, err := vetTerminal(t)
		list = append(list, t)
		return err
	})
	if err != nil {
		return nil, describe(ctx, opTermList, err)
	}
	return list, nil
}

// AttachTerminal attaches to a terminal. It calls emit with an attached event,
// then with output, and finally with the exit, after which it returns nil.
// Meanwhile it sends the input from in (nil: none). Event data is valid only
// during the call. An error of emit ends the attachment and is returned. A slow
// emit blocks nothing: output that it misses becomes a gap. Input is received
// from in as fast as the program reads it.
func (c *Client) AttachTerminal(ctx context.Context, id holt.TerminalID, spec holt.AttachSpec, in <-chan holt.TerminalInput, emit func(holt.TerminalEvent) error) error {
	var hello attachAnswer
	s, err := c.open(ctx, opTermAttach, attachArgs{ID: id, Offset: spec.Offset, Size: spec.Size, Client: spec.Client, Input: spec.Input}, &hello)
	if err != nil {
		return err
	}
	a := &hostAttachment{s: s, at: hello.Offset, reported: hello.Offset, sent: hello.Taken, taken: hello.Written, news: make(chan struct{}, 1)}
	var sending sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer sending.Wait()
	defer s.Close()
	defer cancel()
	t, err := vetTerminal(hello.Terminal)
	if err == nil && (hello.Offset < 0 || spec.Offset >= 0 && hello.Offset != spec.Offset || hello.End < hello.Offset || hello.Taken < spec.Input || hello.Written < 0 || hello.Written > hello.Taken || hello.Taken > math.MaxInt64/2) {
		err = holt.Errorf(holt.Corrupt, "guest attached at offset %d of %d, with %d bytes of input", hello.Offset, hello.End, hello.Taken)
	}
	if err != nil {
		return err
	}
	if err := emit(holt.TerminalEvent{Kind: holt.TerminalAttached, Terminal: &t, Offset: hello.Offset, End: hello.End, Taken: hello.Taken}); err != nil {
		return err
	}
	sending.Go(func() { a.send(ctx, in) })
	return a.receive(emit)
}

// hostAttachment is the host's side of an attachment.
type hostAttachment struct {
	s        *clientStream
	at       int64 // offset of the next output
	reported int64 // output offset last acknowledged to the guest

	news chan struct{} // capacity 1: taken has changed

	mu    sync.Mutex // guards the fields below, and the order of frames
	sent  int64      // offset of the next input to send
	taken int64      // input offset received by the program
}

// receive passes events to emit until the exit.
func (a *hostAttachment) receive(emit func(holt.TerminalEvent) error) error {
	buf := make([]byte, maxChunk)
	for {
		e, err := readTermEvent(a.s, buf)
		if err == nil {
			err = a.vet(e)
		}
		if err != nil {
			return describe(a.s.ctx, opTermAttach, err)
		}
		if e.Kind == holt.TerminalExit {
			if *e.Terminal, err = vetTerminal(*e.Terminal); err != nil {
				return err
			}
		}
		if err := emit(e); err != nil {
			return err
		}
		if e.Kind == holt.TerminalExit {
			return nil
		}
		if a.at-a.reported >= shownMost/4 {
			a.reported = a.at
			if err := a.write(termRead, binary.BigEndian.AppendUint64(nil, uint64(a.at))); err != nil {
				return describe(a.s.ctx, opTermAttach, err)
			}
		}
	}
}

// vet checks that an event is at the expected offset, and counts it.
func (a *hostAttachment) vet(e holt.TerminalEvent) error {
	step := int64(len(e.Data))
	switch e.Kind {
	case holt.TerminalTaken:
		a.mu.Lock()
		defer a.mu.Unlock()
		if e.Taken < a.taken || e.Taken > a.sent {
			return holt.Errorf(holt.Corrupt, "guest reports invalid input progress: %d of %d bytes, after %d", e.Taken, a.sent, a.taken)
		}
		a.taken = e.Taken
		select {
		case a.news <- struct{}{}:
		default:
		}
		return nil
	case holt.TerminalResized:
		if bounded(*e.Size) != *e.Size {
			return holt.Errorf(holt.Corrupt, "guest reports an invalid terminal size of %d rows and %d columns", e.Size.Rows, e.Size.Cols)
		}
		return nil
	case holt.TerminalGap:
		step = e.Dropped
	}
	if e.Offset != a.at || step < 0 || step > math.MaxInt64-a.at || step == 0 && e.Kind != holt.TerminalExit {
		return holt.Errorf(holt.Corrupt, "terminal event (%s) of %d bytes at offset %d instead of %d", e.Kind, step, e.Offset, a.at)
	}
	a.at += step
	return nil
}

// send sends input until ctx or in ends.
func (a *hostAttachment) send(ctx context.Context, in <-chan holt.TerminalInput) {
	var rest []byte
	for {
		room := a.room()
		from := in
		if len(rest) > 0 || room == 0 {
			from = nil
		}
		if len(rest) > 0 && room > 0 {
			n := min(len(rest), room, maxTermFrame)
			if a.write(termInput, rest[:n]) != nil {
				return // receive returns the reason
			}
			rest = rest[n:]
			continue
		}
		select {
		case next, ok := <-from:
			if !ok {
				in = nil
			}
			if next.Size != nil && a.write(termSize, appendSize(nil, *next.Size)) != nil {
				return
			}
			rest = next.Data
		case <-a.news:
		case <-ctx.Done():
			return
		}
	}
}

// room returns how many bytes of input may be sent.
func (a *hostAttachment) room() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(typedMost - (a.sent - a.taken))
}

func (a *hostAttachment) write(kind byte, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kind == termInput {
		a.sent += int64(len(data)) // before the guest can acknowledge it
	}
	_, err := a.s.Write(appendTermFrame(make([]byte, 0, termHeader+len(data)), kind, data))
	return err
}
