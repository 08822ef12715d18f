package computer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
	"holt/internal/network"
	"holt/internal/workspace"
)

// FileServer serves one session of a guest's file channel until conn or ctx ends, and closes conn.
// writer maps the tag of a request, which is untrusted, to the writer of its change.
type FileServer func(ctx context.Context, ws *workspace.Workspace, conn net.Conn, writer func(tag string) workspace.Writer) error

// guestState is what a guest has of an identity before it is given one.
type guestState int

const (
	guestConfigured   guestState = iota // it has its own; a reboot is a new boot
	guestBooted                         // it has none
	guestResumed                        // it has that of the snapshot that it was resumed from
	guestResumedAgain                   // likewise, and another guest was resumed from the same snapshot: random numbers repeat
)

// resumed reports whether the guest has the identity of a snapshot.
func (s guestState) resumed() bool { return s >= guestResumed }

// live is a running machine and the two channels into it. Its goroutines redial
// a channel that breaks, until the machine ends or the daemon lets go of it.
type live struct {
	id     holt.ComputerID
	engine machine.Engine
	m      machine.Machine
	net    *network.Link // nil: the machine has none
	ws     *workspace.Workspace
	log    *slog.Logger

	observe Observer
	release func() // of ws
	units   units

	serve      FileServer
	limits     Limits
	keep       workspace.Retention
	runTracker *runTracker
	runs       *runSet
	terminals  *terminalSet
	marks      marks
	busy       *busy        // what works in the guest by itself
	look       notification // the idle timeout was changed; see [idler.watch]
	launched   time.Time

	// What the guest is given; used by controlLoop only.
	guest      guestState
	bootID     string // of the guest when it was last configured
	hostname   string
	machineID  string // "": the guest keeps the one it has
	newKeys    bool   // it boots from its image for the first time, and must not keep the image's SSH host keys
	diskSizeMB int    // 0 unless its disk is larger than the guest believes

	greeted func(context.Context, agent.Identified) error // records what the guest is now; see [table.identify]
	proxy   func(context.Context) (*agent.Proxy, error)   // what the guest is told of its proxy; nil: nothing
	explain func(*holt.OutOfMemory)                       // adds the command that gives more memory
	stood   notification                                  // the guest's processors were stopped for a snapshot

	ctx    context.Context
	cancel context.CancelFunc // nil before connect
	wg     sync.WaitGroup

	mu      sync.Mutex
	client  *agent.Client // nil while the control channel is down
	up      chan struct{} // closed while client is set
	fault   error         // why the control channel is down; nil when up or never tried
	refusal error         // why the guest cannot be given its identity; nil when up
}

// connect starts to serve both channels.
func (l *live) connect(ctx context.Context) {
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.wg.Go(l.controlLoop)
	l.wg.Go(l.filesLoop)
}

// close closes the channels, not the machine, and waits for the goroutines.
func (l *live) close() {
	l.cancel()
	l.wg.Wait()
}

// backoff waits before the next try, or until ctx ends.
func backoff(ctx context.Context, try int) {
	const first, most = 50 * time.Millisecond, 2 * time.Second
	t := time.NewTimer(min(first<<min(try, 10), most))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// patience is how long the first connection to a port waits for the guest; each next one waits
// twice as long. One connection may be dead where the next is not (see "Traps" of package qemu),
// and a guest may be booting. A resumed guest usually answers in 0.2 s, but on a busy host it takes
// a second, and every abandoned connection costs it another preamble.
const patience = 2 * time.Second

// dial opens a session on a port, with as many connections as ctx has time for.
func (l *live) dial(ctx context.Context, port string) (net.Conn, error) {
	return dial(ctx, l.m, port)
}

// dial is the same for a machine that has no computer.
func dial(ctx context.Context, m machine.Machine, port string) (net.Conn, error) {
	for wait := patience; ; wait *= 2 {
		try, cancel := context.WithTimeout(ctx, wait)
		conn, err := session(try, m, port)
		cancel()
		if err == nil || ctx.Err() != nil || holt.CodeOf(err) != holt.Timeout {
			return conn, err
		}
	}
}

// session makes one connection into a session.
func session(ctx context.Context, m machine.Machine, port string) (net.Conn, error) {
	conn, err := m.Dial(ctx, port)
	if err != nil {
		return nil, err
	}
	return channel.Dial(ctx, conn) // closes conn when it fails
}

// steady is how long a session lasts that was not broken on purpose. After a shorter one the redial
// is delayed more and more.
const steady = 10 * time.Second

// again counts the tries since the last steady session.
func again(try int, lasted time.Duration) int {
	if lasted >= steady {
		return 0
	}
	return try + 1
}

func (l *live) controlLoop() {
	for try := 0; l.alive(); {
		client, err := l.dialControl()
		began := time.Now()
		if err == nil {
			l.set(client, nil)
			err = l.beat(client)
			client.Close()
		}
		l.set(nil, err)
		backoff(l.ctx, try)
		try = again(try, time.Since(began))
	}
}

// alive reports whether redialling makes sense.
func (l *live) alive() bool {
	select {
	case <-l.ctx.Done():
		return false
	case <-l.m.Done():
		return false
	default:
		return true
	}
}

func (l *live) dialControl() (*agent.Client, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.limits.Dial)
	defer cancel()
	conn, err := l.dial(ctx, machine.PortControl)
	if err != nil {
		return nil, err
	}
	client, err := agent.NewClient(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	client.Observe(l.observe.Agent)
	asked := time.Now()
	h, err := client.Hello(ctx)
	if err == nil {
		err = l.greet(ctx, client, h)
	}
	if err == nil {
		err = l.keepTime(ctx, client, asked, h)
	}
	if err == nil {
		if told := l.sendProxy(ctx, client); told != nil {
			l.log.Warn("send proxy settings to guest", "computer", l.id, "err", told)
		}
		err = l.runTracker.reconcile(ctx, client)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// clockError is the tolerated error of a guest's clock after it was set.
const clockError = time.Second

// clockTries bounds how often a guest's clock is set: on a very busy host it may never be exact.
const clockTries = 5

// setClock sets a guest's clock until it is late by at most half of clockError: the time that a
// guest is given is as old as the message, which may take long. It returns the guest's clock; a
// guest without one reports the zero time.
func setClock(says time.Time, set func(now time.Time) (time.Time, error)) (time.Time, error) {
	for range clockTries {
		if says.IsZero() || time.Since(says) <= clockError/2 {
			break
		}
		var err error
		if says, err = set(time.Now()); err != nil {
			return says, err
		}
	}
	return says, nil
}

// clockOf returns a function that sets a guest's clock and returns what it is then.
func clockOf(ctx context.Context, client *agent.Client) func(time.Time) (time.Time, error) {
	return func(now time.Time) (time.Time, error) {
		is, err := client.Configure(ctx, agent.Identity{Now: now})
		return is.Now, err
	}
}

// keepTime sets a wrong clock. A guest's clock stops with its processors: during a snapshot, after
// the crash of a daemon that was taking one, and while the host sleeps.
func (l *live) keepTime(ctx context.Context, client *agent.Client, asked time.Time, h agent.Hello) error {
	if !wrongClock(h.Now, asked, time.Now()) {
		return nil
	}
	set := clockOf(ctx, client)
	now, err := set(time.Now())
	if err == nil {
		now, err = setClock(now, set)
	}
	l.log.InfoContext(ctx, "guest clock set", "computer", l.id, "was", h.Now, "is", now, "err", err)
	return err
}

// wrongClock reports whether a clock that was read between two instants was off by more than half
// of clockError.
func wrongClock(says, asked, answered time.Time) bool {
	return !says.IsZero() && (says.Before(asked.Add(-clockError/2)) || says.After(answered.Add(clockError/2)))
}

// beat returns when the channel has ended or the agent does not answer: a connection to a hung
// guest never fails by itself.
func (l *live) beat(client *agent.Client) error {
	tick := time.NewTicker(l.limits.Beat)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return nil
		case <-client.Done():
			return errors.New("the control channel ended")
		case <-tick.C:
		case <-l.stood:
		}
		ctx, cancel := context.WithTimeout(l.ctx, l.limits.Answer)
		asked := time.Now()
		h, err := client.Hello(ctx)
		if err == nil {
			err = l.keepTime(ctx, client, asked, h)
		}
		cancel()
		if err != nil && l.ctx.Err() == nil {
			l.log.Warn("guest agent does not answer", "computer", l.id, "err", err)
			return err
		}
	}
}

func (l *live) filesLoop() {
	for try := 0; l.alive(); {
		conn, err := l.dialFiles()
		began := time.Now()
		if err == nil {
			err = l.serve(l.ctx, l.ws, conn, l.runTracker.writer)
		}
		if err != nil && l.ctx.Err() == nil {
			l.log.Warn("file channel failed", "computer", l.id, "err", err)
		}
		backoff(l.ctx, try)
		try = again(try, time.Since(began))
	}
}

func (l *live) dialFiles() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.limits.Dial)
	defer cancel()
	return l.dial(ctx, machine.PortFiles)
}

// set publishes the control channel, or why it is down.
func (l *live) set(client *agent.Client, fault error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if client != nil && l.client == nil {
		close(l.up)
	}
	if client == nil && l.client != nil {
		l.up = make(chan struct{})
	}
	l.client = client
	if client != nil {
		l.refusal = nil
	}
	if fault != nil || client != nil {
		l.fault = fault
	}
}

// refuse records the error of giving the guest its identity. Callers that wait for the guest get it.
func (l *live) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
	if l.client == nil {
		close(l.up)
		l.up = make(chan struct{})
	}
}

// drop removes a broken client before beat notices.
func (l *live) drop(client *agent.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == client {
		l.client, l.up = nil, make(chan struct{})
	}
}

func (l *live) refused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal
}

func (l *live) state() (*agent.Client, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client, l.up, l.fault
}

// agent returns the client of the guest agent. It waits up to limit for a channel that is down.
func (l *live) agent(ctx context.Context, limit time.Duration) (*agent.Client, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		client, up, fault := l.state()
		if client != nil && !broken(client) {
			return client, nil
		}
		if client != nil {
			l.drop(client)
			continue
		}
		if err := l.refused(); err != nil {
			return nil, err
		}
		select {
		case <-up:
		case <-l.m.Done():
			return nil, holt.Errorf(holt.Unavailable, "the computer's machine has ended").
				WithHint("start it with holt computer start")
		case <-l.ctx.Done():
			return nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("try again when it is back")
		case <-ctx.Done():
			return nil, gone(ctx)
		case <-t.C:
			if fault == nil {
				fault = errors.New("no answer yet")
			}
			return nil, notAnswering(fault)
		}
	}
}

func notAnswering(cause error) *holt.Error {
	return holt.Errorf(holt.Unavailable, "the guest agent does not answer: %w", cause).
		WithHint("the guest may be overloaded, or its agent may have been killed: see holt computer logs; holt computer stop and start boots it again")
}

// do calls act with the guest agent, each attempt bounded by limit. If the channel breaks and
// repeat is set, it tries once more.
func (l *live) do(ctx context.Context, limit time.Duration, repeat bool, act func(context.Context, *agent.Client) error) error {
	for try := 0; ; try++ {
		client, err := l.agent(ctx, l.limits.Reconnect)
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, limit)
		err = act(bounded, client)
		expired := bounded.Err() != nil
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return gone(ctx)
		case expired:
			return notAnswering(err)
		case !cut(client, err) || holt.CodeOf(err) != holt.Unavailable:
			return err
		case !repeat || try > 0:
			return notAnswering(err)
		case !broken(client): // it ends, and its channel with it
			backoff(ctx, 0)
		}
	}
}

// gone is the error of a call whose context has ended.
func gone(ctx context.Context) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return holt.Errorf(holt.Timeout, "timed out: %w", err)
	}
	return err
}

// cut reports whether an operation was interrupted: the guest may or may not have done it.
func cut(client *agent.Client, err error) bool { return broken(client) || agent.Ended(err) }

// broken reports whether the channel has ended.
func broken(client *agent.Client) bool {
	select {
	case <-client.Done():
		return true
	default:
		return false
	}
}

// running reports whether the machine has not ended.
func (l *live) running() bool { return !ended(l.m) }

// spawn runs fn in a goroutine that close waits for; false if close was called.
func (l *live) spawn(fn func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.wg.Go(fn)
	return true
}
