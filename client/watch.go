package client

import (
	"context"
	"net"
	"net/http/httptrace"
	"sync"
)

// watchedConn says when its peer is gone. http.Transport notices that too, but
// does not return from a call while it is blocked in reading the call's body.
type watchedConn struct {
	net.Conn
	once   sync.Once
	broken chan struct{}
}

func watched(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, broken: make(chan struct{})}, nil
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.once.Do(func() { close(w.broken) })
	}
	return n, err
}

// closeWithConn returns a context for a call that closes the call's body when
// its connection breaks.
func closeWithConn(ctx context.Context, body *attempt) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn
		if over, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
			conn = over.NetConn()
		}
		w, ok := conn.(*watchedConn)
		if !ok {
			return
		}
		go func() {
			select {
			case <-w.broken:
				body.Close()
			case <-body.closed: // the transport closes it when the call ends
			}
		}()
	}})
}
