package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// eventStream writes server-sent events (WHATWG HTML, section 9.2). Its lock
// orders events and beats.
type eventStream struct {
	mu  sync.Mutex
	q   *request
	buf bytes.Buffer
}

// end returns the offset behind an event: where a follower continues.
func end(e holt.RunEvent) int64 { return e.Offset + int64(len(e.Data)) + e.Dropped }

func (s *eventStream) send(e holt.RunEvent) error {
	return s.put(string(e.Kind), "id: "+strconv.FormatInt(end(e), 10)+"\n", e)
}

// put sends one event; id is its line, or "" to leave the client's as it is.
func (s *eventStream) put(name, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Reset()
	s.buf.WriteString(id)
	s.buf.WriteString("event: ")
	s.buf.WriteString(name)
	s.buf.WriteString("\ndata: ")
	s.buf.Write(data) // one line: JSON escapes line ends
	s.buf.WriteString("\n\n")
	return s.write()
}

// beat sends a comment, so that both sides notice when the other is gone.
func (s *eventStream) beat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Reset()
	s.buf.WriteString(": still here\n\n")
	return s.write()
}

func (s *eventStream) write() error {
	_, err := s.q.Write(s.buf.Bytes())
	s.q.Flush()
	return err
}

// events answers with a stream of the events that follow emits. It ends with
// an exit event, with an event named error whose data is a [holt.Error], or,
// when the daemon ends, with neither.
func (s *Server) events(ctx context.Context, follow func(context.Context, func(holt.RunEvent) error) error) *huma.StreamResponse {
	return s.eventStream(ctx, func(ctx context.Context, stream *eventStream) error {
		defer stream.q.wait(ctx)() // the command waits too, see [holt.RunSpec].Detached
		return follow(ctx, stream.send)
	})
}

// eventStream answers with server-sent events: those that tell puts, and one named error if it fails.
func (s *Server) eventStream(ctx context.Context, tell func(context.Context, *eventStream) error) *huma.StreamResponse {
	q := requestOf(ctx)
	return &huma.StreamResponse{Body: func(huma.Context) {
		ctx, cancel := s.stream(ctx)
		stream := &eventStream{q: q}
		q.Header().Set("Content-Type", "text/event-stream")
		q.Header().Set("X-Accel-Buffering", "no") // for proxies
		q.WriteHeader(http.StatusOK)
		q.Flush()
		beats := make(chan struct{})
		go func() {
			defer close(beats)
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(s.opt.Beat):
					if stream.beat() != nil {
						cancel()
						return
					}
				}
			}
		}()
		err := tell(ctx, stream)
		cancel()
		<-beats // it writes to q, which ends with this call
		if err != nil && s.streams.Err() == nil {
			_ = stream.put("error", "", failed(q.r.Context(), err).e) // who hung up needs none
		}
	}}
}
