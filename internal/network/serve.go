package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"holt/internal/engine/machine"
	"holt/internal/network/netstack"
)

// Inherited file descriptors of the process.
const (
	fdLock = 3 + iota
	fdControl
)

const (
	saveEach  = 5 * time.Second        // between writes of traffic and names
	joinAgain = 100 * time.Millisecond // before a reconnect to the machine
	mostLog   = 1 << 20                // size of a process's log, bytes
)

// process is the state of a network's process.
type process struct {
	log      *slog.Logger
	dir      *machine.Dir
	self     machine.Process
	machine  machine.Process
	stack    *netstack.Stack
	traffic  totals
	secrets  atomic.Int64  // number
	kept     int64         // the count of [netstack.Stack.Known] at the last write of names
	loading  sync.Mutex    // held while policy and secrets are read
	settings *settings     // in effect; nil: none yet
	attached chan struct{} // closed at the first connection to the machine
	once     sync.Once
}

// Serve runs the network of the machine in a directory until the machine ends. The process inherits its lock and
// its control socket, see [Networks].
func Serve(ctx context.Context, path string) error {
	dir, err := machine.OpenDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	record, err := dir.ReadRecord()
	if err != nil {
		return err
	}
	vm, err := record.Process.Open()
	if errors.Is(err, machine.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer vm.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-vm.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	// net/http logs unsolicited responses of servers, which would fill the log.
	stdlog.SetOutput(io.Discard)
	p := &process{
		log: slog.New(slog.NewTextHandler(&bounded{left: mostLog}, nil)),
		dir: dir, machine: record.Process, attached: make(chan struct{}), traffic: readTotals(dir),
	}
	if p.self, err = machine.Identify(os.Getpid()); err != nil {
		return err
	}
	return p.run(ctx)
}

// run serves the machine until ctx ends.
func (p *process) run(ctx context.Context) (err error) {
	if p.stack, err = netstack.New(netstack.Options{Log: p.log, Internal: p.internal()}); err != nil {
		return err
	}
	p.recall()
	if err := p.reload(); err != nil {
		return err
	}
	control, err := net.FileListener(os.NewFile(fdControl, controlSocket))
	if err != nil {
		return fmt.Errorf("take control socket: %w", err)
	}
	s := &http.Server{Handler: p.control(), ReadHeaderTimeout: callLimit, MaxHeaderBytes: 1 << 14}
	var work sync.WaitGroup
	work.Go(func() { s.Serve(control) })
	work.Go(func() { p.join(ctx) })
	work.Go(func() { p.keep(ctx) })
	<-ctx.Done()
	s.Close()
	work.Wait()
	return errors.Join(p.keepNames(true), p.traffic.write(p.dir, p.stack.Traffic()))
}

// join connects to the machine and serves it, again whenever the connection ends.
func (p *process) join(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := p.dir.DialFrames(ctx, machine.Socket(machine.PortNetwork))
		if err == nil {
			p.once.Do(func() { close(p.attached) })
			err = p.stack.Attach(ctx, conn)
		}
		if err != nil && ctx.Err() == nil {
			p.log.Warn("serve machine", "err", err)
		}
		select {
		case <-time.After(joinAgain):
		case <-ctx.Done():
		}
	}
}

// keep writes traffic and names periodically.
func (p *process) keep(ctx context.Context) {
	each := time.NewTicker(saveEach)
	defer each.Stop()
	for {
		select {
		case <-each.C:
			if err := p.traffic.write(p.dir, p.stack.Traffic()); err != nil {
				p.log.Warn("write traffic", "err", err)
			}
			if err := p.keepNames(false); err != nil {
				p.log.Warn("write names", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// reload reads policy and secrets again. It resets flows that the policy no longer permits. An unchanged policy has no
// effect.
func (p *process) reload() error {
	p.loading.Lock()
	defer p.loading.Unlock()
	s, err := readSettings(p.dir)
	if err != nil {
		return err
	}
	if p.settings == nil || !reflect.DeepEqual(s, *p.settings) {
		policy, err := netstack.ParsePolicy(s.Policy)
		if err != nil {
			return err
		}
		p.stack.SetPolicy(policy.WithReach(s.Reach))
		p.settings = &s
	}
	return p.reloadSecrets()
}

// bounded is a log that discards output beyond its size.
type bounded struct {
	mu   sync.Mutex
	left int
}

func (b *bounded) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(text) > b.left {
		b.left = 0
		return len(text), nil
	}
	b.left -= len(text)
	return os.Stderr.Write(text)
}

// replace replaces a file of a machine's directory by JSON, atomically.
func replace(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	f, err := os.CreateTemp(dir, name+".")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
