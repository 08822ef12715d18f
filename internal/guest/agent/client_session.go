package agent

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"holt"
)

// OpenSession runs a program for as long as the session is open. The session
// outlives ctx. NotFound: there is no such user or directory; TooMany.
func (c *Client) OpenSession(ctx context.Context, id holt.TerminalID, spec holt.SessionSpec) (*Session, error) {
	s, err := c.open(ctx, opSession, sessionArgs{ID: id, Spec: &spec}, nil)
	if err != nil {
		return nil, err
	}
	if !s.stop() { // giveUp has been or will be called
		s.Close()
		return nil, describe(ctx, opSession, ctx.Err())
	}
	return &Session{c: c, s: s, id: id, in: newChunkWriter(s, smallChunk)}, nil
}

// Session is the host's side of a session; see [holt.Session]. One goroutine
// may write and one read output; other calls are safe for concurrent use.
type Session struct {
	c  *Client
	s  *clientStream
	id holt.TerminalID

	mu    sync.Mutex // held while input is sent
	in    *chunkWriter
	ended bool
}

func (s *Session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, io.ErrClosedPipe
	}
	n, err := s.in.Write(p)
	return n, describe(context.Background(), opSession, err)
}

// CloseWrite closes the program's input.
func (s *Session) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	return describe(context.Background(), opSession, s.in.end())
}

// Output copies the program's output until its end.
func (s *Session) Output(stdout, stderr io.Writer) (holt.SessionEnd, error) {
	end, err := readSession(s.s, stdout, stderr)
	if failed, ok := own(err); ok {
		return end, failed
	}
	return end, describe(context.Background(), opSession, err)
}

// readSession reads a session's events until its end. An error of a writer is [stopped].
func readSession(r io.Reader, stdout, stderr io.Writer) (end holt.SessionEnd, err error) {
	buf := make([]byte, maxChunk)
	for {
		kind, _, data, err := readEventFrame(r, buf)
		if err != nil {
			return end, err
		}
		switch kind {
		case eventStdout:
			_, err = stdout.Write(data)
		case eventStderr:
			_, err = stderr.Write(data)
		case eventExit:
			if err := json.Unmarshal(data, &end); err != nil {
				return end, malformed("session's end", err)
			}
			end.ExitCode &= 0xff
			end.Signal = plain(end.Signal, 16)
			return end, nil
		default:
			return end, holt.Errorf(holt.Corrupt, "unknown session event of kind %d", kind)
		}
		if err != nil {
			return end, stopped{err}
		}
	}
}

// Resize sets the size of the session's terminal.
func (s *Session) Resize(ctx context.Context, size holt.TerminalSize) error {
	return s.c.call(ctx, opSessionDo, sessionArgs{ID: s.id, Size: &size}, nil)
}

// Signal sends a signal to the session's program.
func (s *Session) Signal(ctx context.Context, name string) error {
	return s.c.call(ctx, opSessionDo, sessionArgs{ID: s.id, Signal: name}, nil)
}

// Close ends the session, and running reads and writes.
func (s *Session) Close() error { return s.s.Close() }
