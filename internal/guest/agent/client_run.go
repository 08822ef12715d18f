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
// that cannot be run (such as a missing program, user or directory) is an error
// and starts no run.
func (c *Client) StartRun(ctx context.Context, id holt.RunID, spec holt.RunSpec) (holt.Run, error) {
	return c.run(ctx, opRunStart, runArgs{ID: id, Spec: &spec})
}

// GetRun returns the current state of a run, or NotFound.
func (c *Client) GetRun(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return c.run(ctx, opRunGet, runArgs{ID: id})
}

// run is an operation that returns a run.
func (c *Client) run(ctx context.Context, op string, args runArgs) (holt.Run, error) {
	var r holt.Run
	if err := c.call(ctx, op, args, &r); err != nil {
		return holt.Run{}, err
	}
	return vetRun(r)
}

// mostRuns limits the encoded size of a list of runs with their specs, bytes.
const mostRuns = 64 << 20

// Runs lists the runs that the guest remembers, oldest first: running ones, and
// ended ones for at least 10 minutes (up to 8,192). Specs are omitted: the host
// knows them, and a guest could make them long.
func (c *Client) Runs(ctx context.Context) ([]holt.Run, error) {
	s, err := c.open(ctx, opRunList, nil, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var runs []holt.Run
	err = readList(s, mostRuns, func(r holt.Run) error {
		if len(runs) == 2*maxRuns {
			return holt.Errorf(holt.Corrupt, "guest listed more than %d runs", 2*maxRuns)
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

// listedRun returns the fields of a run that are kept in a list.
func listedRun(r holt.Run) (holt.Run, error) {
	if _, err := holt.ParseRunID(string(r.ID)); err != nil {
		return holt.Run{}, holt.Errorf(holt.Corrupt, "guest listed a run with the invalid id %q", clip(string(r.ID)))
	}
	r.Spec, r.ComputerID, r.Schedule = holt.RunSpec{}, "", ""
	return r, nil
}

// FollowRun calls event with the run's output from offset, and finally with its
// exit, after which it returns nil. A gap event marks dropped output; the next
// event's offset is behind it. Event data is valid only during the call. An
// error of event ends the call and is returned.
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

// vetEvent checks that an event begins at offset at, and returns the offset
// behind it, from which the next session continues.
func vetEvent(e holt.RunEvent, at int64) (int64, error) {
	step := int64(len(e.Data))
	if e.Kind == holt.RunGap {
		step = e.Dropped
	}
	if e.Offset != at || step < 0 || step > math.MaxInt64-at || step == 0 && e.Kind != holt.RunExit {
		return at, holt.Errorf(holt.Corrupt, "run event (%s) of %d bytes at offset %d instead of %d", e.Kind, step, e.Offset, at)
	}
	if e.Kind == holt.RunExit {
		_, err := vetRun(*e.Run)
		return at, err
	}
	return at + step, nil
}

// RunInput opens the run's standard input at offset, counted from its start. It
// skips bytes that the run has already. A negative offset means the current end.
// [RunInput.End] ends the writing and, unless keep is set, closes the input. If
// the channel breaks or ctx ends, the input stays open and RunInput can be called
// again. A run started without Stdin, or whose input is closed, is Conflict.
//
// With wanted it first waits until a process of the run reads from its input.
//
// A caller with an offset replaces another that is still sending.
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
	done   chan struct{} // closed when the guest has answered; the fields below are set then
	err    error
	answer inputAnswer
}

// Answered is closed when the guest has answered, for example because the run has ended. Then End returns at once.
func (in *RunInput) Answered() <-chan struct{} { return in.done }

func (in *RunInput) await() {
	in.err = describe(in.s.ctx, opRunInput, readAnswer(in.s, &in.answer))
	close(in.done)
	in.s.SetWriteDeadline(time.Unix(1, 0)) // unblocks a write that the guest will not read
	in.s.Close()
}

func (in *RunInput) Write(p []byte) (int, error) {
	n, err := in.w.Write(p)
	if err == nil {
		return n, nil
	}
	select {
	case <-in.done: // prefer the guest's error
		if in.err != nil {
			return n, in.err
		}
	default:
	}
	return n, describe(in.s.ctx, opRunInput, err)
}

// End ends the writing and returns how many bytes of input the run has received since its start.
func (in *RunInput) End() (taken int64, err error) {
	select {
	case <-in.done: // a Write may still be going on
	default:
		in.once.Do(func() { in.w.end() })
		<-in.done
	}
	if in.err == nil && in.answer.Taken < 0 {
		in.err = holt.Errorf(holt.Corrupt, "guest reports a negative size of input: %d", in.answer.Taken)
	}
	return in.answer.Taken, in.err
}

// SignalRun sends a signal by name (SIGTERM or TERM) to every process of a run,
// including processes left after its end. It returns Conflict if there is none.
func (c *Client) SignalRun(ctx context.Context, id holt.RunID, signal string) error {
	return c.call(ctx, opRunSignal, runArgs{ID: id, Signal: signal}, nil)
}

// mostItems limits the items in one message of a list: two bytes of JSON can
// decode to hundreds. Agents send far fewer.
const mostItems = 1024

// readItems reads a list: messages with an array of items each; an empty one is the end.
func readItems[T any](r io.Reader, item func(T) error) error {
	return readList(r, math.MaxInt64, item)
}

// readList is readItems for at most most bytes; more are TooMany.
func readList[T any](r io.Reader, most int64, item func(T) error) error {
	for {
		var raw json.RawMessage
		if err := readAnswer(r, &raw); err != nil {
			return err
		}
		if most -= int64(len(raw)); most < 0 {
			return holt.Errorf(holt.TooMany, "the list is too long").
				WithHint("list it inside the computer with holt computer run")
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

// stopped wraps a caller's own error on its way through a reader.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// own returns the caller's error, if err wraps one.
func own(err error) (error, bool) {
	var s stopped
	if errors.As(err, &s) {
		return s.error, true
	}
	return nil, false
}
