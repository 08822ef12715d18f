package computer

import (
	"context"

	"holt"
)

// Attach attaches to a terminal until its exit (nil), the end of ctx, or an
// error of emit, which it returns; see [agent.Client.AttachTerminal]. One that
// has ended is replayed as far as the guest kept it; of one that the guest no
// longer knows only the exit is left. A paused computer is woken; a stopped one
// has lost its terminals.
//
// Errors: Unavailable when the channel to the guest breaks: whoever attaches
// again, as the same client and where it broke, misses and doubles nothing.
func (n *Terminals) Attach(ctx context.Context, computer, ref string, spec holt.AttachSpec, in <-chan holt.TerminalInput, emit func(holt.TerminalEvent) error) error {
	t, err := n.Get(ctx, computer, ref)
	if err != nil {
		return err
	}
	l := n.s.seats.live(t.ComputerID)
	if t.State == holt.TerminalRunning {
		if _, l, err = (waking{n.s}).wake(ctx, string(t.ComputerID)); err != nil {
			return err
		}
	}
	a := &attaching{n: n, t: t, spec: spec, emit: emit}
	if l == nil || t.State == holt.TerminalLost {
		return a.gone(ctx)
	}
	client, err := l.agent(ctx, l.limits.Reconnect)
	if err != nil {
		return err
	}
	a.l = l
	defer l.terminals.work.attach(t.ID)()
	err = client.AttachTerminal(ctx, t.ID, spec, in, a.event)
	switch {
	case err == nil || a.broke != nil:
		return a.broke
	case ctx.Err() != nil:
		return gone(ctx)
	case holt.CodeOf(err) == holt.NotFound:
		return a.gone(ctx)
	default:
		return ahead(err)
	}
}

// ahead is the error for who has seen more of a run or terminal than there is.
func ahead(err error) error {
	if e := holt.AsError(err); e.Code == holt.InvalidArgument && e.Hint == "" {
		return e.WithHint("begin anew: its computer may have gone back to an earlier moment meanwhile")
	}
	return err
}

// attaching is one call of Attach.
type attaching struct {
	n     *Terminals
	t     holt.Terminal
	l     *live
	spec  holt.AttachSpec
	emit  func(holt.TerminalEvent) error
	broke error // what emit returned
}

// event passes one of the guest's events on, with the terminal as it is on record.
func (a *attaching) event(e holt.TerminalEvent) error {
	if e.Terminal != nil {
		told := *e.Terminal
		told.ID = a.t.ID
		t, err := a.l.terminals.take(context.WithoutCancel(a.l.ctx), told)
		if err != nil {
			return err
		}
		e.Terminal = &t
	}
	a.broke = a.emit(e)
	return a.broke
}

// gone ends the attachment to a terminal that the guest does not have.
func (a *attaching) gone(ctx context.Context) error {
	if a.t.State == holt.TerminalRunning {
		if err := a.n.s.terminals.lose(ctx, a.t.ComputerID, a.t.ID); err != nil {
			return err
		}
	}
	t, err := a.n.Get(ctx, string(a.t.ComputerID), string(a.t.ID))
	if err != nil {
		return err
	}
	at := max(0, a.spec.Offset)
	for _, e := range []holt.TerminalEvent{
		{Kind: holt.TerminalAttached, Offset: at, End: at, Taken: max(0, a.spec.Input), Terminal: &t},
		{Kind: holt.TerminalExit, Offset: at, Terminal: &t},
	} {
		if err := a.emit(e); err != nil {
			return err
		}
	}
	return nil
}
