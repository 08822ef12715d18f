package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// input is what a run has taken on its standard input. One host sends at a
// time; one that knows where it stands may take the place of an earlier one,
// whose connection may be dead without the agent having noticed: it is stuck
// until the run reads.
type input struct {
	seat    sync.Mutex // held while a host takes its place
	sending sync.Mutex // held by the one that sends
	stream  *serverStream
	taken   int64 // bytes that the run's pipe has; guarded by sending
}

// enter waits for the place of the one that sends, or refuses it. What it
// returns gives the place up, once.
func (r *run) enter(st *serverStream, offset int64) (leave func(), err error) {
	r.input.seat.Lock()
	defer r.input.seat.Unlock()
	if !r.input.sending.TryLock() {
		if offset < 0 {
			return nil, holt.Errorf(holt.Conflict, "another client is sending input to run %s", r.group.id)
		}
		past := time.Unix(1, 0)
		r.input.stream.SetReadDeadline(past)
		r.stdin.SetWriteDeadline(past)
		r.input.sending.Lock()
		r.stdin.SetWriteDeadline(time.Time{})
	}
	r.input.stream = st
	return sync.OnceFunc(r.input.sending.Unlock), nil
}

// inputRun copies chunks to a run's standard input, from an offset on: bytes
// that the run has already are skipped, so that a call may be repeated.
func (s *Server) inputRun(ctx context.Context, st *serverStream) error {
	args, r, err := s.namedRun(st.args)
	if err != nil {
		return err
	}
	if r.stdin == nil {
		return holt.Errorf(holt.Conflict, "run %s has no standard input", args.ID).
			WithHint("start it with stdin set")
	}
	if args.Wanted {
		if err := r.awaitWantedBy(ctx, st); err != nil {
			return err
		}
	}
	leave, err := r.enter(st, args.Offset)
	if err != nil {
		return err
	}
	defer leave()
	if args.Offset < 0 {
		args.Offset = r.input.taken
	}
	if args.Offset > r.input.taken {
		return holt.Errorf(holt.InvalidArgument, "input from byte %d on, but run %s has taken %d only", args.Offset, args.ID, r.input.taken)
	}
	if err := st.agree(nil); err != nil {
		return err
	}
	err = r.take(&chunkReader{r: st}, r.input.taken-args.Offset, args.Keep)
	answer := inputAnswer{r.input.taken}
	leave() // whoever has the answer may send more at once
	writeAnswer(st, answer, err)
	return err
}

// take copies in, less the bytes to skip, and ends the input unless it is to be
// kept open.
func (r *run) take(in *chunkReader, skip int64, keep bool) error {
	var n int64
	_, err := io.CopyN(io.Discard, in, skip)
	if err == nil || err == io.EOF { // at the end: all of it was there
		n, err = io.CopyBuffer(struct{ io.Writer }{r.stdin}, struct{ io.Reader }{in}, make([]byte, smallChunk))
	}
	r.input.taken += n
	switch {
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EPIPE):
		return holt.Errorf(holt.Conflict, "run %s takes no more input", r.group.id)
	case isTimeout(err): // the deadlines of enter
		return holt.Errorf(holt.Conflict, "another client took over the input of run %s", r.group.id)
	case err == nil && !keep:
		r.stdin.Close() // a second time is an error that says nothing new
	}
	return err
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}
