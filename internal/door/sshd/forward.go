package sshd

import (
	"context"
	"net"
	"strconv"

	"golang.org/x/crypto/ssh"

	"holt"
)

// direct connects a channel to a port or a socket of the computer (ssh -L, -D, -W).
func (c *conn) direct(nc ssh.NewChannel) {
	to := holt.SessionAddress{User: c.user}
	var err error
	if nc.ChannelType() == "direct-tcpip" {
		var q directTCP
		err = ssh.Unmarshal(nc.ExtraData(), &q)
		to.Host, to.Port = q.Host, int(q.Port)
	} else {
		var q directSocket
		err = ssh.Unmarshal(nc.ExtraData(), &q)
		to.Socket = holt.OSString(q.Path)
	}
	if err == nil {
		err = to.Check(false)
	}
	if err != nil {
		nc.Reject(ssh.ConnectionFailed, plainError(err))
		return
	}
	e := c.event("forward", to.String())
	far, err := c.g.opt.Computers.Dial(c.ctx, c.computer, to, c.label())
	if err != nil {
		e.Err = err
		c.g.record(c.ctx, e)
		nc.Reject(ssh.ConnectionFailed, plainError(err))
		return
	}
	ch, reqs, err := nc.Accept()
	if err != nil {
		far.Close()
		return
	}
	relayBytes(ch, reqs, far)
	c.g.record(c.ctx, e)
}

// plainError returns an error as one line for a client.
func plainError(err error) string {
	e := holt.AsError(err)
	return holt.Clip(e.Message, 400)
}

// requests answers the client's global requests, in order.
func (c *conn) requests(reqs <-chan *ssh.Request) {
	for q := range reqs {
		ok, answer := false, []byte(nil)
		switch q.Type {
		case "tcpip-forward":
			var f forwardTCP
			if ssh.Unmarshal(q.Payload, &f) == nil {
				ok, answer = c.listenPort(f)
			}
		case "streamlocal-forward@openssh.com":
			var f forwardSocket
			if ssh.Unmarshal(q.Payload, &f) == nil {
				ok = c.listenSocket(f)
			}
		case "cancel-tcpip-forward":
			var f forwardTCP
			ok = ssh.Unmarshal(q.Payload, &f) == nil && c.unlisten(portKey(f))
		case "cancel-streamlocal-forward@openssh.com":
			var f forwardSocket
			ok = ssh.Unmarshal(q.Payload, &f) == nil && c.unlisten(f.Path)
		case "keepalive@openssh.com":
			ok = true
		}
		if q.WantReply {
			q.Reply(ok, answer)
		}
	}
}

func portKey(f forwardTCP) string { return net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))) }

// listenPort makes the computer listen for the client (ssh -R), always on its loopback.
func (c *conn) listenPort(f forwardTCP) (ok bool, answer []byte) {
	at := holt.SessionAddress{Host: "localhost", Port: int(f.Port), User: c.user}
	l, err := c.listen(at)
	if err != nil {
		return false, nil
	}
	if f.Port == 0 {
		f.Port = uint32(l.Address().Port)
		answer = ssh.Marshal(portAnswer{f.Port})
	}
	ok = c.relay(portKey(f), l, func(from string) (string, []byte) {
		host, port, _ := net.SplitHostPort(from)
		n, _ := strconv.Atoi(port)
		return "forwarded-tcpip", ssh.Marshal(directTCP{Host: f.Host, Port: f.Port, From: host, FromPort: uint32(n)})
	})
	return ok, answer
}

// listenSocket is listenPort for a unix socket.
func (c *conn) listenSocket(f forwardSocket) bool {
	l, err := c.listen(holt.SessionAddress{Socket: holt.OSString(f.Path), User: c.user})
	return err == nil && c.relay(f.Path, l, func(string) (string, []byte) {
		return "forwarded-streamlocal@openssh.com", ssh.Marshal(forwardedSocket{Path: f.Path})
	})
}

func (c *conn) listen(at holt.SessionAddress) (holt.SessionListener, error) {
	e := c.event("listen", at.String())
	var l holt.SessionListener
	err := c.full()
	if err == nil {
		l, err = c.g.opt.Computers.Listen(c.ctx, c.computer, at, c.label())
	}
	e.Err = err
	c.g.record(c.ctx, e)
	return l, err
}

// full returns TooMany if the connection has mostForwards listeners.
func (c *conn) full() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.listeners) >= mostForwards {
		return holt.Errorf(holt.TooMany, "this connection has %d listeners, the maximum", mostForwards)
	}
	return nil
}

// relay opens a channel to the client for each connection to a listener, until the listener is closed. It stores the
// listener by key; false: the key is in use.
func (c *conn) relay(key string, l holt.SessionListener, open func(from string) (kind string, extra []byte)) bool {
	c.mu.Lock()
	_, taken := c.listeners[key]
	if !taken {
		c.listeners[key] = l
	}
	c.mu.Unlock()
	if taken {
		l.Close()
		return false
	}
	done := c.use()
	c.work.Go(func() {
		defer done()
		defer c.unlisten(key)
		stop := context.AfterFunc(c.ctx, func() { l.Close() })
		defer stop()
		c.pass(l, open)
	})
	return true
}

// pass accepts connections of a listener until it is closed.
func (c *conn) pass(l holt.SessionListener, open func(from string) (kind string, extra []byte)) {
	for {
		far, from, err := l.Accept(c.ctx)
		if err != nil {
			return
		}
		leave, err := c.enter()
		if err != nil {
			far.Close()
			continue
		}
		c.work.Go(func() {
			defer leave()
			kind, extra := open(from)
			ch, reqs, err := c.sc.OpenChannel(kind, extra)
			if err != nil {
				c.g.log.Debug("SSH client refuses a forwarded connection", "ssh", c.id, "err", err)
				far.Close()
				return
			}
			stop := context.AfterFunc(c.ctx, func() { far.Close() })
			defer stop()
			relayBytes(ch, reqs, far)
		})
	}
}

// unlisten closes a listener.
func (c *conn) unlisten(key string) bool {
	c.mu.Lock()
	l, ok := c.listeners[key]
	delete(c.listeners, key)
	c.mu.Unlock()
	if ok {
		l.Close()
	}
	return ok
}
