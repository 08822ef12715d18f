package sshd

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/internal/access"
)

// conn is the connection of an authenticated client.
type conn struct {
	g        *Gate
	sc       *ssh.ServerConn
	who      *caller
	id       string
	from     string // its address
	computer string
	user     string        // Linux user
	channels access.Counts // of this connection
	work     sync.WaitGroup
	quiet    atomic.Int64 // since when it has neither channels nor listeners, nanoseconds; 0: it has some

	ctx context.Context // ends with the connection, the caller's rights, or the gate
	end context.CancelFunc

	mu        sync.Mutex
	using     int
	listeners map[string]holt.SessionListener // by what the client asked for
}

func newConn(g *Gate, sc *ssh.ServerConn, who *caller, from string) *conn {
	c := &conn{g: g, sc: sc, who: who, id: strings.ToLower(rand.Text()[:12]), from: from, channels: access.Counts{What: "SSH channels"}, listeners: map[string]holt.SessionListener{}}
	c.quiet.Store(g.now().UnixNano())
	return c
}

// label describes the client, for why-awake.
func (c *conn) label() string {
	if c.user == defaultUser {
		return c.from
	}
	return c.user + " from " + c.from
}

func (c *conn) event(what, detail string) Event {
	return Event{Connection: c.id, What: what, From: c.from, Who: c.who.who, Computer: c.computer, User: c.user, Detail: detail, Started: c.g.now()}
}

// refuse closes a connection beyond a limit. The client has the reason in its banner.
func (c *conn) refuse(why error) {
	ctx, let := c.who.context(c.g.ctx)
	defer let()
	e := c.event("connect", "")
	e.Err = why
	c.g.record(ctx, e)
	c.sc.Close()
}

// serve serves the client until it disconnects or its rights end.
func (c *conn) serve(chans <-chan ssh.NewChannel, reqs <-chan *ssh.Request) {
	var let context.CancelFunc
	c.ctx, let = c.who.context(c.g.ctx)
	defer let()
	c.ctx, c.end = context.WithCancel(c.ctx)
	defer c.end()
	c.g.record(c.ctx, c.event("connect", string(c.sc.ClientVersion())))
	c.work.Go(func() { c.requests(reqs) })
	c.work.Go(c.watch)
	// When the rights or the daemon end, open channels report that first; then the connection is closed.
	stop := context.AfterFunc(c.ctx, func() { time.AfterFunc(closeGrace/2, func() { c.sc.Close() }) })
	defer stop()
	for nc := range chans {
		c.channel(nc)
	}
	c.end()
	c.sc.Close()
	c.work.Wait()
}

// channel handles a channel that the client opens, or rejects it.
func (c *conn) channel(nc ssh.NewChannel) {
	var handle func(ssh.NewChannel)
	switch nc.ChannelType() {
	case "session":
		handle = c.session
	case "direct-tcpip", "direct-streamlocal@openssh.com":
		handle = c.direct
	default:
		nc.Reject(ssh.UnknownChannelType, "unknown channel type")
		return
	}
	leave, err := c.enter()
	if err != nil {
		nc.Reject(ssh.ResourceShortage, plainError(err))
		return
	}
	c.work.Go(func() {
		defer leave()
		handle(nc)
	})
}

// enter counts a channel until leave is called, or returns TooMany.
func (c *conn) enter() (leave func(), err error) {
	mine, err := c.channels.Enter(access.Share{Of: " of this connection", Most: mostIn})
	if err != nil {
		return nil, err
	}
	all, err := c.g.channels.Enter(c.who.shares(mostChannels, mostOf)...)
	if err != nil {
		mine()
		return nil, err
	}
	done := c.use()
	return func() { done(); all(); mine() }, nil
}

// use marks the connection as in use until done is called.
func (c *conn) use() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.using++
	c.quiet.Store(0)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.using--; c.using == 0 {
			c.quiet.Store(c.g.now().UnixNano())
		}
	}
}

// watch closes a connection whose client does not answer, or that is not in use for idleLimit.
func (c *conn) watch() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	answered := make(chan struct{}, 1)
	asked, waiting := time.Time{}, false
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-answered:
			waiting = false
		case <-tick.C:
			now := c.g.now()
			if quiet := c.quiet.Load(); waiting && now.Sub(asked) >= silence || quiet != 0 && now.Sub(time.Unix(0, quiet)) >= idleLimit {
				c.g.log.Info("closing an unused or silent SSH connection", "ssh", c.id, "silent", waiting)
				c.sc.Close()
				return
			}
			if waiting {
				continue
			}
			asked, waiting = now, true
			go func() {
				if _, _, err := c.sc.SendRequest("keepalive@openssh.com", true, nil); err == nil {
					answered <- struct{}{}
				}
			}()
		}
	}
}

// relayBytes copies bytes between a channel and a connection until both have ended. The channel's requests only show
// when it is closed.
func relayBytes(ch ssh.Channel, reqs <-chan *ssh.Request, far holt.PortConn) {
	gone := make(chan struct{})
	go func() {
		ssh.DiscardRequests(reqs)
		far.Close() // unblocks its reads and writes
		close(gone)
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := io.Copy(struct{ io.Writer }{far}, struct{ io.Reader }{ch}); err == nil {
			far.CloseWrite()
		} else {
			ch.Close()
		}
	}()
	_, err := io.Copy(struct{ io.Writer }{ch}, struct{ io.Reader }{far})
	if err == nil {
		ch.CloseWrite()
		<-sent
	}
	ch.Close()
	<-gone
	<-sent
}
