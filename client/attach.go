package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"holt"
	"holt/internal/api"
)

const (
	mostTyped  = 64 << 10 // bytes of input under way that the terminal has not taken; see the API
	typedPiece = 32 << 10 // bytes in one message
	mostNews   = 4 << 20  // bytes of one text message
	pingEvery  = 15 * time.Second
)

// Attach calls emit with what a terminal shows, from an offset on, until its
// exit was emitted (nil), emit fails (its error) or ctx ends, and sends what
// comes from in (nil: nothing). When the daemon or the guest goes away it continues
// where it was once they are back, for as long as Options.Patience allows:
// no byte is lost or doubled, neither of output (what came too fast for this
// client is a gap) nor of input. An attached event comes first, and again each
// time that the attachment was taken up again.
func (n Terminals) Attach(ctx context.Context, computer, ref string, spec holt.AttachSpec, in <-chan holt.TerminalInput, emit func(holt.TerminalEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	if spec.Client == "" {
		spec.Client = newKey()
	}
	a := &attachment{c: n.c, computer: computer, ref: ref, spec: spec, next: spec.Offset, emit: emit}
	a.typed = typed{base: spec.Input, size: spec.Size, news: make(chan struct{}, 1)}
	a.typed.room.L = &a.typed.mu
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		a.typed.collect(ctx, in)
	}()
	defer func() {
		cancel()
		a.typed.stop()
		<-collected
	}()
	var w wait
	for {
		a.heard = false
		err := a.once(ctx)
		if a.done || a.failed != nil {
			return a.failed
		}
		var lost *lostError
		if !errors.As(err, &lost) && holt.CodeOf(err) != holt.Unavailable {
			return err
		}
		if a.heard {
			w = wait{since: time.Now()}
		}
		if !n.c.again(ctx, &w, lost) {
			return err
		}
	}
}

// attachment is one Attach, over any number of connections.
type attachment struct {
	c        *Client
	computer string
	ref      string // the terminal's id, once it is known
	spec     holt.AttachSpec
	next     int64 // offset of the first byte of output that was not emitted
	emit     func(holt.TerminalEvent) error
	typed    typed
	known    bool  // it was attached before
	heard    bool  // this connection brought more than an error
	done     bool  // the exit was emitted
	failed   error // of emit
}

// once attaches over one connection until that ends.
func (a *attachment) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	conn, err := a.dial(ctx)
	if err != nil {
		cancel()
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer conn.CloseNow()
	defer cancel()
	work.Go(func() { keepAlive(ctx, conn) })
	sending := false
	for {
		kind, r, err := conn.Reader(ctx)
		if err != nil {
			return a.broken(ctx, err)
		}
		if kind == websocket.MessageBinary {
			err = a.output(r)
		} else {
			err = a.news(r)
		}
		switch {
		case a.done || a.failed != nil:
			if a.done {
				conn.Close(websocket.StatusNormalClosure, "")
			}
			return nil
		case holt.CodeOf(err) == holt.Internal:
			return a.broken(ctx, err)
		case err != nil:
			return err
		}
		if !sending {
			sending = true
			work.Go(func() { a.typed.send(ctx, conn) })
		}
	}
}

func (a *attachment) broken(ctx context.Context, err error) error {
	if websocket.CloseStatus(err) == websocket.StatusGoingAway {
		return &lostError{holt.Errorf(holt.Unavailable, "the daemon ended while a client was attached").
			WithHint("the terminal keeps running; attach again when the daemon is back"), false}
	}
	return a.c.broken(ctx, err)
}

// dial makes a connection, or returns the error that it was refused with.
func (a *attachment) dial(ctx context.Context) (*websocket.Conn, error) {
	base, size := a.typed.begin()
	in := api.TerminalAttach{OneTerminal: api.OneTerminal{api.OneComputer{a.computer}, a.ref}, Rows: size.Rows, Cols: size.Cols, Client: a.spec.Client, Input: base, Again: a.known}
	if a.next >= 0 {
		in.Offset = strconv.FormatInt(a.next, 10)
	}
	k := callOf(api.AttachTerminal, in)
	if err := checkPath(k.path); err != nil {
		return nil, err
	}
	return a.c.webSocket(ctx, k.path, k.query)
}

// keepAlive ends a connection that is silent: it is dead.
func keepAlive(ctx context.Context, conn *websocket.Conn) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, quiet)
		err := conn.Ping(bounded)
		cancel()
		if err != nil {
			conn.CloseNow()
			return
		}
	}
}

// output emits a message's bytes.
func (a *attachment) output(r io.Reader) error {
	a.heard = true
	buf := make([]byte, typedPiece)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if a.next < 0 || a.next > math.MaxInt64-int64(n) {
				return holt.Errorf(holt.Corrupt, "the daemon sent output of a terminal before it confirmed the attach")
			}
			e := holt.TerminalEvent{Kind: holt.TerminalOutput, Offset: a.next, Data: buf[:n]}
			a.next += int64(n)
			if a.failed = a.emit(e); a.failed != nil {
				return nil
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// news handles a text message.
func (a *attachment) news(r io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(r, mostNews+1))
	if err != nil {
		return err
	}
	var e holt.TerminalEvent
	if len(body) > mostNews || json.Unmarshal(body, &e) != nil {
		return holt.Errorf(holt.Corrupt, "the daemon sent an invalid terminal event")
	}
	if e.Kind == holt.TerminalError {
		if e.Error == nil || e.Error.Code == "" {
			return holt.Errorf(holt.Unavailable, "the daemon sent an invalid error")
		}
		return e.Error
	}
	if err := a.heed(e); err != nil {
		return err
	}
	a.heard = true
	if a.failed = a.emit(e); a.failed == nil {
		a.done = e.Kind == holt.TerminalExit
	}
	return nil
}

// heed checks an event and counts it.
func (a *attachment) heed(e holt.TerminalEvent) error {
	ok := true
	switch e.Kind {
	case holt.TerminalAttached:
		ok = e.Terminal != nil && e.Offset >= 0 && e.End >= e.Offset && (a.next < 0 || e.Offset == a.next) && a.typed.attached(e.Taken)
		if ok {
			a.ref, a.next, a.known = string(e.Terminal.ID), e.Offset, true
		}
	case holt.TerminalPaused:
		ok = a.known
	case holt.TerminalGap:
		ok = e.Offset == a.next && e.Dropped > 0 && e.Dropped <= math.MaxInt64-a.next
		a.next += e.Dropped
	case holt.TerminalTaken:
		ok = a.typed.taken(e.Taken)
	case holt.TerminalResized:
		ok = e.Size != nil
	case holt.TerminalExit:
		ok = e.Terminal != nil
	}
	if !ok {
		return holt.Errorf(holt.Corrupt, "the daemon sent an invalid terminal event (%s)", e.Kind)
	}
	return nil
}

// typed is a client's input that the terminal is not known to have.
type typed struct {
	news chan struct{} // of one: something has changed that send waits for

	mu      sync.Mutex
	room    sync.Cond         // on mu: data has become less
	data    []byte            // input that is not known to be taken, from base on
	base    int64             // counted from the client's first byte
	sent    int64             // offset of the first byte that was not sent over this connection
	size    holt.TerminalSize // the last one set
	resized bool              // and this connection does not know
	open    bool              // this connection has attached
	woken   bool              // or has said that it has something
	stopped bool
}

func (t *typed) tell() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// collect takes input from in until that or ctx ends.
func (t *typed) collect(ctx context.Context, in <-chan holt.TerminalInput) {
	for {
		select {
		case next, ok := <-in:
			if !ok {
				return
			}
			t.add(next)
		case <-ctx.Done():
			return
		}
	}
}

func (t *typed) add(next holt.TerminalInput) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.data) > 0 && len(t.data)+len(next.Data) > mostAhead && !t.stopped {
		t.room.Wait()
	}
	t.data = append(t.data, next.Data...)
	if next.Size != nil {
		t.size, t.resized = *next.Size, true
	}
	t.tell()
}

func (t *typed) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.room.Broadcast()
}

// begin returns what a new connection has to know.
func (t *typed) begin() (base int64, size holt.TerminalSize) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resized, t.open, t.woken = false, false, false
	return t.base, t.size
}

// attached says how much the terminal has as a connection begins.
func (t *typed) attached(taken int64) bool {
	t.mu.Lock()
	t.sent = t.base + int64(len(t.data))
	t.mu.Unlock()
	if !t.taken(taken) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.open = taken, true
	t.tell()
	return true
}

// taken drops what the terminal has.
func (t *typed) taken(taken int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if taken < t.base || taken > t.sent {
		return false
	}
	t.data = append(t.data[:0], t.data[taken-t.base:]...)
	t.base = taken
	t.room.Broadcast()
	t.tell()
	return true
}

// send sends what is typed over a connection until that ends.
func (t *typed) send(ctx context.Context, conn *websocket.Conn) {
	for {
		piece, control := t.next()
		var err error
		switch {
		case control != nil:
			var body []byte
			if body, err = json.Marshal(control); err == nil {
				err = conn.Write(ctx, websocket.MessageText, body)
			}
		case len(piece) > 0:
			err = conn.Write(ctx, websocket.MessageBinary, piece)
		default:
			select {
			case <-t.news:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return // who reads learns why
		}
	}
}

// next returns what is to be sent: bytes, or a message.
func (t *typed) next() (piece []byte, control map[string]any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.open && (t.woken || len(t.data) == 0):
		return nil, nil
	case !t.open: // what the terminal has of it is known once it is attached
		t.woken = true
		return nil, map[string]any{"kind": "wake"}
	case t.resized:
		t.resized = false
		return nil, map[string]any{"kind": "resize", "size": t.size}
	}
	begin := t.sent - t.base
	n := min(int64(len(t.data))-begin, mostTyped-begin, typedPiece)
	if n <= 0 {
		return nil, nil
	}
	t.sent += n
	return bytes.Clone(t.data[begin : begin+n]), nil
}
