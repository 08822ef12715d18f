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

// FileServer answers one session of a guest's file channel until conn ends or
// ctx does, and closes conn. writer turns the tag of a request, hostile text,
// into whom its change is attributed to.
type FileServer func(ctx context.Context, ws *workspace.Workspace, conn net.Conn, writer func(tag string) workspace.Writer) error

// live is a machine that runs now and the two channels into it. Its
// goroutines redial a channel that breaks, until the machine ends or the
// daemon lets go of it.
type live struct {
	id  holt.ComputerID
	m   machine.Machine
	net *network.Link // of m; nil: it has none
	ws  *workspace.Workspace
	log *slog.Logger

	observe Observer
	release func() // of ws
	units   units

	serve     FileServer
	limits    Limits
	keep      workspace.Retention
	attendant *attendant
	runs      *runSet
	terminals *terminalSet
	marks     marks
	busy      *busy // what works in it by itself
	look      bell  // see [idling.watch]: its idle timeout was changed
	launched  time.Time

	hostname  string
	bootID    string // of the guest that was last greeted; used by controlLoop only
	fresh     bool   // that guest has no identity yet
	restored  bool   // or has one from a snapshot
	repeats   bool   // and it went on from there before
	machineID string // that it is to have, if it is another machine than the one of that snapshot
	newKeys   bool   // it boots from its image for the first time, whose SSH host keys are not its own

	diskSizeMB int // MiB; 0 unless its disk is larger than the guest believes

	greeted func(context.Context, agent.Identified) error // writes down what the guest is now; see [table.identify]
	proxy   func(context.Context) (*agent.Proxy, error)   // what it is told of its proxy; nil: nothing
	explain func(*holt.OutOfMemory)                       // adds to what its guest says of memory what gives it more
	stood   bell                                          // the guest's processors stood still

	ctx    context.Context
	cancel context.CancelFunc // nil before connect
	wg     sync.WaitGroup

	mu      sync.Mutex
	client  *agent.Client // nil while the control channel is down
	up      chan struct{} // closed while client is set
	fault   error         // why the control channel is down; nil when up or never tried
	refusal error         // why a guest that goes on from a snapshot cannot have its identity; nil when up
}

// connect begins to serve both channels.
func (l *live) connect(ctx context.Context) {
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.wg.Go(l.controlLoop)
	l.wg.Go(l.filesLoop)
}

// close lets go of the channels, not of the machine, and waits for the goroutines.
func (l *live) close() {
	l.cancel()
	l.wg.Wait()
}

// backoff is the pause before a channel is dialled again.
func backoff(ctx context.Context, try int) {
	const first, most = 50 * time.Millisecond, 2 * time.Second
	t := time.NewTimer(min(first<<min(try, 10), most))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// patience is how long the first connection to a port has for the guest's
// answer. A line may be dead that the next one is not, see "Traps" of package
// qemu; and a guest may be booting, so each next one has twice as long. It is not
// shorter for a guest that goes on from a snapshot, though that answers at once: it takes
// a fifth of a second and, on a busy host, a whole one, and each connection that was
// given up before makes it read another preamble.
const patience = 2 * time.Second

// dial opens a resynced session on a port, over as many connections as ctx has time for.
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

// session makes one connection to a port into a session.
func session(ctx context.Context, m machine.Machine, port string) (net.Conn, error) {
	conn, err := m.Dial(ctx, port)
	if err != nil {
		return nil, err
	}
	return channel.Dial(ctx, conn) // closes conn when it fails
}

// steady is how long a session lasts that was not broken on purpose. What
// follows a shorter one is dialled ever more slowly, since each costs work and
// perhaps a line in the log.
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

// alive says whether redialling makes sense.
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
		if told := l.tellProxy(ctx, client); told != nil {
			l.log.Warn("a guest is not told of its proxy", "computer", l.id, "err", told)
		}
		err = l.attendant.reconcile(ctx, client)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// clockError is by how much a guest's clock may be wrong once it was set.
const clockError = time.Second

// clockTries is how often a guest's clock is set before it is left as it is: on a
// host that is that busy nobody can say what is right.
const clockTries = 5

// setClock sets a guest's clock again until it cannot be late by more than half of
// clockError: the time that a guest is told is as old as the telling took, and one that
// has just come from a file, and has made keys first, took long. It returns what the
// clock says; a guest that says nothing has none of its own.
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

// clockOf returns what sets a guest's clock, and says what it is then.
func clockOf(ctx context.Context, client *agent.Client) func(time.Time) (time.Time, error) {
	return func(now time.Time) (time.Time, error) {
		is, err := client.Configure(ctx, agent.Identity{Now: now})
		return is.Now, err
	}
}

// keepTime sets the clock of a guest that has said hello, if it is wrong. It stands with the
// processors: while a snapshot is taken, from the death of a daemon that was taking one until
// the next one lets it go on, and while the host sleeps.
func (l *live) keepTime(ctx context.Context, client *agent.Client, asked time.Time, h agent.Hello) error {
	if !wrongClock(h.Now, asked, time.Now()) {
		return nil
	}
	set := clockOf(ctx, client)
	now, err := set(time.Now())
	if err == nil {
		now, err = setClock(now, set)
	}
	l.log.InfoContext(ctx, "guest's clock set", "computer", l.id, "was", h.Now, "is", now, "err", err)
	return err
}

// wrongClock says whether a clock that was read between two instants was wrong by more than
// half of clockError, however long the reading took.
func wrongClock(says, asked, answered time.Time) bool {
	return !says.IsZero() && (says.Before(asked.Add(-clockError/2)) || says.After(answered.Add(clockError/2)))
}

// beat returns when the channel has ended or the agent stops answering: a
// connection to a guest that hangs breaks by itself never.
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
			err = l.serve(l.ctx, l.ws, conn, l.attendant.writer)
		}
		if err != nil && l.ctx.Err() == nil {
			l.log.Warn("file channel broke", "computer", l.id, "err", err)
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

// set publishes the control channel, or that it is down and why.
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

// refuse says why the guest will not come up: nobody has to wait for it.
func (l *live) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
	if l.client == nil {
		close(l.up)
		l.up = make(chan struct{})
	}
}

// drop takes back a client that was found broken before beat noticed.
func (l *live) drop(client *agent.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == client {
		l.client, l.up = nil, make(chan struct{})
	}
}

// refused returns why the guest cannot come up, nil if it may.
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

// agent returns the guest agent's client, waiting up to limit for a channel
// that is down to come back.
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
				WithHint("holt computer start starts it again")
		case <-l.ctx.Done():
			return nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("try again when it is back")
		case <-ctx.Done():
			return nil, gone(ctx)
		case <-t.C:
			if fault == nil {
				fault = errors.New("no answer yet")
			}
			return nil, silent(fault)
		}
	}
}

// silent is the error for a guest agent that does not answer.
func silent(cause error) *holt.Error {
	return holt.Errorf(holt.Unavailable, "the guest agent does not answer: %w", cause).
		WithHint("the guest may be overloaded, or its agent was ended; see holt computer logs, and mend it with holt computer stop and start")
}

// do calls act with the guest agent. Each attempt is bounded by limit. When
// the channel breaks under it and repeat allows it, it is tried once more.
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
			return silent(err)
		case !cut(client, err) || holt.CodeOf(err) != holt.Unavailable:
			return err
		case !repeat || try > 0:
			return silent(err)
		case !broken(client): // it ends, and its channel with it
			backoff(ctx, 0)
		}
	}
}

// gone is the error for a caller whose context has ended.
func gone(ctx context.Context) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return holt.Errorf(holt.Timeout, "it took longer than allowed: %w", err)
	}
	return err
}

// cut says whether an operation was broken off: the guest may have done it, or not.
func cut(client *agent.Client, err error) bool { return broken(client) || agent.Ended(err) }

// broken says whether the channel has ended.
func broken(client *agent.Client) bool {
	select {
	case <-client.Done():
		return true
	default:
		return false
	}
}
