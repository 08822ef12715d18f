package computer

import (
	"cmp"
	"context"
	"time"

	"holt"
)

// Attach attaches to a terminal until the terminal exits (nil), ctx ends, or emit fails, whose
// error it returns; see [agent.Client.AttachTerminal]. For a terminal that has ended it emits what
// the guest still has, or only the exit. It wakes a paused computer, but with spec.Again only once
// something is typed.
//
// Errors: Unavailable when the channel to the guest breaks. A client that attaches again, with its
// id and the offsets that it has reached, neither misses nor repeats anything.
func (n *Terminals) Attach(ctx context.Context, computer, ref string, spec holt.AttachSpec, in <-chan holt.TerminalInput, emit func(holt.TerminalEvent) error) error {
	t, err := n.Get(ctx, computer, ref)
	if err == nil && spec.Again && t.State == holt.TerminalRunning {
		w := &watching{in: in, emit: emit}
		if err = w.rest(ctx, n.waker, t.ComputerID); err == nil {
			in, spec.Size = w.in, cmp.Or(w.size, spec.Size)
			t, err = n.Get(ctx, string(t.ComputerID), string(t.ID)) // their names may be others' by now
		}
	}
	if err != nil {
		return err
	}
	l := n.machines.live(t.ComputerID)
	if t.State == holt.TerminalRunning {
		var done func()
		if _, l, done, err = n.waker.use(ctx, string(t.ComputerID), terminalUse(t.ID, t.Name)); err != nil {
			return err
		}
		defer done()
	}
	a := &attaching{n: n, t: t, spec: spec, emit: emit}
	if l == nil || t.State == holt.TerminalLost {
		return a.gone(ctx)
	}
	defer n.cfg.Observe.attach()()
	client, err := l.agent(ctx, l.limits.Reconnect)
	if err != nil {
		return err
	}
	a.l = l
	defer l.terminals.work.attach(t.ID)()
	asked := l.terminals.launches.ask(t.ID)
	defer asked.done()
	err = client.AttachTerminal(ctx, t.ID, spec, in, a.event)
	switch {
	case err == nil || a.broke != nil:
		return a.broke
	case ctx.Err() != nil:
		return gone(ctx)
	case holt.CodeOf(err) == holt.NotFound:
		if lost, err := n.rows.lose(ctx, t.ComputerID, asked, t.ID); err != nil {
			return err
		} else if !lost {
			return holt.Errorf(holt.Unavailable, "terminal %s of %s is still being opened", t.Name, clip(computer)).WithHint("try again")
		}
		return a.gone(ctx)
	default:
		return restoredUnder(err, computer, t, spec)
	}
}

// watching is a client that is attached to a terminal of a paused computer.
type watching struct {
	in   <-chan holt.TerminalInput
	emit func(holt.TerminalEvent) error
	size holt.TerminalSize // that came meanwhile
}

// restLook is how often a paused computer is checked for having been stopped or deleted.
const restLook = 5 * time.Second

// rest waits until the paused computer is resumed or something is typed, which in still returns.
// Being attached does not wake a computer.
func (w *watching) rest(ctx context.Context, s *waker, id holt.ComputerID) error {
	for said := false; ; {
		came := s.machines.coming()
		r, err := s.table.find(ctx, string(id))
		if err == nil && r.State == holt.ComputerPausing {
			if err = s.settled(ctx, id); err == nil {
				continue
			}
		}
		if err != nil || r.State != holt.ComputerPaused {
			return err
		}
		if !said {
			if err := w.emit(holt.TerminalEvent{Kind: holt.TerminalPaused}); err != nil {
				return err
			}
			said = true
		}
		if typed, err := w.wait(ctx, came); typed || err != nil {
			return err
		}
	}
}

// wait returns when any computer gets a machine, after restLook, or when something is typed.
func (w *watching) wait(ctx context.Context, came <-chan struct{}) (typed bool, err error) {
	look := time.NewTimer(restLook)
	defer look.Stop()
	for {
		select {
		case next, ok := <-w.in:
			switch {
			case !ok:
				w.in = nil
			case next.Size != nil && len(next.Data) == 0:
				w.size = *next.Size
			default:
				w.in = putBack(ctx, next, w.in)
				return true, nil
			}
		case <-came:
			return false, nil
		case <-look.C:
			return false, nil
		case <-ctx.Done():
			return false, gone(ctx)
		}
	}
}

// putBack returns a channel that yields first, then everything from in.
func putBack(ctx context.Context, first holt.TerminalInput, in <-chan holt.TerminalInput) <-chan holt.TerminalInput {
	out := make(chan holt.TerminalInput)
	go func() {
		defer close(out)
		for next, ok := first, true; ok; {
			select {
			case out <- next:
			case <-ctx.Done():
				return
			}
			select {
			case next, ok = <-in:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// aheadOfGuest adds a hint to the error for an offset beyond the end of a run or terminal.
func aheadOfGuest(err error) error {
	if e := holt.AsError(err); e.Code == holt.InvalidArgument && e.Hint == "" {
		return e.WithHint("start again from offset 0: the computer may have been restored to an earlier snapshot")
	}
	return err
}

// restoredUnder is the error of a client whose terminal was restored to an earlier snapshot while
// it was attached.
func restoredUnder(err error, computer string, t holt.Terminal, spec holt.AttachSpec) error {
	if spec.Again && holt.CodeOf(err) == holt.InvalidArgument {
		return holt.Errorf(holt.Conflict, "%s was restored to an earlier snapshot, with its terminal %s", clip(computer), t.Name).
			WithHint("attach again: holt terminal attach %s %s", clip(computer), t.Name)
	}
	return aheadOfGuest(err)
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

// event emits an event of the guest, with the terminal as it is on record.
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

// gone emits the end of a terminal that the guest does not have.
func (a *attaching) gone(ctx context.Context) error {
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
