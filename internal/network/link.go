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
	steady     = 10 * time.Second // a process that ran for so long is started again after firstPause

	lookEach = time.Second // between checks whether a process is stopped

	seen = 10 * time.Millisecond // within which the end of an opened process is noticed
)

// Link keeps the network of a machine running while this daemon has the machine.
type Link struct {
	n        *Networks
	dir      string
	again    bool // the next process is not the machine's first
	cut      func(context.Context)
	cancel   context.CancelFunc
	over     chan struct{}
	attached chan struct{} // closed when the machine is connected to its network for the first time
	once     sync.Once
	pid      atomic.Int64 // of the process; 0: none
}

// Join keeps the network of the machine in dir running. It uses the process that serves the machine, or starts one,
// and starts another whenever it ends before the machine. The policy must have been written, see Write. Join calls cut
// after another process has started: the guest's connections are dead then, but their programs would notice only
// when they send. begun: the machine was started before this call.
func (n *Networks) Join(dir string, begun bool, cut func(context.Context)) *Link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{n: n, dir: dir, again: begun, cut: cut, cancel: cancel, over: make(chan struct{}), attached: make(chan struct{})}
	go func() {
		defer close(l.over)
		l.run(ctx)
	}()
	return l
}

// Ready waits until the machine is connected to its network.
func (l *Link) Ready(ctx context.Context) error {
	select {
	case <-l.attached:
		return nil
	case <-l.over:
		return machine.Gone(l.dir)
	case <-ctx.Done():
		return holt.Errorf(holt.Timeout, "the network of the machine in %s did not start in time", l.dir)
	}
}

// Release stops following the process, which runs as long as its machine.
func (l *Link) Release() {
	l.cancel()
	<-l.over
}

// End is Release for a machine that has ended. It ends the network's process.
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
			l.n.opt.Log.Warn("serve holt.internal for a computer", "dir", l.dir, "err", err)
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
			l.n.opt.Log.Warn("start the network of a machine: will retry", "dir", l.dir, "err", err)
		case ended && alive(d):
			l.n.opt.Log.Warn("the network of a machine has ended: starting another; the guest's connections are reset", "dir", l.dir)
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

// follow follows a process until it ends.
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

// resume continues a process that was stopped by a signal: once the socket to it is full QEMU blocks, and the guest with
// it.
func (l *Link) resume(h *machine.Handle) {
	if h.Stopped() && h.Signal(unix.SIGCONT) == nil {
		l.n.opt.Log.Warn("the network of a machine was stopped by a signal: continuing it, since the machine blocks", "dir", l.dir, "pid", h.PID)
	}
}

// PID returns the id of the network's process; 0 if there is none.
func (l *Link) PID() int { return int(l.pid.Load()) }

// await waits until the process is connected to the machine.
func (l *Link) await(ctx context.Context, d *machine.Dir) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := call(ctx, d, "GET", "/attached", &status{})
	if err == nil {
		l.once.Do(func() { close(l.attached) })
	}
	return err
}

// alive reports whether the machine of a directory runs.
func alive(d *machine.Dir) bool {
	r, err := d.ReadRecord()
	return err == nil && running(r.Process) == nil
}

// running returns [machine.ErrGone] if a process has ended, also if it is a zombie.
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
