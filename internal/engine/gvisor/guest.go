package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

const (
	askWait  = 10 * time.Second // for a keeper to answer
	heldWait = 10 * time.Second // for SnapshotSpec.Held
	lateWait = 10 * time.Minute // for it to complete or abandon a snapshot
)

// guest is a running machine. It is a [machine.Machine].
type guest struct {
	machine.Hold
	engine *Engine

	mu   sync.Mutex
	disk string

	taking sync.Mutex     // held while a snapshot is taken
	child  *os.Process    // if this process started it
	reaped sync.WaitGroup // of the goroutine that waits for the child; outlasts Release
}

// line is a connection to a keeper.
type line struct {
	conn net.Conn
	dec  *json.Decoder
	stop func() bool // makes the end of the context harmless; false: it has ended
}

func (l *line) close() {
	l.stop()
	l.conn.Close()
}

// ask sends a request and returns its answer.
func (l *line) ask(r Request) (a Answer, err error) {
	if err := json.NewEncoder(l.conn).Encode(r); err != nil {
		return a, fmt.Errorf("ask the sandbox's keeper: %w", err)
	}
	if err := l.dec.Decode(&a); err != nil {
		return a, fmt.Errorf("await the sandbox's keeper: %w", err)
	}
	if a.Error != nil {
		return a, a.Error
	}
	return a, nil
}

// request sends one request and returns its answer.
func (g *guest) request(ctx context.Context, wait time.Duration, r Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	l, err := g.connect(ctx)
	if err != nil {
		return Answer{}, g.gone(err)
	}
	defer l.close()
	a, err := l.ask(r)
	return a, g.gone(err)
}

// Adopt implements [machine.Engine].
func (e *Engine) Adopt(ctx context.Context, path string) (machine.Machine, error) {
	dir, err := machine.OpenDir(path)
	if err != nil {
		return nil, err
	}
	handle, record, err := dir.Find(e.Strays)
	if err == nil && record.Engine != EngineName {
		handle.Close()
		err = holt.Errorf(holt.Conflict, "the machine in %s runs on another engine, %.40q", path, record.Engine)
	}
	if err != nil {
		if errors.Is(err, machine.ErrGone) {
			e.groups.Remove(path, 0)
		}
		dir.Close()
		return nil, err
	}
	g := &guest{engine: e, Hold: machine.Hold{Dir: dir, Handle: handle, Ports: machine.Ports{Dir: dir}}}
	a, err := g.request(ctx, lateWait, Request{Op: OpDisk}) // an interrupted snapshot ends first
	if err != nil {
		handle.Close()
		dir.Close()
		return nil, err
	}
	g.disk = a.Disk
	e.claims.Add(handle.Process)
	g.Watch(g.supervise)
	return g, nil
}

// Disk implements [machine.Machine].
func (g *guest) Disk() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.disk
}

// Reopen implements [machine.Machine]: no machine has the base of its disk open.
func (g *guest) Reopen(context.Context) error { return nil }

// Grow implements [machine.Machine].
func (g *guest) Grow(context.Context, machine.Shape) error { return noGrowth() }

// Shape implements [machine.Machine].
func (g *guest) Shape(context.Context) (machine.Shape, error) { return machine.Shape{}, noGrowth() }

func noGrowth() error {
	return holt.Errorf(holt.Unsupported, "a running sandbox keeps its size").
		WithHint("stop the computer first; virtual machines can grow while they run: holt up --engine qemu")
}

// PowerDown implements [machine.Machine].
func (g *guest) PowerDown(ctx context.Context) error {
	_, err := g.request(ctx, askWait, Request{Op: OpPower})
	return err
}

// Snapshot implements [machine.Machine]. The guest stands still while its memory
// and the upper layer of its root disk are copied: one round.
func (g *guest) Snapshot(ctx context.Context, spec machine.SnapshotSpec) (machine.SnapshotReport, error) {
	var none machine.SnapshotReport
	spec, err := spec.WithDefaults()
	if err != nil {
		return none, err
	}
	if !g.taking.TryLock() {
		return none, holt.Errorf(holt.Conflict, "another snapshot of this machine is being taken")
	}
	defer g.taking.Unlock()
	if spec.Disk == "" {
		return none, holt.Errorf(holt.InvalidArgument, "a snapshot needs a new disk exactly if the machine has one")
	}
	if _, err := os.Lstat(spec.Disk); err == nil {
		return none, holt.Errorf(holt.AlreadyExists, "disk %s exists already", spec.Disk)
	}
	l, err := g.connect(ctx)
	if err != nil {
		return none, g.gone(err)
	}
	defer l.close()
	if err := os.Mkdir(spec.Dir, 0o700); errors.Is(err, os.ErrExist) {
		return none, holt.Errorf(holt.AlreadyExists, "image directory %s exists already", spec.Dir)
	} else if err != nil {
		return none, fmt.Errorf("make image directory: %w", err)
	}
	a, err := g.take(ctx, l, spec)
	if err != nil {
		os.RemoveAll(spec.Dir)
		return none, fmt.Errorf("snapshot: %w", g.gone(err))
	}
	if spec.End {
		<-g.Handle.Done()
	}
	if spec.Durable { // it may outlive this program
		if err := g.engine.keep(); err != nil {
			g.engine.log.Warn("a snapshot may not be restored after an upgrade of holt", "dir", spec.Dir, "err", err)
		}
	}
	return a.Report, nil
}

func (g *guest) take(ctx context.Context, l *line, spec machine.SnapshotSpec) (a Answer, err error) {
	if err := machine.Room(filepath.Dir(spec.Dir), machine.MinFreeMB); err != nil {
		return a, err
	}
	_, err = l.ask(Request{Op: OpSnapshot, Snapshot: &spec})
	if err == nil {
		held, cancel := context.WithTimeout(ctx, heldWait)
		err = spec.Held(held)
		cancel()
	}
	if err == nil && !l.stop() { // from here on ctx does not end it
		err = ctx.Err()
	}
	if err != nil {
		l.abandon() // afterwards the guest continues, and nothing writes to spec.Dir
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return a, err
	}
	l.conn.SetDeadline(time.Now().Add(lateWait))
	if a, err = l.ask(Request{Op: OpGoOn}); a.Disk != "" {
		g.mu.Lock()
		g.disk = a.Disk
		g.mu.Unlock()
	}
	return a, err
}

// abandon ends a snapshot, and returns when the keeper has.
func (l *line) abandon() {
	l.stop()
	l.conn.SetDeadline(time.Now().Add(lateWait))
	if c, ok := l.conn.(*net.UnixConn); ok && c.CloseWrite() == nil {
		io.Copy(io.Discard, c)
	}
}

// supervise waits for the machine's end or for Release.
func (g *guest) supervise(released <-chan struct{}) (ended bool) {
	select {
	case <-g.Handle.Done():
		g.engine.groups.Remove(g.Dir.Path, 0)
		ended = true
	case <-released:
	}
	g.Let(&g.engine.claims)
	g.Dir.Close()
	return ended
}

// Kill kills the keeper; the kernel first kills all other processes of its PID
// namespace. See [machine.KillInit].
func (g *guest) Kill() error {
	if err := machine.KillInit(g.Handle.Process); err != nil {
		return err
	}
	<-g.Over() // ended, or released before
	g.engine.groups.Remove(g.Dir.Path, groupWait)
	return machine.Clear(g.Dir.Path, sockets...)
}
