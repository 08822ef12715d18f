package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
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
	Workspace Standing  `json:"workspace"`
	Runs      int       `json:"runs"` // running now
}

// Standing is how far a guest's workspace is from being served.
type Standing byte

// The steps, in their order. Each lacks what the next one has.
const (
	Unmounted Standing = iota // there is no mount
	Hostless                  // no host has begun a session of the file channel
	Unwelcome                 // the host has not welcomed the mount, or has not yet been sent all that waits for an answer
	Unbegun                   // the kernel's first request (INIT) is not answered
	Served
)

func (s Standing) String() string {
	names := [...]string{"not mounted", "mounted, and no host has come for it", "mounted, and not welcomed by its host", "mounted, and its first request is not answered", "served"}
	if int(s) >= len(names) {
		return "in a state that is not known"
	}
	return names[s]
}

// Identity is what makes a machine itself; zero fields are left as they are.
type Identity struct {
	Hostname string      `json:"hostname,omitempty"` // a DNS label
	Now      time.Time   `json:"now,omitzero"`       // sets the clock
	Entropy  []byte      `json:"entropy,omitempty"`  // at most 512 bytes; the kernel's generator is reseeded
	Hosts    []HostEntry `json:"hosts,omitempty"`    // holt's block in /etc/hosts is replaced by these
	// MachineID is 32 hexadecimal digits. A machine that is given one is another from
	// then on, so its SSH host keys, if it has any, are made new as well.
	MachineID string `json:"machine_id,omitempty"`
	// Restored: the machine goes on from a snapshot; its TCP connections to elsewhere end.
	Restored bool `json:"restored,omitempty"`
	// Repeats: a machine was started from the same snapshot before. A machine id implies it.
	Repeats bool `json:"repeats,omitempty"`
	// NewHostKeys has SSH host keys made new, if there are any, as a machine id does.
	NewHostKeys bool `json:"new_host_keys,omitempty"`
	// DiskSizeMB is how large its root disk is, MiB, if it was made larger: the machine
	// waits until it sees that, and grows its root file system.
	DiskSizeMB int `json:"disk_size_mb,omitempty"`
	// Proxy says what programs that begin from now on are told of their network's proxy.
	Proxy *Proxy `json:"proxy,omitempty"`
}

// Identified is what a machine is once it was given an identity, as it sees itself.
type Identified struct {
	Hostname  string    `json:"hostname"`
	Now       time.Time `json:"now"` // its clock
	MachineID string    `json:"machine_id"`
	// Drawn is what its kernel's random number generator gave after it was reseeded: 32 bytes
	// that nothing else gets. Nil unless it was.
	Drawn []byte `json:"drawn,omitempty"`
	// HostKeys are the fingerprints of its SSH host keys (ssh-keygen -l), and FormerKeys of those
	// it had before, if it was to make new ones.
	HostKeys   []string `json:"host_keys,omitempty"`
	FormerKeys []string `json:"former_keys,omitempty"`
	Ended      int      `json:"ended,omitempty"` // connections that were reset
}

// Readiness says how far a machine's init has come.
type Readiness struct {
	// State is systemd's: running, degraded (a unit has failed), maintenance, stopping, …;
	// running of a machine that has another init.
	State string `json:"state"`
	// Unready are those of the units asked for that are not up, at most 8.
	Unready []Unit `json:"unready,omitempty"`
}

// Unit is a unit of systemd that is not up.
type Unit struct {
	Name  string `json:"name"`
	State string `json:"state"`         // as systemctl shows it: failed (failed), activating (auto-restart)
	Log   string `json:"log,omitempty"` // the end of it, lines
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
// called concurrently; at most 1,024 operations go on at once (TooMany). Their
// errors are *holt.Error: the guest's own, in words that are safe to show, or
// Unavailable when the channel has ended, or Timeout when ctx has.
//
// Each returns soon after its ctx ends, whatever the guest does. If a guest
// that neither reads nor finishes what it has begun to send keeps one longer,
// the channel is ended for all.
type Client struct {
	mux     *yamux.Session
	guard   *guardConn
	streams chan struct{}                                  // a token for each stream
	stuck   time.Duration                                  // stuckAfter, but in tests
	mark    string                                         // see For
	told    func(op string, took time.Duration, err error) // see Observe; nil: nobody is
}

// For returns the same channel with operations that bear a mark, 1 to 8
// hexadecimal digits: what they change in the workspace comes with the tag
// "for/<mark>".
func (c *Client) For(mark string) *Client {
	marked := *c
	marked.mark = mark
	return &marked
}

// Observe has fn told of each operation: its name, one of a few, how long the guest took to agree, or to
// answer if there is nothing more to it, and the error. It is called before the channel is used, and fn concurrently.
func (c *Client) Observe(fn func(op string, took time.Duration, err error)) { c.told = fn }

// stuckAfter is how long an operation whose context has ended may be held up
// in the channel before the channel is ended. yamux's own waits (for a frame
// that was begun, for room to send) know no deadline.
const stuckAfter = 10 * time.Second

// NewClient speaks to the guest over conn, a session made by channel.Dial. It
// owns conn.
func NewClient(conn net.Conn) (*Client, error) {
	guard := newGuardConn(conn)
	mux, err := yamux.Client(guard, hostMuxConfig())
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open control channel: %w", err)
	}
	return &Client{mux: mux, guard: guard, streams: make(chan struct{}, maxStreams), stuck: stuckAfter}, nil
}

// Close ends the channel. Runs go on.
func (c *Client) Close() error { return c.mux.Close() }

// Done is closed when the channel has ended.
func (c *Client) Done() <-chan struct{} { return c.mux.CloseChan() }

// clientStream is the stream of one operation.
type clientStream struct {
	*yamux.Stream // nil until it was opened
	client        *Client
	ctx           context.Context
	stop          func() bool
	busy          atomic.Int32 // calls into yamux that have not returned
	over          atomic.Bool  // ctx has ended. yamux heeds a deadline only where it waits, and a guest can see to it that it never does

	mu    sync.Mutex // guards what follows, and Stream until begin returns
	ended bool
	doom  *time.Timer // ends the channel if the operation does not come back
}

// open asks for an operation and returns its stream once the guest has agreed.
func (c *Client) open(ctx context.Context, op string, args, result any) (_ *clientStream, err error) {
	if c.told != nil {
		defer func(began time.Time) { c.told(op, time.Since(began), err) }(time.Now())
	}
	if ctx.Err() != nil {
		return nil, describe(ctx, op, ctx.Err())
	}
	select {
	case c.streams <- struct{}{}:
	default:
		return nil, holt.Errorf(holt.TooMany, "%d operations go on in this guest already", maxStreams).
			WithHint("wait until some have ended")
	}
	s := &clientStream{client: c, ctx: ctx}
	s.stop = context.AfterFunc(ctx, s.giveUp)
	err = s.begin()
	if err == nil {
		err = s.ask(op, args, result)
	}
	if err != nil {
		s.Close()
		return nil, describe(ctx, op, err)
	}
	return s, nil
}

func (s *clientStream) begin() error {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	st, err := s.client.mux.OpenStream()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Stream = st
	return s.ctx.Err() // giveUp may have come before
}

func (s *clientStream) ask(op string, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	if err := writeMessage(s, request{V: Protocol, Op: op, Args: raw, For: s.client.mark}); err != nil {
		return err
	}
	return readAnswer(s, result)
}

func (s *clientStream) Read(p []byte) (int, error) {
	if s.over.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	s.busy.Add(1)
	defer s.busy.Add(-1)
	return s.Stream.Read(p)
}

func (s *clientStream) Write(p []byte) (int, error) {
	if s.over.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	s.busy.Add(1)
	defer s.busy.Add(-1)
	return s.Stream.Write(p)
}

// giveUp is called when ctx has ended.
func (s *clientStream) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.over.Store(true)
	if s.Stream != nil {
		s.SetDeadline(time.Unix(1, 0))
	}
	s.doom = time.AfterFunc(s.client.stuck, func() {
		if s.busy.Load() > 0 {
			s.client.mux.Close()
		}
	})
}

// Close ends the stream on both sides. It does not wait for the guest, and
// what still reads from the stream or writes to it returns.
func (s *clientStream) Close() error {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	if s.doom != nil {
		s.doom.Stop()
	}
	if s.Stream == nil {
		<-s.client.streams
		return nil
	}
	s.SetDeadline(time.Unix(1, 0))
	s.client.guard.leave(s.StreamID())
	go func() {
		s.Stream.Close()
		<-s.client.streams
	}()
	return nil
}

// call is an operation of one request and one answer.
func (c *Client) call(ctx context.Context, op string, args, result any) error {
	s, err := c.open(ctx, op, args, result)
	if err != nil {
		return err
	}
	return s.Close()
}

// errEnded is in the error of an operation that was broken off: the guest has neither done nor refused it.
var errEnded = errors.New("channel ended")

// Ended says whether an error of a [Client] is that the guest broke the operation off, or the channel did. An agent that
// ends closes its streams first, so that [Client.Done] may not have closed yet.
func Ended(err error) bool { return errors.Is(err, errEnded) }

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
	return holt.Errorf(holt.Unavailable, "guest agent, %s: %w: %w", op, errEnded, err)
}

// Hello asks who answers.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var h Hello
	err := c.call(ctx, opHello, nil, &h)
	return vetHello(h), err
}

// Configure gives the machine its identity, and returns what it is then. An
// agent that does not own its machine says nothing of that.
func (c *Client) Configure(ctx context.Context, id Identity) (Identified, error) {
	var done Identified
	if err := c.call(ctx, opConfigure, id, &done); err != nil {
		return Identified{}, err
	}
	return vetIdentified(done)
}

// Ready returns once the machine's init has started all that it starts by
// itself, or limit has passed (zero: none), and the root file system is synced. It
// says which of the units named are not up then.
func (c *Client) Ready(ctx context.Context, units []string, limit time.Duration) (Readiness, error) {
	var r Readiness
	err := c.call(ctx, opReady, readyArgs{Units: units, LimitMS: limit.Milliseconds()}, &r)
	return vetReadiness(r, units), err
}

// Sync has the guest's kernel write what it holds of the workspace in memory:
// pages that programs changed through mmap. Conflict while it does already.
func (c *Client) Sync(ctx context.Context) error { return c.call(ctx, opSync, nil, nil) }

// Trim has the machine tell its disk which bytes of the root file system are in no file any more, for at most limit.
func (c *Client) Trim(ctx context.Context, limit time.Duration) error {
	return c.call(ctx, opTrim, trimArgs{LimitMS: limit.Milliseconds()}, nil)
}

// Shutdown begins a clean power-off and returns.
func (c *Client) Shutdown(ctx context.Context) error { return c.call(ctx, opShutdown, nil, nil) }
