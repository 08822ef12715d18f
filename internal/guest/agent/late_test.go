package agent

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// If a caller ends before the agent reads its request, the agent answers
// without acknowledging the stream. That must not end the channel for others.
func TestLateAnswer(t *testing.T) {
	gone := make(chan struct{})
	c := hostile(t, func(conn net.Conn) {
		mux, err := yamux.Server(conn, muxConfig())
		if err != nil {
			return
		}
		for <-gone; ; {
			st, err := mux.AcceptStream()
			if err != nil {
				return
			}
			writeAnswer(st, Hello{Instance: "x"}, nil)
			st.Close()
		}
	})
	for n := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := c.Hello(ctx); err == nil && n == 0 {
			t.Error("it was answered before it was asked")
		}
		cancel()
		if n == 0 {
			time.Sleep(5 * time.Millisecond) // the end of the question has gone out
			close(gone)
		}
		if h, err := c.Hello(t.Context()); err != nil || h.Instance != "x" {
			t.Fatalf("the next one: %+v, %v", h, err)
		}
	}
}
