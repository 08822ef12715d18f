package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"holt/internal/guest/channel"
)

const (
	maxPending      = 1024     // requests without an answer
	maxPendingBytes = 24 << 20 // memory they take
	ackEvery        = 128      // answers between two acks
	remountAfter    = time.Second
)

// pump carries the workspace's FUSE messages between the kernel and the host.
//
// Requests without an answer are kept, and sent again to the next host that
// welcomes this mount. Each gets a number of the pump's own in place of the
// kernel's unique: rising by one in the order of reading, so that "all below
// this one are answered" is a fact (the kernel counts per processor).
type pump struct {
	dir  string
	own  bool // the machine is the guest's own, see mountFuse
	tags *tagger
	log  *slog.Logger
	tell func(Standing)
	over func() bool // the machine is shutting down

	mounting sync.Mutex // held while a mount is being made
	send     sync.Mutex // orders what goes to the host

	mu      sync.Mutex
	room    *sync.Cond // pending has shrunk, or the mount is gone
	mount   *fuseMount // nil between two mounts
	conn    net.Conn   // the session; nil if there is none
	host    net.Conn   // conn once it has been welcomed and sent what was pending
	pending map[uint64]*pending
	bytes   int
	next    uint64 // number of the next request
	answers int    // since the last ack
	told    Standing
	bufs    buffers
}

// fuseMount is one life of the mount.
type fuseMount struct {
	id    [16]byte
	dev   *FuseDevice
	ready bool // INIT has been answered
	// greeted is the session in which hello has been said for this mount.
	greeted net.Conn
}

// pending is a request on its way. Its buffer is given back when the host has
// answered and no write of it is going on.
type pending struct {
	number uint64
	unique uint64 // the kernel's
	opcode uint32
	frame  []byte
	size   int    // of the FUSE message that frame ends with
	buf    []byte // that frame lies in
	busy   bool   // being written
	done   bool   // answered, or never to be
}

// FilesOptions says how the workspace's requests are pumped.
type FilesOptions struct {
	Port      *channel.Port
	Workspace string         // the directory to mount it at; "" means /home/agent
	Machine   bool           // as in ServerOptions
	Cgroup    string         // of the runs, as in ServerOptions
	Standing  func(Standing) // told when the workspace's changes; nil: nobody
	Ending    func() bool    // says whether the machine is shutting down, and may unmount the workspace; nil: never
	Log       *slog.Logger   // nil: slog.Default
}

// ServeFiles mounts the workspace and carries its requests to the hosts that
// come on the port, until ctx ends or the port fails; then the workspace is
// unmounted and the port closed.
//
// It must not share a process with [Serve]: while a program is being started,
// the Go runtime that starts it may stand still, and a program in the
// workspace is read through this.
func ServeFiles(ctx context.Context, opt FilesOptions) error {
	defer opt.Port.Close()
	defer context.AfterFunc(ctx, func() { opt.Port.Close() })()
	return newPump(opt).serve(ctx, opt.Port)
}

func newPump(opt FilesOptions) *pump {
	p := &pump{
		dir:     cmp.Or(opt.Workspace, defaultWorkspace),
		own:     opt.Machine,
		tags:    newTagger(cmp.Or(opt.Cgroup, defaultCgroup)),
		log:     cmp.Or(opt.Log, slog.Default()),
		tell:    opt.Standing,
		over:    opt.Ending,
		pending: map[uint64]*pending{}, next: 1,
	}
	if p.tell == nil {
		p.tell = func(Standing) {}
	}
	if p.over == nil {
		p.over = func() bool { return false }
	}
	p.room = sync.NewCond(&p.mu)
	return p
}

// note tells how far the workspace is, if that has changed. It is called
// with mu held.
func (p *pump) note() {
	is := Served
	switch {
	case p.mount == nil:
		is = Unmounted
	case p.conn == nil:
		is = Hostless
	case p.host == nil:
		is = Unwelcome
	case !p.mount.ready:
		is = Unbegun
	}
	if is != p.told {
		p.told = is
		p.tell(is)
	}
}

// serve mounts the workspace and serves one host after the other until the
// port is closed. Then the mount is taken away.
func (p *pump) serve(ctx context.Context, port *channel.Port) error {
	var work sync.WaitGroup
	defer work.Wait()
	defer p.unmount()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work.Go(func() { p.remount(ctx, &work, nil) })
	for {
		conn, err := port.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept on file port: %w", err)
		}
		err = p.session(ctx, conn, &work)
		p.log.Debug("file session ended", "err", err)
	}
}

// remount makes a new mount in place of old (nil: none), trying until it
// works, and tells the host. It does nothing if somebody else has done it.
func (p *pump) remount(ctx context.Context, work *sync.WaitGroup, old *fuseMount) {
	p.mounting.Lock()
	defer p.mounting.Unlock()
	if p.current() != old {
		return
	}
	p.unmount()
	for last := ""; ctx.Err() == nil; {
		m, err := p.newMount()
		if err == nil {
			work.Go(func() { p.keep(ctx, work, m) })
			p.greet()
			return
		}
		if err.Error() != last {
			last = err.Error()
			p.log.Error("workspace is missing; trying on", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(remountAfter):
		}
	}
}

func (p *pump) newMount() (*fuseMount, error) {
	dev, err := mountFuse(p.dir, p.own)
	if err != nil {
		return nil, fmt.Errorf("mount workspace: %w", err)
	}
	m := &fuseMount{dev: dev}
	rand.Read(m.id[:])
	p.mu.Lock()
	p.mount = m
	p.note()
	p.mu.Unlock()
	return m, nil
}

// keep reads a mount's requests while it lasts.
func (p *pump) keep(ctx context.Context, work *sync.WaitGroup, m *fuseMount) {
	err := p.read(m)
	m.dev.Close()
	if ctx.Err() != nil || p.current() != m {
		return
	}
	if p.over() {
		p.unmount() // it is gone; what still waits for an answer learns that
		return
	}
	p.log.Warn("workspace was unmounted; mounting it again", "err", err)
	select { // whoever did it may do it again at once
	case <-ctx.Done():
	case <-time.After(remountAfter):
	}
	p.remount(ctx, work, m)
}

// unmount takes the mount away; requests without an answer fail.
func (p *pump) unmount() {
	p.mu.Lock()
	p.mount = nil
	p.note()
	for n, e := range p.pending {
		e.done = true
		delete(p.pending, n)
		p.release(e)
	}
	p.room.Broadcast()
	p.mu.Unlock()
	unmountFuse(p.dir)
}

// release gives an answered request's buffer back. It is called with mu held.
func (p *pump) release(e *pending) {
	if e.done && !e.busy && e.buf != nil {
		p.bytes -= cap(e.buf)
		p.bufs.put(e.buf)
		e.buf, e.frame = nil, nil
		p.room.Broadcast()
	}
}

// settle ends a write of e.
func (p *pump) settle(e *pending) {
	p.mu.Lock()
	e.busy = false
	p.release(e)
	p.mu.Unlock()
}
