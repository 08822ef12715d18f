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
	saveEach  = 5 * time.Second        // what went where
	joinAgain = 100 * time.Millisecond // after the machine's end of the link was closed
	mostLog   = 1 << 20                // bytes that a process says
)

// process is the network of one machine, in the process that it is.
type process struct {
	log      *slog.Logger
	dir      *machine.Dir
	self     machine.Process
	machine  machine.Process
	stack    *netstack.Stack
	traffic  totals
	secrets  atomic.Int64  // how many it adds
	kept     int64         // names, as [netstack.Stack.Known] counts them, that are written down
	loading  sync.Mutex    // held while policy and secrets are read
	settings *settings     // that count; nil: none yet
	attached chan struct{} // closed when the machine was there first
	once     sync.Once
}

// Serve is the process that is the network of the machine in a directory, until that ends. Its lock and
// its control socket are inherited, see [Networks].
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
	// What net/http says of answers that nobody asked for is a server's to choose, and would have no bound.
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

// run serves the machine until ctx ends. Connections end with the process.
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

// join serves the machine's end of the link, again whenever it was closed.
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

// keep writes down what went where, and the names of addresses, every now and then.
func (p *process) keep(ctx context.Context) {
	each := time.NewTicker(saveEach)
	defer each.Stop()
	for {
		select {
		case <-each.C:
			if err := p.traffic.write(p.dir, p.stack.Traffic()); err != nil {
				p.log.Warn("keep what went where", "err", err)
			}
			if err := p.keepNames(false); err != nil {
				p.log.Warn("keep names", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// reload reads policy and secrets anew; what is not permitted any more is cut off. A policy that is as it was
// changes nothing.
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

// bounded is a log that has room for so much.
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

// replace puts JSON into a file of a machine's directory, all of it at once.
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
