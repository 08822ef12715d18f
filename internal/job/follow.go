package job

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"holt"
	"holt/internal/hosterror"
)

// Follow calls emit with the output of a job from an offset on, live, and
// with its exit once it has ended. Only the end of the output of an ended job is kept;
// a gap event replaces the rest. If the machine ends, the output continues with that of the next attempt. If
// the command did not end by itself, the exit is that of a lost run; the job has the reason.
func (s *Store) Follow(ctx context.Context, id holt.JobID, offset int64, emit func(holt.RunEvent) error) error {
	f := &follower{s: s, id: id, next: max(0, offset), emit: emit}
	defer s.follows(id)()
	for {
		changed := s.change()
		r, err := s.table.get(ctx, id)
		if err != nil {
			return err
		}
		if r.State.Ended() {
			return f.rest(r)
		}
		if w := s.worker(id); w != nil && r.State == holt.JobRunning && r.RunID != "" && r.RunID != f.read {
			if err := f.live(ctx, w, r); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return ending()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follows counts a caller of Follow until done is called.
func (s *Store) follows(id holt.JobID) (done func()) {
	add := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.following[id] += n; s.following[id] == 0 {
			delete(s.following, id)
		}
	}
	add(1)
	return func() { add(-1); s.notify() }
}

func (s *Store) followed(id holt.JobID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.following[id]
}

func (s *Store) worker(id holt.JobID) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[id]
}

// follower is one caller of Follow.
type follower struct {
	s       *Store
	id      holt.JobID
	next    int64 // offset of the first byte that is not emitted yet
	emit    func(holt.RunEvent) error
	read    holt.RunID // the run whose output live has emitted
	emitErr error      // what emit returned
}

// live emits the output of a running command.
func (f *follower) live(ctx context.Context, w *worker, r record) error {
	w.followers.Add(1)
	joined := sync.OnceFunc(func() {
		w.joined.Add(1)
		f.s.notify()
	})
	defer func() {
		joined()
		w.followers.Add(-1)
		f.s.notify()
	}()
	f.read = r.RunID
	err := f.s.cfg.Runs.Follow(ctx, r.RunID, max(0, f.next-r.base), func(e holt.RunEvent) error {
		joined()
		if e.Kind == holt.RunExit {
			return nil
		}
		e.Offset += r.base
		return f.pass(e)
	})
	switch {
	case f.emitErr != nil:
		return f.emitErr
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		f.s.log.Debug("follow the output of a job's run", "job", f.id, "err", err) // the computer is deleted: rest emits what is kept
	}
	return nil
}

func (f *follower) pass(e holt.RunEvent) error {
	f.next = endOf(e)
	f.emitErr = f.emit(e)
	return f.emitErr
}

// rest emits the kept output of an ended job, and its exit.
func (f *follower) rest(r record) error {
	events, err := f.s.output(r.ID)
	if err != nil {
		f.s.log.Warn("read a job's output", "job", r.ID, "err", err)
	}
	for _, e := range events {
		if endOf(e) <= f.next {
			continue
		}
		if e.Offset > f.next {
			if err := f.pass(holt.RunEvent{Kind: holt.RunGap, Offset: f.next, Dropped: e.Offset - f.next}); err != nil {
				return err
			}
		}
		if e.Kind != holt.RunGap {
			e.Data = e.Data[f.next-e.Offset:]
			e.Offset = f.next
		} else {
			e.Offset, e.Dropped = f.next, endOf(e)-f.next
		}
		if err := f.pass(e); err != nil {
			return err
		}
	}
	run := &holt.Run{ID: r.RunID, ComputerID: r.ComputerID, Spec: r.Spec.Run, State: holt.RunExited, ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, OutOfMemory: r.OutOfMemory,
		StartedAt: r.CreatedAt, EndedAt: r.EndedAt}
	if r.StartedAt != nil {
		run.StartedAt = *r.StartedAt
	}
	if r.State == holt.JobCancelled || r.Error != nil {
		run.State = holt.RunLost
	}
	return f.pass(holt.RunEvent{Kind: holt.RunExit, Offset: f.next, Run: run})
}

// endOf returns the offset of the first byte after an event.
func endOf(e holt.RunEvent) int64 { return e.Offset + int64(len(e.Data)) + e.Dropped }

// mostPieces bounds the number of events of a tail: a guest that alternates between streams makes many.
const mostPieces = 1024

// tail is the last [holt.JobTail] bytes of an output.
type tail struct {
	events []holt.RunEvent
	bytes  int
	end    int64
}

func (t *tail) add(e holt.RunEvent) {
	t.end = max(t.end, endOf(e))
	if e.Kind != holt.RunStdout && e.Kind != holt.RunStderr || len(e.Data) == 0 {
		return
	}
	if over := len(e.Data) - holt.JobTail; over > 0 {
		e.Data, e.Offset = e.Data[over:], e.Offset+int64(over)
	}
	if n := len(t.events); n > 0 && t.events[n-1].Kind == e.Kind && endOf(t.events[n-1]) == e.Offset && len(t.events[n-1].Data) < 4096 {
		t.events[n-1].Data = append(t.events[n-1].Data, e.Data...)
	} else {
		e.Data = append([]byte(nil), e.Data...)
		t.events = append(t.events, e)
	}
	for t.bytes += len(e.Data); t.bytes > holt.JobTail || len(t.events) > mostPieces; {
		first := &t.events[0]
		over := min(max(t.bytes-holt.JobTail, 0), len(first.Data))
		if len(t.events) > mostPieces {
			over = len(first.Data)
		}
		first.Data, first.Offset, t.bytes = first.Data[over:], first.Offset+int64(over), t.bytes-over
		if len(first.Data) == 0 {
			t.events = t.events[1:]
		}
	}
}

// from returns the events with offsets after base, the bytes of earlier attempts.
func (t *tail) from(base int64) []holt.RunEvent {
	list := make([]holt.RunEvent, 0, len(t.events)+1)
	for _, e := range t.events {
		e.Offset += base
		list = append(list, e)
	}
	if n := len(list); n == 0 && t.end > 0 || n > 0 && endOf(list[n-1]) < base+t.end {
		at := base
		if n > 0 {
			at = endOf(list[n-1])
		}
		list = append(list, holt.RunEvent{Kind: holt.RunGap, Offset: at, Dropped: base + t.end - at})
	}
	return list
}

// keepOutput replaces the saved end of a job's output.
func (s *Store) keepOutput(id holt.JobID, events []holt.RunEvent) error {
	b, err := json.Marshal(events)
	if err != nil {
		return err
	}
	temp := s.file(id) + ".new"
	if err = os.WriteFile(temp, b, 0o600); err == nil {
		err = os.Rename(temp, s.file(id))
	}
	if err != nil {
		os.Remove(temp)
		return hosterror.Full(fmt.Errorf("keep a job's output: %w", err))
	}
	return nil
}

// output returns the saved end of a job's output, or no events.
func (s *Store) output(id holt.JobID) (events []holt.RunEvent, err error) {
	b, err := os.ReadFile(s.file(id))
	if err != nil {
		if os.IsNotExist(err) {
			err = nil
		}
		return nil, err
	}
	return events, json.Unmarshal(b, &events)
}
