package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"holt"
)

// StartRun starts a run. Repeated with the same id it returns that run. A spec
// that cannot be run (no such program, user or directory) is an error, and no
// run.
func (c *Client) StartRun(ctx context.Context, id holt.RunID, spec holt.RunSpec) (holt.Run, error) {
	return c.run(ctx, opRunStart, runArgs{ID: id, Spec: &spec})
}

// GetRun returns a run as it is now, or NotFound.
func (c *Client) GetRun(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return c.run(ctx, opRunGet, runArgs{ID: id})
}

// run is an operation that is answered with a run.
func (c *Client) run(ctx context.Context, op string, args runArgs) (holt.Run, error) {
	var r holt.Run
	if err := c.call(ctx, op, args, &r); err != nil {
		return holt.Run{}, err
	}
	return vetRun(r)
}

// mostRuns bounds a list of runs on its way, bytes: what they are told to run is in it.
const mostRuns = 64 << 20

// Runs lists the runs that the guest remembers, oldest first: those that run,
// and ended ones for at least 10 minutes (up to 8,192). What they run is left
// out: the host knows it, and a guest could have it be long.
func (c *Client) Runs(ctx context.Context) ([]holt.Run, error) {
	s, err := c.open(ctx, opRunList, nil, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var runs []holt.Run
	err = readList(s, mostRuns, func(r holt.Run) error {
		if len(runs) == 2*maxRuns {
			return holt.Errorf(holt.Corrupt, "guest lists more than %d runs", 2*maxRuns)
		}
		r, err := vetRun(r)
		if err == nil {
			r, err = listedRun(r)
		}
		runs = append(runs, r)
		return err
	})
	if err != nil {
		return nil, describe(ctx, opRunList, err)
	}
	return runs, nil
}

// listedRun is what is kept of a run in a list.
func listedRun(r holt.Run) (holt.Run, error) {
	if _, err := holt.ParseRunID(string(r.ID)); err != nil {
		return holt.Run{}, holt.Errorf(holt.Corrupt, "guest has a run %q", clip(string(r.ID)))
	}
	r.Spec, r.ComputerID, r.Schedule = holt.RunSpec{}, "", ""
	return r, nil
}

// FollowRun calls event with the run's output from offset on, and at last with
// its exit, after which it returns nil. A gap event stands where output was
// dropped; the next event's offset lies behind it. Event data is valid during
// the call only. An error from event ends the following and is returned.
func (c *Client) FollowRun(ctx context.Context, id holt.RunID, offset int64, event func(holt.RunEvent) error) error {
	s, err := c.open(ctx, opRunFollow, runArgs{ID: id, Offset: offset}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	buf := make([]byte, max(maxChunk, eventHeader))
	for at := offset; ; {
		e, err := readEvent(s, buf)
		if err == nil {
			at, err = vetEvent(e, at)
		}
		if err != nil {
			return describe(ctx, opRunFollow, err)
		}
		if err := event(e); err != nil {
			return err
		}
		if e.Kind == holt.RunExit {
			return nil
		}
	}
}

// vetEvent returns the offset behind an event, which must begin at offset at:
// who follows goes on from there in the next session.
func vetEvent(e holt.RunEvent, at int64) (int64, error) {
	step := int64(len(e.Data))
	if e.Kind == holt.RunGap {
		step = e.Dropped
	}
	if e.Offset != at || step < 0 || step > math.MaxInt64-at || step == 0 && e.Kind != holt.RunExit {
		return at, holt.Errorf(holt.Corrupt, "run event (%s) of %d bytes at %d, where %d comes next", e.Kind, step, e.Offset, at)
	}
	if e.Kind == holt.RunExit {
		_, err := vetRun(*e.Run)
		return at, err
	}
	return at + step, nil
}

// RunInput opens the run's standard input at offset, counted from its start;
// bytes that the run has already are skipped. A negative offset goes on where
// it stands. [RunInput.End] ends the writing and, unless keep is set, the input for ever; a
// channel that breaks, or ctx ending, does not, and it can be opened again. A
// run that was not started with Stdin, or whose input has ended, is Conflict.
//
// With wanted it first waits until a process of the run waits for input.
//
// Whoever gives an offset takes the place of one that is still sending.
func (c *Client) RunInput(ctx context.Context, id holt.RunID, offset int64, keep, wanted bool) (*RunInput, error) {
	s, err := c.open(ctx, opRunInput, runArgs{ID: id, Offset: offset, Keep: keep, Wanted: wanted}, nil)
	if err != nil {
		return nil, err
	}
	in := &RunInput{s: s, w: newChunkWriter(s, smallChunk), done: make(chan struct{})}
	go in.await()
	return in, nil
}

// RunInput writes chunks; the guest answers once, when the input has ended.
type RunInput struct {
	s      *clientStream
	w      *chunkWriter
	once   sync.Once
	done   chan struct{} // closed when the guest has answered; then these are set
	err    error
	answer inputAnswer
}

func (in *RunInput) await() {
	in.err = describe(in.s.ctx, opRunInput, readAnswer(in.s, &in.answer))
	close(in.done)
	in.s.SetWriteDeadline(time.Unix(1, 0)) // frees a write that the guest will not read
	in.s.Close()
}

func (in *RunInput) Write(p []byte) (int, error) {
	n, err := in.w.Write(p)
	if err == nil {
		return n, nil
	}
	select {
	case <-in.done: // the guest's reason is the better one
		if in.err != nil {
			return n, in.err
		}
	default:
	}
	return n, describe(in.s.ctx, opRunInput, err)
}

// End ends the writing and returns how many bytes the run has taken since its
// start.
func (in *RunInput) End() (taken int64, err error) {
	in.once.Do(func() { in.w.end() })
	<-in.done
	if in.err == nil && in.answer.Taken < 0 {
		in.err = holt.Errorf(holt.Corrupt, "guest has taken %d bytes of input", in.answer.Taken)
	}
	return in.answer.Taken, in.err
}

// SignalRun sends a signal by name (SIGTERM or TERM) to every process of a run,
// also to those that outlived it. It is Conflict when none is left.
func (c *Client) SignalRun(ctx context.Context, id holt.RunID, signal string) error {
	return c.call(ctx, opRunSignal, runArgs{ID: id, Signal: signal}, nil)
}

// mostItems bounds one message of a list. Agents send far fewer; two bytes of
// JSON can make an item of hundreds.
const mostItems = 1024

// readItems reads a list: messages, each an answer with an array of items; an
// empty one is the end.
func readItems[T any](r io.Reader, item func(T) error) error {
	return readList(r, math.MaxInt64, item)
}

// readList is readItems of at most so many bytes; more are TooMany.
func readList[T any](r io.Reader, most int64, item func(T) error) error {
	for {
		var raw json.RawMessage
		if err := readAnswer(r, &raw); err != nil {
			return err
		}
		if most -= int64(len(raw)); most < 0 {
			return holt.Errorf(holt.TooMany, "guest's list is too long to be taken in").
				WithHint("make it in the guest: holt computer run")
		}
		var batch []json.RawMessage
		if err := json.Unmarshal(raw, &batch); err != nil {
			return malformed("list", err)
		}
		if len(batch) == 0 {
			return nil
		}
		if len(batch) > mostItems {
			return holt.Errorf(holt.Corrupt, "malformed list: %d items in one message", len(batch))
		}
		for _, one := range batch {
			var v T
			if err := json.Unmarshal(one, &v); err != nil {
				return malformed("list", err)
			}
			if err := item(v); err != nil {
				return stopped{err}
			}
		}
	}
}

// stopped is a caller's own error on its way back through a reader.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// own returns the caller's error, if that is what err is.
func own(err error) (error, bool) {
	var s stopped
	if errors.As(err, &s) {
		return s.error, true
	}
	return nil, false
}
