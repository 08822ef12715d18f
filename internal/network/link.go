package network

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// Pauses before a process that ended, or did not start, is started again.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
	steady     = 10 * time.Second // who lived for so long may be started at once

	lookEach = time.Second // whether a process is stopped

	seen = 10 * time.Millisecond // until the end of a process is seen that has just been opened
)

// Link sees to it that a machine has its network, for as long as this daemon has the machine.
type Link struct {
	n        *Networks
	dir      string
	again    bool // a process that is started is not the machine's first
	cut      func(context.Context)
	cancel   context.CancelFunc
	over     chan struct{}
	attached chan struct{} // closed when the machine has its network for the first time
	once     sync.Once
	pid      atomic.Int64 // of the process that is followed; 0: none
}

// Join has the machine that runs in dir served: by the process that does so already, or by one that it
// starts, now and whenever it ends before the machine. Its policy was written, see Write. cut is called
// when there is another process than before: the guest's connections have lost their other ends, and their
// programs would hear of it only when they send. begun: the machine was not started just now.
func (n *Networks) Join(dir string, begun bool, cut func(context.Context)) *Link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{n: n, dir: dir, again: begun, cut: cut, cancel: cancel, over: make(chan struct{}), attached: make(chan struct{})}
	go func() {
		defer close(l.over)
		l.run(ctx)
	}()
	return l
}

// Ready returns when the machine has its network.
func (l *Link) Ready(ctx context.Context) error {
	select {
	case <-l.attached:
		return nil
	case <-l.over:
		return machine.Gone(l.dir)
	case <-ctx.Done():
		return holt.Errorf(holt.Timeout, "the network of the machine in %s does not come up", l.dir)
	}
}

// Release lets go of the network, which goes on as long as its machine.
func (l *Link) Release() {
	l.cancel()
	<-l.over
}

// End is Release for a machine that has ended: nothing of its network runs afterwards.
func (l *Link) End() error {
	l.Release()
	return l.n.End(l.dir)
}

func (l *Link) run(ctx context.Context) {
	d, err := machine.OpenDir(l.dir)
	if err != nil {
		return
	}
	defer d.Close()
	if l.n.opt.Own != nil {
		stop, err := answer(d, l.n.opt.Own(l.dir))
		if err != nil {
			l.n.opt.Log.Warn("a computer cannot speak of itself", "dir", l.dir, "err", err)
		} else {
			defer stop()
		}
	}
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		began := time.Now()
		ended, err := l.follow(ctx, d)
		switch {
		case ctx.Err() != nil, errors.Is(err, machine.ErrGone):
			return
		case err != nil:
			l.n.opt.Log.Warn("no network for a machine", "dir", l.dir, "err", err)
		case ended && alive(d):
			l.n.opt.Log.Warn("the network of a machine has ended; it is started anew, and the guest's connections end", "dir", l.dir)
		}
		if time.Since(began) > steady {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// follow holds on to a process until it ends.
func (l *Link) follow(ctx context.Context, d *machine.Dir) (ended bool, err error) {
	h, started, err := l.n.hold(ctx, d)
	if h != nil {
		defer h.Close()
	}
	if err != nil {
		return false, err
	}
	if err := l.await(ctx, d); err != nil && !errors.Is(err, machine.ErrGone) {
		return false, err
	}
	if started && l.again {
		l.cut(ctx)
	}
	l.again = true
	l.pid.Store(int64(h.PID))
	defer l.pid.Store(0)
	look := time.NewTicker(lookEach)
	defer look.Stop()
	for {
		select {
		case <-h.Done():
			return true, nil
		case <-ctx.Done():
			return false, nil
		case <-look.C:
			l.resume(h)
		}
	}
}

// resume has a process that somebody stopped go on: when the socket to it is full QEMU waits for it with all that it does,
// the guest and its agent too.
func (l *Link) resume(h *machine.Handle) {
	if h.Stopped() && h.Signal(unix.SIGCONT) == nil {
		l.n.opt.Log.Warn("the network of a machine was stopped; it is continued, for the machine waits for it", "dir", l.dir, "pid", h.PID)
	}
}

// PID is the process that is the machine's network; 0 if there is none now.
func (l *Link) PID() int { return int(l.pid.Load()) }

// await waits until the process has the machine.
func (l *Link) await(ctx context.Context, d *machine.Dir) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := call(ctx, d, "GET", "/attached", &status{})
	if err == nil {
		l.once.Do(func() { close(l.attached) })
	}
	return err
}

// alive tells whether the machine of a directory runs.
func alive(d *machine.Dir) bool {
	r, err := d.ReadRecord()
	return err == nil && running(r.Process) == nil
}

// running returns [machine.ErrGone] if a process has ended, also one that nobody has waited for.
func running(p machine.Process) error {
	h, err := p.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	select {
	case <-h.Done():
		return machine.ErrGone
	case <-time.After(seen):
		return nil
	}
}
