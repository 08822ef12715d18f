package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"holt"
)

const (
	tunnelPiece = 32 << 10        // bytes that are passed on at once
	farewell    = 2 * time.Second // for a client to hear that the server ends
)

// tunnel is a WebSocket that carries a connection to a port. Nobody is cut off for being
// slow: the other side waits. Clients that have died are noticed by TCP.
type tunnel struct {
	s     *Server
	q     *request
	conn  *websocket.Conn
	far   holt.PortConn
	call  context.Context // that it began with
	ended chan struct{}   // closed when the client has sent its end
	busy  atomic.Int32    // calls that pass bytes on and have not returned
	moved atomic.Bool     // some were passed on since the last beat
}

// tunnel answers with a WebSocket to what connect connects to, or with its error.
func (s *Server) tunnel(ctx context.Context, r *http.Request, connect func(context.Context) (holt.PortConn, error)) *huma.StreamResponse {
	q := requestOf(ctx)
	return &huma.StreamResponse{Body: func(huma.Context) {
		s.sockets.Add(1)
		defer s.sockets.Done()
		waiting, stop := s.stream(ctx) // until it is a WebSocket net/http says when the caller has gone
		far, err := connect(waiting)
		stop()
		if err != nil {
			a := failed(ctx, err)
			q.fail(a.e, a.GetStatus())
			return
		}
		defer far.Close()
		conn, err := q.upgrade(r)
		if err != nil {
			q.err = err // it has answered
			return
		}
		conn.SetReadLimit(-1) // messages are passed on in pieces
		t := &tunnel{s: s, q: q, conn: conn, far: far, call: ctx, ended: make(chan struct{})}
		t.carry(context.WithoutCancel(ctx))
	}}
}

// carry passes bytes on both ways until the connection has ended.
func (t *tunnel) carry(ctx context.Context) {
	going, cancel := t.s.stream(ctx) // ends with the client, or the server
	defer context.AfterFunc(t.s.cutting, func() { t.conn.CloseNow() })()
	defer revoked(t.call, func() { t.refuse(cancel) })()
	context.AfterFunc(going, func() {
		t.far.Close()
		time.AfterFunc(farewell, func() { t.conn.CloseNow() }) // who reads nothing hears nothing
	})
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		t.listen(ctx)
		cancel()
	}()
	go t.ping(going)
	err := t.send(ctx)
	if err == nil {
		select {
		case <-t.ended:
		case <-going.Done():
		}
	}
	t.end(ctx, going, err)
	cancel()
	<-heard
}

// refuse ends a connection whose token may do nothing more.
func (t *tunnel) refuse(cancel context.CancelFunc) {
	t.q.err = context.Cause(t.call)
	t.conn.CloseNow()
	cancel()
}

// send passes on what comes from the port, and its end.
func (t *tunnel) send(ctx context.Context) error {
	buf := make([]byte, tunnelPiece)
	for {
		n, err := t.far.Read(buf)
		if n > 0 {
			if err := t.write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return err
			}
			t.q.bytes += int64(n)
		}
		if err == io.EOF {
			return t.say(ctx, holt.PortMessage{Kind: holt.PortEnd})
		} else if err != nil {
			return err
		}
	}
}

func (t *tunnel) write(ctx context.Context, kind websocket.MessageType, p []byte) error {
	t.busy.Add(1)
	defer t.busy.Add(-1)
	t.moved.Store(true)
	return t.conn.Write(ctx, kind, p)
}

func (t *tunnel) say(ctx context.Context, m holt.PortMessage) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return t.write(ctx, websocket.MessageText, body)
}

// end says why the connection ends, and closes the WebSocket. going has ended if it is over by the
// client's will, or the server's.
func (t *tunnel) end(ctx, going context.Context, err error) {
	defer t.conn.CloseNow()
	switch {
	case t.s.streams.Err() != nil:
		t.conn.Close(websocket.StatusGoingAway, "the daemon is ending")
	case going.Err() != nil: // the client has gone
	case err == nil:
		t.conn.Close(websocket.StatusNormalClosure, "both sides have sent their end")
	default:
		e := failed(t.q.r.Context(), err).e
		bounded, cancel := context.WithTimeout(ctx, t.s.opt.Patience)
		defer cancel()
		if t.say(bounded, holt.PortMessage{Kind: holt.PortError, Error: e}) == nil {
			t.conn.Close(websocket.StatusInternalError, string(e.Code))
		}
	}
}

// listen passes on what the client sends, until that has gone.
func (t *tunnel) listen(ctx context.Context) {
	for {
		kind, r, err := t.conn.Reader(ctx)
		if err == nil && kind == websocket.MessageText {
			err = t.control(r)
		} else if err == nil {
			err = t.pass(r)
		}
		var e *holt.Error
		if errors.As(err, &e) {
			t.conn.Close(websocket.StatusPolicyViolation, closeReason(e))
		}
		if err != nil {
			return
		}
	}
}

// control heeds a text message.
func (t *tunnel) control(r io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(r, mostControl+1))
	if err != nil {
		return err
	}
	var m holt.PortMessage
	if len(body) > mostControl || json.Unmarshal(body, &m) != nil || m.Kind != holt.PortEnd || t.over() {
		return holt.Errorf(holt.InvalidArgument, "unexpected text message")
	}
	close(t.ended)
	t.busy.Add(1)
	defer t.busy.Add(-1)
	t.far.CloseWrite() // a connection that has broken says so to who reads from it
	return nil
}

// over says whether the client has sent its end.
func (t *tunnel) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// pass passes a message's bytes on. A connection that has broken swallows them.
func (t *tunnel) pass(r io.Reader) error {
	if t.over() {
		return holt.Errorf(holt.InvalidArgument, "bytes after the end of the sending side")
	}
	buf := make([]byte, tunnelPiece)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			t.busy.Add(1)
			t.moved.Store(true)
			t.far.Write(buf[:n])
			t.busy.Add(-1)
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// ping shows whoever is between that a quiet connection is in use. Nobody has to answer:
// who waits for a slow program of its own hears no ping.
func (t *tunnel) ping(ctx context.Context) {
	beat := time.NewTicker(t.s.opt.Beat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		if t.moved.Swap(false) || t.busy.Load() > 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, t.s.opt.Beat)
		t.conn.Ping(bounded)
		cancel()
	}
}
