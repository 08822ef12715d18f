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
	maxAttached = 64 // attachments of one terminal at once
	maxTypists  = 64 // clients of one terminal whose place in their input is remembered
	maxClient   = 64 // bytes of a client's name
	// shownMost is how far ahead of its reader an attachment sends, bytes: what
	// is under way is what a person waits for after Ctrl-C.
	shownMost = 256 << 10
	// takenEvery is how long the news that input was taken waits for output to
	// go with, unless there is much of it.
	takenEvery = 20 * time.Millisecond
	takenMost  = typedMost / 4
)

// typist is what is known of a client's input. It outlives the client's
// attachments, so that one that was cut off is taken up where it broke.
type typist struct {
	name    string
	at      *attachment // by which it types now; nil: none
	taken   int64       // bytes of its input that the agent has
	written int64       // and the program
	last    time.Time   // when it was last here
}

// attachment is one client at a terminal.
type attachment struct {
	t    *terminal
	st   *serverStream
	news chan struct{} // of one: look again

	// These are guarded by t.mu.
	by      *typist
	resized bool  // somebody else has resized the terminal
	read    int64 // offset up to which the host has taken output

	// These are the sender's.
	next int64 // offset of what is sent next
	told int64 // what the client was told of by.written
}

func (a *attachment) wake() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// attachTerminal carries a terminal to and from one client.
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

// attach makes a place for a client. One that comes back under its name takes
// the place of its earlier attachment, which may be dead without having been
// noticed.
func (t *terminal) attach(st *serverStream, args attachArgs) (*attachment, attachAnswer, error) {
	start, end := t.out.bounds()
	next := args.Offset
	if next < 0 {
		next = start
	}
	if next > end || len(args.Client) > maxClient || args.Input < 0 {
		return nil, attachAnswer{}, holt.Errorf(holt.InvalidArgument,
			"cannot attach at %d of the %d bytes that terminal %s has shown, with %d typed", next, end, t.group.id, args.Input)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	by := t.typists[args.Client]
	if by != nil && by.at != nil {
		delete(t.here, by.at)
		by.at.st.SetDeadline(time.Unix(1, 0))
	} else if len(t.here) >= maxAttached {
		return nil, attachAnswer{}, holt.Errorf(holt.TooMany, "%d clients are attached to terminal %s; no more are allowed", len(t.here), t.info.Name)
	}
	if by == nil {
		by = &typist{name: args.Client, taken: args.Input, written: args.Input}
		t.remember(by)
	}
	if args.Input > by.taken {
		return nil, attachAnswer{}, holt.Errorf(holt.InvalidArgument, "input from byte %d on, but terminal %s has %d only", args.Input, t.info.Name, by.taken)
	}
	a := &attachment{t: t, st: st, by: by, next: next, read: next, told: by.written, news: make(chan struct{}, 1)}
	by.at = a
	t.here[a] = true
	info := t.info
	info.Attached = len(t.here)
	return a, attachAnswer{Terminal: info, Offset: next, End: end, Taken: by.taken, Written: by.written}, nil
}

// remember keeps a named client's place; those that left first give theirs up.
// mu is held.
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

// listen takes what the host sends until the stream ends.
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

// typed takes input, unless another attachment has taken this one's place: what
// it was told it has decides what is sent again.
func (a *attachment) typed(data []byte) error {
	t := a.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.by.at != a {
		return holt.Errorf(holt.Conflict, "the client is attached anew")
	}
	if a.by.taken+int64(len(data))-a.by.written > typedMost {
		return holt.Errorf(holt.TooMany, "more than %d bytes of input are not taken yet", typedMost)
	}
	a.by.taken += int64(len(data))
	if t.info.State != holt.TerminalRunning {
		a.by.written = a.by.taken // nobody will
		return nil
	}
	t.typed = append(t.typed, typed{a.by, slices.Clone(data)})
	select {
	case t.keys <- struct{}{}:
	default:
	}
	return nil
}

// send carries output and news to the host until the terminal's end.
func (a *attachment) send(ctx context.Context) error {
	buf, data := make([]byte, 0, pieceMax+4*eventHeader), make([]byte, pieceMax)
	late := false // the news of taken input has waited for long enough
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
		case <-r.changed: // nil while the host has to read first
		case <-a.news:
		case <-timer:
			late = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look returns how much of the client's input the program has, a size that the
// client does not know, and how many bytes of output may be sent.
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
	if err == nil && len(body) > maxChunk { // a huge command; the end is what matters
		info.Spec = holt.TerminalSpec{}
		body, err = json.Marshal(info)
	}
	if err != nil {
		return err
	}
	_, err = a.st.Write(appendEvent(nil, eventExit, a.next, body))
	return err
}
