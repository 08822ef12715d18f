package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/yamux"

	"holt"
)

// Hello is how a guest agent introduces itself.
type Hello struct {
	Protocol  int       `json:"protocol"`
	Version   string    `json:"version"`  // of the agent's build
	Instance  string    `json:"instance"` // random, of this agent process; runs are lost with it
	BootID    string    `json:"boot_id"`  // of the guest's kernel
	Hostname  string    `json:"hostname"`
	UptimeMS  int64     `json:"uptime_ms"` // of the guest, milliseconds
	Now       time.Time `json:"now"`       // the guest's clock
	Workspace bool      `json:"workspace"` // the workspace is mounted and the host serves it
	Runs      int       `json:"runs"`      // running now
}

// Identity is what makes a machine itself; zero fields are left as they are.
type Identity struct {
	Hostname string      `json:"hostname,omitempty"` // a DNS label
	Now      time.Time   `json:"now,omitzero"`       // sets the clock
	Entropy  []byte      `json:"entropy,omitempty"`  // at most 512 bytes; the kernel's generator is reseeded
	Hosts    []HostEntry `json:"hosts,omitempty"`    // holt's block in /etc/hosts is replaced by these
}

// HostEntry is one line of /etc/hosts.
type HostEntry struct {
	Address string   `json:"address"`
	Names   []string `json:"names"`
}

// FileEvent is one change seen by Watch.
type FileEvent struct {
	Kind FileEventKind `json:"kind"`
	Path string        `json:"path"`
	From string        `json:"from,omitempty"` // for rename: the old path
	Dir  bool          `json:"dir,omitempty"`
}

// FileEventKind says what a [FileEvent] is.
type FileEventKind string

// The kinds of file events. A rename out of the watched tree is a remove, one
// into it a create.
const (
	FileCreated  FileEventKind = "create"
	FileWritten  FileEventKind = "write"
	FileRemoved  FileEventKind = "remove"
	FileRenamed  FileEventKind = "rename"
	FileChanged  FileEventKind = "attrib"   // mode, owner or times
	FileOverflow FileEventKind = "overflow" // events were lost or directories are not watched: look for yourself
)

// Throughput is what Measure found.
type Throughput struct {
	IntoGuest  float64 // MB/s, 10⁶ bytes
	OutOfGuest float64 // MB/s
}

// Client is the host's side of one guest's control channel. Its methods may be
// called concurrently. Their errors are *holt.Error: the guest's own, or
// Unavailable when the channel has ended, or Timeout when ctx has.
type Client struct {
	mux *yamux.Session
}

// NewClient speaks to the guest over conn, a session made by channel.Dial. It
// owns conn.
func NewClient(conn net.Conn) (*Client, error) {
	mux, err := yamux.Client(&guardConn{muxConn: newMuxConn(conn)}, muxConfig())
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open control channel: %w", err)
	}
	return &Client{mux: mux}, nil
}

// Close ends the channel. Runs go on.
func (c *Client) Close() error { return c.mux.Close() }

// Done is closed when the channel has ended.
func (c *Client) Done() <-chan struct{} { return c.mux.CloseChan() }

// clientStream is the stream of one operation.
type clientStream struct {
	*yamux.Stream
	ctx  context.Context
	stop func() bool
}

// open asks for an operation and returns its stream once the guest has agreed.
func (c *Client) open(ctx context.Context, op string, args, result any) (*clientStream, error) {
	if ctx.Err() != nil {
		return nil, describe(ctx, op, ctx.Err())
	}
	st, err := c.mux.OpenStream()
	if err != nil {
		return nil, describe(ctx, op, err)
	}
	s := &clientStream{Stream: st, ctx: ctx}
	s.stop = context.AfterFunc(ctx, func() { st.SetDeadline(time.Unix(1, 0)) })
	if err := s.ask(op, args, result); err != nil {
		s.Close()
		return nil, describe(ctx, op, err)
	}
	return s, nil
}

func (s *clientStream) ask(op string, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	if err := writeMessage(s.Stream, request{V: Protocol, Op: op, Args: raw}); err != nil {
		return err
	}
	return readAnswer(s.Stream, result)
}

// Close ends the stream on both sides.
func (s *clientStream) Close() error {
	s.stop()
	return s.Stream.Close()
}

// call is an operation of one request and one answer.
func (c *Client) call(ctx context.Context, op string, args, result any) error {
	s, err := c.open(ctx, op, args, result)
	if err != nil {
		return err
	}
	return s.Close()
}

// describe turns what ended an operation into a holt.Error.
func describe(ctx context.Context, op string, err error) error {
	var known *holt.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return holt.Errorf(holt.Timeout, "guest agent, %s: gave up waiting: %w", op, context.Cause(ctx))
	case errors.Is(err, yamux.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return holt.Errorf(holt.Timeout, "guest agent, %s: %w", op, err)
	}
	return holt.Errorf(holt.Unavailable, "guest agent, %s: channel ended: %w", op, err)
}

// Hello asks who answers.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var h Hello
	err := c.call(ctx, opHello, nil, &h)
	return h, err
}

// Configure gives the machine its identity.
func (c *Client) Configure(ctx context.Context, id Identity) error {
	return c.call(ctx, opConfigure, id, nil)
}

// Freeze flushes and freezes the root file system until Thaw or until limit has
// passed (zero: 10 s; at most 60 s).
func (c *Client) Freeze(ctx context.Context, limit time.Duration) error {
	return c.call(ctx, opFreeze, freezeArgs{LimitMS: limit.Milliseconds()}, nil)
}

// Thaw ends a freeze. Without one, or when the limit has ended it, it is
// Conflict: what was done meanwhile was not done on a frozen disk.
func (c *Client) Thaw(ctx context.Context) error { return c.call(ctx, opThaw, nil, nil) }

// Shutdown begins a clean power-off and returns.
func (c *Client) Shutdown(ctx context.Context) error { return c.call(ctx, opShutdown, nil, nil) }
