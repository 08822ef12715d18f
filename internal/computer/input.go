package computer

import (
	"context"
	"io"

	"holt"
	"holt/internal/guest/agent"
)

// inputTries bounds retries while the guest still serves the input of an earlier call.
const inputTries = 5

// Input copies src to the standard input of a run that was started with Stdin, at an offset from
// the input's start. Bytes that the run already has are skipped, so an interrupted call can be
// repeated; a negative offset continues where the input is. It returns the offset for the next
// call. eof ends the input at the end of src; otherwise, and if src fails, it stays open. With
// wanted it reads src only once a process of the run waits for input. If the run ends first, Input
// returns at once, and one Read of src may still be going on.
//
// Errors: Conflict when the run or its input has ended, InvalidArgument when bytes before offset
// are missing; those of src.
func (r *Runs) Input(ctx context.Context, id holt.RunID, offset int64, src io.Reader, eof, wanted bool) (int64, error) {
	run, err := r.rows.get(ctx, id)
	if err != nil {
		return 0, err
	}
	if !run.Spec.Stdin {
		return 0, holt.Errorf(holt.Conflict, "run %s takes no input", id).
			WithHint("start the run with --background --interactive, or with stdin through the API")
	}
	l, done, err := r.at(ctx, id)
	if err != nil {
		return 0, err
	}
	defer done()
	client, err := l.agent(ctx, l.limits.Reconnect)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx) // without End, the end of ctx leaves the input open
	defer cancel()
	in, err := openInput(ctx, client, id, offset, !eof, wanted)
	if err != nil {
		return 0, err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(in, src)
		copied <- err
	}()
	select {
	case err := <-copied:
		if err != nil {
			return 0, err
		}
	case <-in.Answered():
	}
	return in.End()
}

// openInput opens a run's input. The guest may learn a moment late that an earlier call has left
// it.
func openInput(ctx context.Context, c *agent.Client, id holt.RunID, offset int64, keep, wanted bool) (*agent.RunInput, error) {
	for try := 0; ; try++ {
		in, err := c.RunInput(ctx, id, offset, keep, wanted)
		if holt.CodeOf(err) != holt.Conflict || try == inputTries {
			return in, err
		}
		if run, lost := c.GetRun(ctx, id); lost != nil || run.State != holt.RunRunning {
			return nil, err
		}
		backoff(ctx, try)
	}
}
