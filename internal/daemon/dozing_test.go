package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"holt/internal/daemon"
	"holt/internal/engine/machine"
)

// dozing is the local engine with memory that can be kept, as far as a pause needs that: the machine
// of a paused computer goes on without anybody who talks to it, and a resume finds it again.
type dozing struct {
	machine.Engine
	mu     sync.Mutex
	asleep map[string]machine.Machine // by the directory of the image

	networks atomic.Bool // it says that its machines have networks of their own; then none can start
}

// dozes is a daemon's configuration with that engine.
func dozes(t *testing.T, dir string) daemon.Config {
	cfg := config(t, dir)
	cfg.Wrap = func(e machine.Engine) machine.Engine {
		d := &dozing{Engine: e, asleep: map[string]machine.Machine{}}
		t.Cleanup(func() {
			for _, m := range d.asleep {
				if err := m.Kill(); err != nil {
					t.Error(err)
				}
				m.Release()
			}
		})
		return d
	}
	return cfg
}

func (e *dozing) Capabilities() machine.Capabilities {
	c := e.Engine.Capabilities()
	c.MemorySnapshot = true
	c.OwnNetwork = c.OwnNetwork || e.networks.Load()
	return c
}

func (e *dozing) Start(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	if spec.Restore == "" {
		m, err := e.Engine.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		return e.awake(m), nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.asleep[spec.Restore]
	if m == nil {
		return nil, errors.New("nobody sleeps there")
	}
	delete(e.asleep, spec.Restore)
	return e.awake(m), nil
}

func (e *dozing) awake(m machine.Machine) *dozer {
	d := &dozer{Machine: m, e: e, done: make(chan struct{}), woken: make(chan struct{})}
	go func() {
		select {
		case <-m.Done():
			d.end()
		case <-d.woken:
		case <-d.done:
		}
	}()
	return d
}

// dozer is a machine of that engine that is awake.
type dozer struct {
	machine.Machine
	e     *dozing
	once  sync.Once
	done  chan struct{}
	woken chan struct{} // closed by Release
	let   sync.Once
	slept bool
}

func (d *dozer) end() { d.once.Do(func() { close(d.done) }) }

func (d *dozer) Done() <-chan struct{} { return d.done }

func (d *dozer) Kill() error {
	if d.slept {
		return nil
	}
	return d.Machine.Kill()
}

func (d *dozer) Release() {
	d.let.Do(func() { close(d.woken) })
	if !d.slept {
		d.Machine.Release()
	}
}

func (d *dozer) Snapshot(ctx context.Context, spec machine.SnapshotSpec) (machine.SnapshotReport, error) {
	err := errors.Join(os.MkdirAll(spec.Dir, 0o700), spec.Held(ctx))
	for _, name := range []string{machine.MemoryFile, machine.StateFile} {
		err = errors.Join(err, os.WriteFile(spec.Dir+"/"+name, []byte("there is none"), 0o600))
	}
	if err == nil {
		err = machine.Image{Engine: "local", Spec: machine.Spec{CPUs: 1, MemoryMB: 1024}, Hardware: json.RawMessage("{}")}.Write(spec.Dir, false)
	}
	if err != nil {
		return machine.SnapshotReport{}, err
	}
	if spec.End {
		d.e.mu.Lock()
		d.e.asleep[spec.Dir], d.slept = d.Machine, true
		d.e.mu.Unlock()
		d.end()
	}
	return machine.SnapshotReport{}, nil
}
