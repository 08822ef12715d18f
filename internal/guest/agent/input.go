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

// input is the state of a run's standard input. One host sends at a time. A
// host that gives an offset may replace an earlier one, whose connection may be
// broken without the agent having noticed because it is blocked until the run
// reads.
type input struct {
	seat    sync.Mutex // held while one host replaces another
	sending sync.Mutex // held by the sending host
	stream  *serverStream
	taken   int64 // bytes written to the run's pipe; guarded by sending
}

// inputGrace is how long an end of the input may come after the run's end and still be accepted.
const inputGrace = time.Second

// enter waits to become the sending host, or returns Conflict. leave must be called once.
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

// inputRun copies chunks to a run's standard input, from an offset. It skips
// bytes that the run has already, so that a call may be repeated.
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
		return holt.Errorf(holt.InvalidArgument, "input begins at byte %d, but run %s has received only %d bytes", args.Offset, args.ID, r.input.taken)
	}
	if err := st.agree(nil); err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-r.ended: // and its input is closed; an end of the input may be on its way
			st.SetReadDeadline(time.Now().Add(inputGrace))
		case <-over:
		}
	}()
	err = r.take(&chunkReader{r: st}, r.input.taken-args.Offset, args.Keep)
	close(over)
	answer := inputAnswer{r.input.taken}
	leave() // before the answer: the host may then send more at once
	writeAnswer(st, answer, err)
	return err
}

// take copies in without the first skip bytes, and closes the input unless keep is set.
func (r *run) take(in *chunkReader, skip int64, keep bool) error {
	var n int64
	_, err := io.CopyN(io.Discard, in, skip)
	if err == nil || err == io.EOF { // io.EOF: the run has all of it
		n, err = io.CopyBuffer(struct{ io.Writer }{r.stdin}, struct{ io.Reader }{in}, make([]byte, smallChunk))
	}
	r.input.taken += n
	switch {
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EPIPE):
		return holt.Errorf(holt.Conflict, "run %s has closed its input", r.group.id)
	case isTimeout(err) && r.snapshot().State != holt.RunRunning:
		return holt.Errorf(holt.Conflict, "run %s has ended", r.group.id)
	case isTimeout(err): // a deadline set by enter
		return holt.Errorf(holt.Conflict, "another client took over the input of run %s", r.group.id)
	case err == nil && !keep:
		r.stdin.Close() // ignore the error of a second close
	}
	return err
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}
