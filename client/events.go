package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"holt"
	"holt/internal/api"
)

// Events are what happens to nouns.
type Events struct{ c *Client }

// Follow calls emit with a ready or a reset event and then with every event that q asks for, in order. When the daemon
// is restarted it continues where it was, for as long as Options.Patience allows; emit then gets another ready, or a
// reset. Unless q.Follow it returns nil at the end of what is over.
func (n Events) Follow(ctx context.Context, q holt.EventQuery, emit func(holt.Event) error) error {
	f := eventFollower{c: n.c, q: q, emit: emit}
	var w wait
	for {
		f.heard = false
		err := f.once(ctx)
		var lost *lostError
		if f.failed != nil {
			return f.failed
		}
		if !errors.As(err, &lost) {
			return err
		}
		if f.heard {
			w = wait{since: time.Now()}
		}
		if !n.c.again(ctx, &w, lost) {
			return err
		}
	}
}

// eventFollower is one Follow, over any number of connections.
type eventFollower struct {
	c      *Client
	q      holt.EventQuery
	emit   func(holt.Event) error
	heard  bool  // this connection brought something
	failed error // of emit
}

// once follows over one connection until it ends.
func (f *eventFollower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in := api.EventsOf{After: f.q.After, Kind: f.q.Kinds, Computer: f.q.Computer, Follow: f.q.Follow}
	resp, err := f.c.open(ctx, callOf(api.FollowEvents, in))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	silence := time.AfterFunc(quiet, func() { cancel(errSilent) }) // the server beats
	defer silence.Stop()
	err = readEvents(resp.Body, func(bool) {
		f.heard = true
		silence.Reset(quiet)
	}, f.event)
	switch {
	case f.failed != nil:
		return nil
	case errors.Is(context.Cause(ctx), errSilent):
		return &lostError{holt.Errorf(holt.Unavailable, "%w", errSilent), false}
	case err == nil && !f.q.Follow:
		return nil
	case err == nil:
		return &lostError{holt.Errorf(holt.Unavailable, "the daemon ended while this command followed events").WithHint("follow them again when it is back"), false}
	case holt.CodeOf(err) != holt.Internal:
		return err // the server's
	}
	return f.c.broken(ctx, err)
}

func (f *eventFollower) event(name string, data []byte) error {
	if name == "error" {
		return streamError(data)
	}
	var e holt.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return holt.Errorf(holt.Corrupt, "the daemon sent an invalid event: %w", err)
	}
	f.q.After = e.ID
	f.failed = f.emit(e)
	return f.failed
}
