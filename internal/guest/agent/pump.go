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
	maxPending      = 1024     // maximum unanswered requests
	maxPendingBytes = 24 << 20 // and their memory
	ackEvery        = 128      // answers between two acks
	remountAfter    = time.Second
)

// pump forwards the workspace's FUSE messages between the kernel and the host.
//
// Unanswered requests are kept, and resent to the next host that welcomes this
// mount. In each the pump replaces the kernel's unique by a number of its own,
// which increases in the order of reading, so that "all requests below this one
// are answered" is well-defined (the kernel counts per processor).
type pump struct {
	dir  string
	own  bool // the guest has its own machine, see mountFuse
	tags Tagger
	log  *slog.Logger
	tell func(Standing)
	over func() bool // the machine is shutting down

	mounting sync.Mutex // held while mounting
	send     sync.Mutex // orders messages to the host

	mu      sync.Mutex
	room    *sync.Cond // signalled when pending shrinks or the mount is gone
	mount   *fuseMount // nil between two mounts
	conn    net.Conn   // the session; nil if there is none
	host    net.Conn   // conn after its welcome, when pending requests have been resent
	pending map[uint64]*pending
	bytes   int
	next    uint64 // number of the next request
	answers int    // since the last ack
	told    Standing
	bufs    buffers
}

// fuseMount is one mount of the workspace.
type fuseMount struct {
	id    [16]byte
	dev   *FuseDevice
	ready bool // INIT has been answered
	// greeted is the session to which hello was sent for this mount.
	greeted net.Conn
}

// pending is an unanswered request. Its buffer is released when the host has
// answered and no write of it is running.
type pending struct {
	number uint64
	unique uint64 // of the kernel
	opcode uint32
	frame  []byte
	size   int    // of the FUSE message at the end of frame
	buf    []byte // buffer of frame
	busy   bool   // being written
	done   bool   // answered or given up
}

// FilesOptions configure [ServeFiles].
type FilesOptions struct {
	Port      *channel.Port
	Workspace string         // the directory to mount it at; "" means /home/agent
	Machine   bool           // as in ServerOptions
	Cgroup    string         // as in ServerOptions
	Tagger    Tagger         // nil: by /proc
	Standing  func(Standing) // called when the workspace's standing changes; may be nil
	Ending    func() bool    // reports whether the machine is shutting down and may unmount the workspace; nil: never
	Log       *slog.Logger   // nil: slog.Default
}

// Tagger finds for whom a process changes files. Of is called while the process
// waits for its request; its result is as that of [TagOf].
type Tagger interface{ Of(pid uint32) string }

// ServeFiles mounts the workspace and forwards its requests to the hosts that
// connect to the port, until ctx ends or the port fails. Then it unmounts the
// workspace and closes the port.
//
// It must not share a process with [Serve]: while the Go runtime starts a program
// it may be blocked, and a program in the workspace is read through ServeFiles.
func ServeFiles(ctx context.Context, opt FilesOptions) error {
	defer opt.Port.Close()
	defer context.AfterFunc(ctx, func() { opt.Port.Close() })()
	return newPump(opt).serve(ctx, opt.Port)
}

func newPump(opt FilesOptions) *pump {
	p := &pump{
		dir:     cmp.Or(opt.Workspace, defaultWorkspace),
		own:     opt.Machine,
		tags:    opt.Tagger,
		log:     cmp.Or(opt.Log, slog.Default()),
		tell:    opt.Standing,
		over:    opt.Ending,
		pending: map[uint64]*pending{}, next: 1,
	}
	if p.tags == nil {
		p.tags = newTagger(cmp.Or(opt.Cgroup, defaultCgroup))
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

// note reports the workspace's standing, if it has changed. mu is held.
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

// serve mounts the workspace and serves one host after the other until the port
// is closed. Then it unmounts the workspace.
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

// remount replaces the mount old (nil: none), retrying until it succeeds, and
// tells the host. It does nothing if old has been replaced already.
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
			p.log.Error("cannot mount the workspace; retrying", "err", err)
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
		p.unmount() // it is gone; unanswered requests fail
		return
	}
	p.log.Warn("workspace was unmounted; mounting it again", "err", err)
	select { // wait: it may be unmounted again at once
	case <-ctx.Done():
	case <-time.After(remountAfter):
	}
	p.remount(ctx, work, m)
}

// unmount unmounts the workspace; unanswered requests fail.
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

// release releases an answered request's buffer. mu is held.
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
