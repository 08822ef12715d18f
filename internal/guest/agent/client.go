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

// Hello describes a guest agent.
type Hello struct {
	Protocol  int       `json:"protocol"`
	Version   string    `json:"version"`  // of the agent
	Instance  string    `json:"instance"` // random, of this agent process; its runs end with it
	BootID    string    `json:"boot_id"`  // of the guest's kernel
	Hostname  string    `json:"hostname"`
	UptimeMS  int64     `json:"uptime_ms"` // of the guest, milliseconds
	Now       time.Time `json:"now"`       // the guest's clock
	Workspace Standing  `json:"workspace"`
	Runs      int       `json:"runs"` // running now
}

// Standing is the state of a guest's workspace mount.
type Standing byte

// The states in order: each lacks a step that the next one has.
const (
	Unmounted Standing = iota // not mounted
	Hostless                  // no session of the file channel
	Unwelcome                 // the host has not welcomed the mount, or pending requests are being resent
	Unbegun                   // the kernel's first request (INIT) is not answered
	Served
)

func (s Standing) String() string {
	names := [...]string{"not mounted", "mounted, but no host is connected", "mounted, but not welcomed by the host", "mounted, but its first request is not answered", "served"}
	if int(s) >= len(names) {
		return "in an unknown state"
	}
	return names[s]
}

// Identity distinguishes a machine from its copies. Zero fields are not changed.
type Identity struct {
	Hostname string      `json:"hostname,omitempty"` // a DNS label
	Now      time.Time   `json:"now,omitzero"`       // sets the clock
	Entropy  []byte      `json:"entropy,omitempty"`  // at most 512 bytes; the kernel's generator is reseeded
	Hosts    []HostEntry `json:"hosts,omitempty"`    // holt's block in /etc/hosts is replaced by these
	// MachineID is 32 hexadecimal digits. Setting it makes the machine a new one,
	// so its SSH host keys, if any, are replaced too.
	MachineID string `json:"machine_id,omitempty"`
	// Restored: the machine continues from a snapshot; its external TCP connections are reset.
	Restored bool `json:"restored,omitempty"`
	// Repeats: another machine was started from the same snapshot before. A machine id implies it.
	Repeats bool `json:"repeats,omitempty"`
	// NewHostKeys replaces the SSH host keys, if there are any, as a machine id does.
	NewHostKeys bool `json:"new_host_keys,omitempty"`
	// DiskSizeMB is the new size of an enlarged root disk, MiB: the machine waits
	// until the kernel sees it, and grows the root file system.
	DiskSizeMB int `json:"disk_size_mb,omitempty"`
	// Proxy configures the proxy for programs started from now on.
	Proxy *Proxy `json:"proxy,omitempty"`
}

// Identified is the identity of a machine as it sees itself.
type Identified struct {
	Hostname  string    `json:"hostname"`
	Now       time.Time `json:"now"` // its clock
	MachineID string    `json:"machine_id"`
	// Drawn is 32 bytes from its kernel's random number generator after it was
	// reseeded, or nil. No other program gets them.
	Drawn []byte `json:"drawn,omitempty"`
	// HostKeys are the fingerprints of its SSH host keys (ssh-keygen -l), and
	// FormerKeys those of replaced ones.
	HostKeys   []string `json:"host_keys,omitempty"`
	FormerKeys []string `json:"former_keys,omitempty"`
	Ended      int      `json:"ended,omitempty"` // connections that were reset
}

// Readiness is the progress of a machine's init.
type Readiness struct {
	// State is systemd's state: running, degraded (a unit has failed), maintenance,
	// stopping, …; running for another init.
	State string `json:"state"`
	// Unready are the requested units that are not up, at most 8.
	Unready []Unit `json:"unready,omitempty"`
}

// Unit is a systemd unit that is not up.
type Unit struct {
	Name  string `json:"name"`
	State string `json:"state"`         // as systemctl shows it: failed (failed), activating (auto-restart)
	Log   string `json:"log,omitempty"` // its last lines
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

// The kinds of file events. A rename out of the watched tree is a remove, a
// rename into it a create.
const (
	FileCreated  FileEventKind = "create"
	FileWritten  FileEventKind = "write"
	FileRemoved  FileEventKind = "remove"
	FileRenamed  FileEventKind = "rename"
	FileChanged  FileEventKind = "attrib"   // mode, owner or times
	FileOverflow FileEventKind = "overflow" // events were lost or directories are not watched: rescan
)

// Throughput is the result of Measure.
type Throughput struct {
	IntoGuest  float64 // MB/s, 10⁶ bytes
	OutOfGuest float64 // MB/s
}

// Client is the host's side of one guest's control channel. Its methods are safe
// for concurrent use; at most 1,024 operations run at once (TooMany). Errors are
// *holt.Error: the guest's own, sanitised, or Unavailable when the channel has
// ended, or Timeout when ctx has.
//
// Each method returns soon after its ctx ends, whatever the guest does. If a
// guest blocks the channel, by not reading or not finishing a frame, the whole
// channel is closed.
type Client struct {
	mux     *yamux.Session
	guard   *guardConn
	streams chan struct{}                                  // semaphore of streams
	stuck   time.Duration                                  // stuckAfter, except in tests
	mark    string                                         // see For
	told    func(op string, took time.Duration, err error) // see Observe; may be nil
}

// For returns a client for the same channel whose operations carry a mark, 1 to
// 8 hexadecimal digits: their changes of the workspace have the tag
// "for/<mark>".
func (c *Client) For(mark string) *Client {
	marked := *c
	marked.mark = mark
	return &marked
}

// Observe sets a function that is called after each operation, concurrently:
// with its name, the time until the guest agreed (or answered, if that is all),
// and the error. It must be called before the channel is used.
func (c *Client) Observe(fn func(op string, took time.Duration, err error)) { c.told = fn }

// stuckAfter is how long an operation whose context has ended may be blocked
// before the channel is closed. yamux's own waits (for the rest of a frame, for
// room to send) have no deadline.
const stuckAfter = 10 * time.Second

// NewClient speaks to the guest over conn, a session made by channel.Dial. It
// takes ownership of conn.
func NewClient(conn net.Conn) (*Client, error) {
	guard := newGuardConn(conn)
	mux, err := yamux.Client(guard, hostMuxConfig())
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open control channel: %w", err)
	}
	return &Client{mux: mux, guard: guard, streams: make(chan struct{}, maxStreams), stuck: stuckAfter}, nil
}

// Close closes the channel. Runs continue.
func (c *Client) Close() error { return c.mux.Close() }

// Done is closed when the channel has ended.
func (c *Client) Done() <-chan struct{} { return c.mux.CloseChan() }

// clientStream is the stream of one operation.
type clientStream struct {
	*yamux.Stream // nil until it is opened
	client        *Client
	ctx           context.Context
	stop          func() bool
	busy          atomic.Int32 // running calls into yamux
	over          atomic.Bool  // ctx has ended. yamux checks a deadline only when it waits, and a guest can prevent it from ever waiting

	mu    sync.Mutex // guards the fields below, and Stream until begin returns
	ended bool
	doom  *time.Timer // closes the channel if the operation does not return
}

// open requests an operation and returns its stream once the guest has agreed.
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
		return nil, holt.Errorf(holt.TooMany, "too many operations: %d are running in this guest", maxStreams).
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
	return s.ctx.Err() // giveUp may have been called already
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

// giveUp runs when ctx has ended.
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

// Close closes the stream on both sides without waiting for the guest. Running
// reads and writes return.
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

// call runs an operation of one request and one answer.
func (c *Client) call(ctx context.Context, op string, args, result any) error {
	s, err := c.open(ctx, op, args, result)
	if err != nil {
		return err
	}
	return s.Close()
}

// errEnded is wrapped if an operation was interrupted: the guest has neither done nor refused it.
var errEnded = errors.New("channel ended")

// Ended reports whether an operation failed because the guest or the channel
// ended. An ending agent closes its streams first, so [Client.Done] may not be
// closed yet.
func Ended(err error) bool { return errors.Is(err, errEnded) }

// describe turns the error of an operation into a holt.Error.
func describe(ctx context.Context, op string, err error) error {
	var known *holt.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return holt.Errorf(holt.Timeout, "guest agent, %s: cancelled: %w", op, context.Cause(ctx))
	case errors.Is(err, yamux.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return holt.Errorf(holt.Timeout, "guest agent, %s: %w", op, err)
	}
	return holt.Errorf(holt.Unavailable, "guest agent, %s: %w: %w", op, errEnded, err)
}

// Hello returns the agent's description.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var h Hello
	err := c.call(ctx, opHello, nil, &h)
	return vetHello(h), err
}

// Configure sets the machine's identity and returns the resulting one. An agent
// without a machine returns only its host name and clock.
func (c *Client) Configure(ctx context.Context, id Identity) (Identified, error) {
	var done Identified
	if err := c.call(ctx, opConfigure, id, &done); err != nil {
		return Identified{}, err
	}
	return vetIdentified(done)
}

// Ready waits until the machine's init has started everything, or limit has
// passed (zero: no limit), and syncs the root file system. It returns which of
// the named units are not up.
func (c *Client) Ready(ctx context.Context, units []string, limit time.Duration) (Readiness, error) {
	var r Readiness
	err := c.call(ctx, opReady, readyArgs{Units: units, LimitMS: limit.Milliseconds()}, &r)
	return vetReadiness(r, units), err
}

// Sync makes the guest's kernel write dirty pages of the workspace, which
// programs changed through mmap. It returns Conflict if a sync is running.
func (c *Client) Sync(ctx context.Context) error { return c.call(ctx, opSync, nil, nil) }

// Trim makes the machine discard the unused blocks of its root file system, for at most limit.
func (c *Client) Trim(ctx context.Context, limit time.Duration) error {
	return c.call(ctx, opTrim, trimArgs{LimitMS: limit.Milliseconds()}, nil)
}

// Shutdown starts a clean power-off and returns.
func (c *Client) Shutdown(ctx context.Context) error { return c.call(ctx, opShutdown, nil, nil) }
