package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/coder/websocket"

	"holt"
	"holt/internal/api"
)

// Ports are what listens in computers.
type Ports struct{ c *Client }

// List returns what listens in a computer, by port.
func (n Ports) List(ctx context.Context, computer string) ([]holt.Listener, error) {
	return doList(ctx, n.c, api.ListPorts, api.ComputerList{OneComputer: api.OneComputer{computer}})
}

// Connect connects to a port or a unix socket of a computer, which is woken if need be. The connection
// outlives ctx. Unavailable: nothing listens there. While a daemon that was there is being
// restarted it waits for the next; a connection that is open then ends.
func (n Ports) Connect(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error) {
	k := callOf(api.ConnectPort, api.PortConnect{api.OneComputer{computer}, to.Port, string(to.Socket)})
	return n.c.tunnel(ctx, k.path, k.query)
}

// tunnel makes a WebSocket that carries a connection.
func (c *Client) tunnel(ctx context.Context, path string, query url.Values) (holt.PortConn, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	var w wait
	for {
		conn, err := c.webSocket(ctx, path, query)
		if err == nil {
			going, cancel := context.WithCancel(context.Background())
			return &portConn{c: c, conn: conn, ctx: going, cancel: cancel}, nil
		}
		var lost *lostError // nothing was sent through it yet
		if !errors.As(err, &lost) || !c.again(ctx, &w, lost) {
			return nil, err
		}
	}
}

// webSocket makes a WebSocket, or returns the error that it was refused with.
func (c *Client) webSocket(ctx context.Context, path string, query url.Values) (*websocket.Conn, error) {
	header := http.Header{}
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token)
	}
	if c.tenant != "" {
		header.Set("Holt-Tenant", c.tenant)
	}
	conn, resp, err := websocket.Dial(ctx, c.url+path+"?"+query.Encode(), &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: header})
	if err == nil {
		c.reached.Store(true)
		conn.SetReadLimit(-1) // messages are taken in pieces
		return conn, nil
	}
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, c.broken(ctx, err)
	}
	c.reached.Store(true)
	return nil, decodeError(resp)
}

// portConn is a connection to a port over a WebSocket; see the API for its messages.
type portConn struct {
	c      *Client
	conn   *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc

	message io.Reader // that is being read; nil: none
	over    error     // what every Read returns from now on

	mu     sync.Mutex // held while something is sent
	ended  bool       // the end was sent
	closed sync.Once
}

func (p *portConn) Read(b []byte) (int, error) {
	for p.over == nil {
		if p.message == nil {
			p.over = p.next()
			continue
		}
		n, err := p.message.Read(b)
		if err == io.EOF {
			p.message, err = nil, nil
		} else if err != nil {
			p.over = p.broken(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, p.over
}

// next begins the next message of bytes, or returns why there is none.
func (p *portConn) next() error {
	kind, r, err := p.conn.Reader(p.ctx)
	if err != nil {
		return p.broken(err)
	}
	if kind == websocket.MessageBinary {
		p.message = r
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r, mostNews+1))
	if err != nil {
		return p.broken(err)
	}
	var m holt.PortMessage
	if len(body) <= mostNews && json.Unmarshal(body, &m) == nil {
		switch {
		case m.Kind == holt.PortEnd:
			go p.drain()
			return io.EOF
		case m.Kind == holt.PortError && m.Error != nil && m.Error.Code != "":
			return m.Error
		}
	}
	return holt.Errorf(holt.Corrupt, "the daemon sent an invalid message on the connection")
}

// drain hears how the connection ends when all was read.
func (p *portConn) drain() {
	for {
		if _, r, err := p.conn.Reader(p.ctx); err != nil {
			return
		} else if _, err := io.Copy(io.Discard, r); err != nil {
			return
		}
	}
}

// broken says why nothing comes any more.
func (p *portConn) broken(err error) error {
	switch {
	case p.ctx.Err() != nil:
		return holt.Errorf(holt.Unavailable, "the connection was closed")
	case websocket.CloseStatus(err) == websocket.StatusGoingAway:
		return &lostError{holt.Errorf(holt.Unavailable, "the daemon ended and closed the connection").
			WithHint("connect again when it is back"), false}
	}
	return p.c.broken(p.ctx, err)
}

func (p *portConn) Write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n < len(b) && err == nil {
		if p.ended {
			return n, holt.Errorf(holt.InvalidArgument, "cannot write: the sending side is closed")
		}
		piece := b[n:min(len(b), n+typedPiece)]
		if err = p.conn.Write(p.ctx, websocket.MessageBinary, piece); err == nil {
			n += len(piece)
		}
	}
	if err != nil {
		err = p.broken(err)
	}
	return n, err
}

// CloseWrite ends what is sent.
func (p *portConn) CloseWrite() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	p.ended = true
	body, err := json.Marshal(holt.PortMessage{Kind: holt.PortEnd})
	if err == nil {
		err = p.conn.Write(p.ctx, websocket.MessageText, body)
	}
	if err != nil {
		return p.broken(err)
	}
	return nil
}

// Close ends the connection, at once unless both ends were sent: then what was written arrives.
func (p *portConn) Close() error {
	p.closed.Do(func() {
		p.cancel()
		p.conn.CloseNow()
	})
	return nil
}
