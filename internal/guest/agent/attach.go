package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"holt"
)

const (
	maxAttached = 64 // maximum attachments of one terminal
	maxTypists  = 64 // clients of one terminal whose input offset is remembered
	maxClient   = 64 // bytes of a client's name
	// shownMost is how far ahead of its reader an attachment sends, bytes. It
	// bounds the delay after Ctrl-C.
	shownMost = 256 << 10
	// takenEvery is how long an acknowledgement of input waits to be sent together
	// with output, unless much input is unacknowledged.
	takenEvery = 20 * time.Millisecond
	takenMost  = typedMost / 4
)

// typist is the state of a client's input. It outlives the client's
// attachments, so that a client that was cut off can continue at the right
// offset.
type typist struct {
	name    string
	at      *attachment // current attachment; nil: none
	taken   int64       // bytes of its input received by the agent
	written int64       // and by the program
	last    time.Time   // end of its last attachment
}

// attachment is one client at a terminal.
type attachment struct {
	t    *terminal
	st   *serverStream
	news chan struct{} // capacity 1: signals a change

	// Guarded by t.mu.
	by      *typist
	resized bool  // another client has resized the terminal
	read    int64 // offset up to which the host has received output

	// Used by the sender only.
	next int64 // offset of the next output to send
	told int64 // last value of by.written sent to the client
}

func (a *attachment) wake() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// attachTerminal connects one client to a terminal.
func (s *Server) attachTerminal(ctx context.Context, st *serverStream) error {
	args, err := decode[attachArgs](st.args)
	if err != nil {
		return err
	}
	t, err := s.terms.get(args.ID)
	if err != nil {
		return err
	}
	a, hello, err := t.attach(st, args)
	if err != nil {
		return err
	}
	defer t.detach(a)
	if err := st.agree(hello); err != nil {
		return err
	}
	if args.Size != (holt.TerminalSize{}) {
		if err := t.resize(a, args.Size); err != nil {
			return err
		}
		if args.Offset < 0 && hello.Offset < hello.End {
			t.redraw()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { st.SetWriteDeadline(time.Unix(1, 0)) })
	go func() {
		defer cancel()
		s.log.Debug("attachment ended", "terminal", args.ID, "err", a.listen())
	}()
	return a.send(ctx)
}

// attach registers a client. A client that returns under its name replaces its
// earlier attachment, which may be broken without the agent having noticed.
func (t *terminal) attach(st *serverStream, args attachArgs) (*attachment, attachAnswer, error) {
	start, end := t.out.bounds()
	next := args.Offset
	if next < 0 {
		next = start
	}
	if next > end || len(args.Client) > maxClient || args.Input < 0 {
		return nil, attachAnswer{}, holt.Errorf(holt.InvalidArgument,
			"cannot attach at output offset %d (terminal %[3]s has %[2]d bytes) with input offset %[4]d", next, end, t.group.id, args.Input)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	by := t.typists[args.Client]
	if by != nil && by.at != nil {
		delete(t.here, by.at)
		by.at.st.SetDeadline(time.Unix(1, 0))
	} else if len(t.here) >= maxAttached {
		return nil, attachAnswer{}, holt.Errorf(holt.TooMany, "too many clients: %d clients are attached to terminal %s", len(t.here), t.info.Name)
	}
	if by == nil {
		by = &typist{name: args.Client, taken: args.Input, written: args.Input}
		t.remember(by)
	}
	if args.Input > by.taken {
		return nil, attachAnswer{}, holt.Errorf(holt.InvalidArgument, "input begins at byte %d, but terminal %s has received only %d bytes", args.Input, t.info.Name, by.taken)
	}
	a := &attachment{t: t, st: st, by: by, next: next, read: next, told: by.written, news: make(chan struct{}, 1)}
	by.at = a
	t.here[a] = true
	info := t.info
	info.Attached = len(t.here)
	return a, attachAnswer{Terminal: info, Offset: next, End: end, Taken: by.taken, Written: by.written}, nil
}

// remember keeps the input state of a named client, and forgets the clients
// that left first. mu is held.
func (t *terminal) remember(by *typist) {
	if by.name == "" {
		return
	}
	if len(t.typists) >= maxTypists {
		var oldest *typist
		for _, one := range t.typists {
			if one.at == nil && (oldest == nil || one.last.Before(oldest.last)) {
				oldest = one
			}
		}
		if oldest != nil {
			delete(t.typists, oldest.name)
		}
	}
	t.typists[by.name] = by
}

func (t *terminal) detach(a *attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.here, a)
	if a.by.at == a {
		a.by.at, a.by.last = nil, time.Now()
	}
}

// listen receives the host's frames until the stream ends.
func (a *attachment) listen() error {
	buf := make([]byte, maxTermFrame)
	for {
		kind, data, err := readTermFrame(a.st, buf)
		if err != nil {
			return err
		}
		switch kind {
		case termInput:
			err = a.typed(data)
		case termSize:
			err = a.t.resize(a, decodeSize(data))
		case termRead:
			a.t.mu.Lock()
			a.read = max(a.read, int64(binary.BigEndian.Uint64(data)))
			a.t.mu.Unlock()
			a.wake()
		}
		if err != nil {
			return err
		}
	}
}

// typed receives input, unless a newer attachment has replaced this one: the
// client resends according to the offset that it got there.
func (a *attachment) typed(data []byte) error {
	t := a.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.by.at != a {
		return holt.Errorf(holt.Conflict, "the client has attached again")
	}
	if a.by.taken+int64(len(data))-a.by.written > typedMost {
		return holt.Errorf(holt.TooMany, "more than %d bytes of input are waiting for the program", typedMost)
	}
	a.by.taken += int64(len(data))
	if t.info.State != holt.TerminalRunning {
		a.by.written = a.by.taken // nothing will read it
		return nil
	}
	t.typed = append(t.typed, typed{a.by, slices.Clone(data)})
	select {
	case t.keys <- struct{}{}:
	default:
	}
	return nil
}

// send sends output and changes to the host until the terminal's end.
func (a *attachment) send(ctx context.Context) error {
	buf, data := make([]byte, 0, pieceMax+4*eventHeader), make([]byte, pieceMax)
	late := false // the acknowledgement of input is due
	for {
		written, size, room := a.look()
		var r reading
		if room > 0 {
			r = a.t.out.at(a.next, data[:room])
		}
		output := len(r.data) > 0 || r.dropped > 0
		if !output && r.over {
			return a.sendEnd(ctx)
		}
		buf = buf[:0]
		if written > a.told && (output || late || written-a.told >= takenMost) {
			buf = appendEvent(buf, eventTaken, written, nil)
			a.told, late = written, false
		}
		if size != nil {
			buf = appendEvent(buf, eventSize, a.next, appendSize(nil, *size))
		}
		if r.dropped > 0 {
			buf = appendEvent(buf, eventGap, a.next, binary.BigEndian.AppendUint64(nil, uint64(r.dropped)))
		} else if output {
			buf = appendEvent(buf, eventStdout, a.next, r.data)
		}
		a.next += r.dropped + int64(len(r.data))
		if len(buf) > 0 {
			if _, err := a.st.Write(buf); err != nil {
				return err
			}
		}
		if output {
			continue
		}
		var timer <-chan time.Time
		if written > a.told {
			timer = time.After(takenEvery)
		}
		select {
		case <-r.changed: // nil while the host's window is full
		case <-a.news:
		case <-timer:
			late = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look returns how much of the client's input the program has, a size that the
// client does not know yet, and how many bytes of output may be sent.
func (a *attachment) look() (written int64, size *holt.TerminalSize, room int64) {
	a.t.mu.Lock()
	defer a.t.mu.Unlock()
	if a.resized {
		a.resized = false
		now := a.t.info.Size
		size = &now
	}
	return a.by.written, size, min(max(shownMost-(a.next-a.read), 0), pieceMax)
}

func (a *attachment) sendEnd(ctx context.Context) error {
	select {
	case <-a.t.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	info := a.t.snapshot()
	body, err := json.Marshal(info)
	if err == nil && len(body) > maxChunk { // drop a huge command; the exit matters
		info.Spec = holt.TerminalSpec{}
		body, err = json.Marshal(info)
	}
	if err != nil {
		return err
	}
	_, err = a.st.Write(appendEvent(nil, eventExit, a.next, body))
	return err
}
