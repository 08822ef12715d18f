package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"holt"
)

// lostError is a connection that could not be made, or broke before the whole
// answer was there. For everyone else it is the [holt.Error] it wraps.
type lostError struct {
	*holtError
	dial bool // nothing was sent
}

// holtError has a name that does not hide the method Error.
type holtError = holt.Error

func (e *lostError) Unwrap() error { return e.holtError }

// broken says what it means that no answer came.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return holt.Errorf(holt.Timeout, "the daemon did not answer in time: %w", ctx.Err())
		}
		return holt.Errorf(holt.Unavailable, "the call was cancelled: %w", ctx.Err())
	}
	if refused := c.distrusted(err); refused != nil {
		return refused
	}
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial"
	if dial {
		return &lostError{holt.Errorf(holt.Unavailable, "no daemon answers at %s: %w", c.place, op.Err).
			WithHint("start one with holt up, or set %s, %s or %s to reach another", holt.EnvDataDir, holt.EnvSocket, holt.EnvServer), true}
	}
	return &lostError{holt.Errorf(holt.Unavailable, "the connection to the daemon broke: %w", err).
		WithHint("if the daemon was restarted, try again; otherwise see holt doctor"), false}
}

// wait paces the attempts of one call. The zero value is a call that was not
// tried yet.
type wait struct {
	since time.Time // of the first failure since anything arrived
	pause time.Duration
}

// again waits and says whether to try once more. A daemon that refuses the
// connection and never answered is not being restarted: it is not there.
func (c *Client) again(ctx context.Context, w *wait, lost *lostError) bool {
	now := time.Now()
	if w.since.IsZero() {
		if lost != nil && lost.dial && !c.reached.Load() {
			return false
		}
		w.since = now
	}
	if now.Sub(w.since) >= c.patience {
		return false
	}
	w.pause = min(max(2*w.pause, 20*time.Millisecond), time.Second)
	timer := time.NewTimer(w.pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// decodeError returns the error that an answer holds.
func decodeError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostError))
	var e holt.Error
	if err != nil || json.Unmarshal(data, &e) != nil || e.Code == "" {
		return holt.Errorf(holt.Unavailable, "the server that answered is not a holt daemon (HTTP status %d)", resp.StatusCode).
			WithHint("check the address, http:// or https://, and any proxy in between")
	}
	return &e
}
