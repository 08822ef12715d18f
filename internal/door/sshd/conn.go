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

// conn is a client that was let in.
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
	quiet    atomic.Int64 // since when it has had neither channels nor listeners, nanoseconds; 0: it has some

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

// label says who that is, for why-awake.
func (c *conn) label() string {
	if c.user == defaultUser {
		return c.from
	}
	return c.user + " from " + c.from
}

func (c *conn) event(what, detail string) Event {
	return Event{Connection: c.id, What: what, From: c.from, Who: c.who.who, Computer: c.computer, User: c.user, Detail: detail, Started: c.g.now()}
}

// refuse cuts off a client that has no place, and has heard why.
func (c *conn) refuse(why error) {
	ctx, let := c.who.context(c.g.ctx)
	defer let()
	e := c.event("connect", "")
	e.Err = why
	c.g.record(ctx, e)
	c.sc.Close()
}

// serve answers the client until it has gone, or may not be here any more.
func (c *conn) serve(chans <-chan ssh.NewChannel, reqs <-chan *ssh.Request) {
	var let context.CancelFunc
	c.ctx, let = c.who.context(c.g.ctx)
	defer let()
	c.ctx, c.end = context.WithCancel(c.ctx)
	defer c.end()
	c.g.record(c.ctx, c.event("connect", string(c.sc.ClientVersion())))
	c.work.Go(func() { c.requests(reqs) })
	c.work.Go(c.watch)
	// Who loses its rights, or whose daemon ends, is told by what it has open; then the connection is cut.
	stop := context.AfterFunc(c.ctx, func() { time.AfterFunc(farewell/2, func() { c.sc.Close() }) })
	defer stop()
	for nc := range chans {
		c.channel(nc)
	}
	c.end()
	c.sc.Close()
	c.work.Wait()
}

// channel begins one that the client opens, or refuses it.
func (c *conn) channel(nc ssh.NewChannel) {
	var handle func(ssh.NewChannel)
	switch nc.ChannelType() {
	case "session":
		handle = c.session
	case "direct-tcpip", "direct-streamlocal@openssh.com":
		handle = c.direct
	default:
		nc.Reject(ssh.UnknownChannelType, "channels of this type are not known here")
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

// enter counts a channel until leave is called. TooMany.
func (c *conn) enter() (leave func(), err error) {
	mine, err := c.channels.Enter(access.Share{Whose: " of this connection", Most: mostIn})
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

// use says that the connection has something open until done is called.
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

// watch ends a connection whose client does not answer, or that is open for nothing.
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
				c.g.log.Info("an SSH connection is cut off", "ssh", c.id, "silent", waiting)
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

// carry passes bytes on between a channel and a connection until both have ended. The channel's requests mean nothing but
// that it was closed.
func carry(ch ssh.Channel, reqs <-chan *ssh.Request, far holt.PortConn) {
	gone := make(chan struct{})
	go func() {
		ssh.DiscardRequests(reqs)
		far.Close() // frees who reads from it, or writes
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
