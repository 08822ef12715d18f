package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"holt"
)

const (
	mostControl = 64 << 10 // bytes of a client's text message
	inputPiece  = 32 << 10 // bytes of input that are passed on at once
)

// socket is a terminal's WebSocket. It is made when the noun has attached, so
// that an error before that still has a status of its own.
type socket struct {
	s      *Server
	q      *request
	r      *http.Request
	ctx    context.Context // of the attachment
	cancel context.CancelFunc
	signal func(ctx context.Context, signal string) error
	in     chan holt.TerminalInput
	conn   *websocket.Conn // nil before it is made
	busy   atomic.Bool     // the reader passes input on, and hears no pong
	wg     sync.WaitGroup
}

// socket answers with a WebSocket that attach speaks through.
func (s *Server) socket(ctx context.Context, r *http.Request, attach func(context.Context, *socket) error) *huma.StreamResponse {
	q := requestOf(ctx)
	return &huma.StreamResponse{Body: func(huma.Context) {
		s.sockets.Add(1)
		defer s.sockets.Done()
		k := &socket{s: s, q: q, r: r, in: make(chan holt.TerminalInput)}
		k.ctx, k.cancel = s.stream(context.WithoutCancel(ctx)) // net/http no longer says when the caller has gone
		defer revoked(ctx, k.cancel)()
		err := attach(k.ctx, k)
		if why := context.Cause(ctx); holt.CodeOf(why) == holt.Unauthenticated && k.conn != nil {
			k.refuse(why)
		}
		if k.conn == nil {
			k.cancel()
			if err != nil && q.status == 0 {
				a := failed(ctx, err)
				q.fail(a.e, a.GetStatus())
			}
			return
		}
		k.end(err)
		k.cancel()
		k.wg.Wait()
	}}
}

// refuse tells a client that its token may do nothing more.
func (k *socket) refuse(why error) {
	k.q.err = why
	if k.text(holt.TerminalEvent{Kind: holt.TerminalError, Error: holt.AsError(why)}) == nil {
		k.conn.Close(websocket.StatusPolicyViolation, string(holt.Unauthenticated))
	}
}

// end says why the attachment ends and closes the connection.
func (k *socket) end(err error) {
	switch {
	case err == nil:
		k.conn.Close(websocket.StatusNormalClosure, "the terminal has ended")
	case k.s.streams.Err() != nil:
		k.conn.Close(websocket.StatusGoingAway, "the daemon is ending")
	case k.ctx.Err() != nil: // the client has gone
		k.conn.CloseNow()
	default:
		k.q.err = err
		e := failed(k.q.r.Context(), err).e
		if k.text(holt.TerminalEvent{Kind: holt.TerminalError, Error: e}) == nil {
			k.conn.Close(websocket.StatusInternalError, string(e.Code))
		}
		k.conn.CloseNow()
	}
}

// emit sends one event.
func (k *socket) emit(e holt.TerminalEvent) error {
	if k.conn == nil {
		if err := k.accept(); err != nil {
			return err
		}
	}
	if e.Kind == holt.TerminalOutput {
		return k.write(websocket.MessageBinary, e.Data)
	}
	return k.text(e)
}

// accept makes the connection. What it answers to a bad handshake is its own.
func (k *socket) accept() error {
	conn, err := k.q.upgrade(k.r)
	if err != nil {
		return holt.Errorf(holt.InvalidArgument, "cannot open the WebSocket: %w", err)
	}
	conn.SetReadLimit(-1) // messages are passed on in pieces
	k.conn = conn
	context.AfterFunc(k.s.cutting, func() { conn.CloseNow() })
	context.AfterFunc(k.ctx, func() {
		time.AfterFunc(farewell, func() { conn.CloseNow() }) // who reads nothing hears nothing
	})
	k.wg.Go(k.listen)
	k.wg.Go(k.ping)
	return nil
}

func (k *socket) text(e holt.TerminalEvent) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return k.write(websocket.MessageText, body)
}

// write sends a message, within the patience that slow clients have.
func (k *socket) write(kind websocket.MessageType, p []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), k.s.opt.Patience)
	defer cancel()
	err := k.conn.Write(ctx, kind, p)
	if err == nil {
		k.q.bytes += int64(len(p))
	}
	return err
}

// listen passes on what the client sends until the connection is closed.
func (k *socket) listen() {
	defer k.cancel()
	for {
		kind, r, err := k.conn.Reader(context.WithoutCancel(k.ctx)) // or its end would be that of the connection, and none could say why
		if err == nil && kind == websocket.MessageBinary {
			err = k.input(r)
		} else if err == nil {
			err = k.control(r)
		}
		if err != nil {
			var e *holt.Error
			if errors.As(err, &e) {
				k.conn.Close(websocket.StatusPolicyViolation, closeReason(e))
			}
			return
		}
	}
}

// closeReason is what a connection is closed with: a longer one than 123 bytes (RFC 6455, 5.5) would not be sent at all.
func closeReason(e *holt.Error) string { return holt.Clip(e.Message, 100) }

func (k *socket) input(r io.Reader) error {
	for {
		piece := make([]byte, inputPiece)
		n, err := r.Read(piece)
		if n > 0 && !k.pass(holt.TerminalInput{Data: piece[:n]}) {
			return k.ctx.Err()
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (k *socket) control(r io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(r, mostControl+1))
	if err != nil {
		return err
	}
	var c socketControl
	if len(body) > mostControl || json.Unmarshal(body, &c) != nil {
		return holt.Errorf(holt.InvalidArgument, "a text message is not a control message")
	}
	switch c.Kind {
	case "resize":
		k.pass(holt.TerminalInput{Size: &c.Size})
		return nil
	case "wake":
		k.pass(holt.TerminalInput{})
		return nil
	case "signal":
		if err := k.signal(k.ctx, c.Signal); holt.CodeOf(err) == holt.InvalidArgument {
			return err
		}
		return nil // that nothing runs is no reason to go
	}
	return holt.Errorf(holt.InvalidArgument, "unknown control message %q", clip(c.Kind))
}

// pass waits until the terminal takes input.
func (k *socket) pass(in holt.TerminalInput) bool {
	k.busy.Store(true)
	defer k.busy.Store(false)
	select {
	case k.in <- in:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// ping ends the attachment of a client that does not answer.
func (k *socket) ping() {
	beat := time.NewTicker(k.s.opt.Beat)
	defer beat.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-beat.C:
		}
		ctx, cancel := context.WithTimeout(k.ctx, k.s.opt.Patience)
		err := k.conn.Ping(ctx)
		cancel()
		if err != nil && !k.busy.Load() {
			k.cancel()
			return
		}
	}
}
