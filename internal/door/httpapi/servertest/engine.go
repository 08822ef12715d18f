package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"holt/internal/engine/machine"
)

// keepingUntilEnd wraps the local engine: it keeps memory, as far as the packages above it see. A machine that ends with
// its snapshot waits, and is what is restored from it. Any other restore starts a new machine, without the processes of
// the old one. The end of the test kills machines that still wait.
func keepingUntilEnd(t testing.TB) func(machine.Engine) machine.Engine {
	return func(e machine.Engine) machine.Engine {
		k := &keeping{Engine: e, asleep: map[string]*keeper{}}
		t.Cleanup(func() {
			if err := k.end(func(*keeper) bool { return true }); err != nil {
				t.Error(err)
			}
		})
		return k
	}
}

type keeping struct {
	machine.Engine
	mu     sync.Mutex
	asleep map[string]*keeper // by directory of the image
}

func (e *keeping) Capabilities() machine.Capabilities {
	c := e.Engine.Capabilities()
	c.MemorySnapshot = true
	return c
}

func (e *keeping) Start(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	if spec.Restore != "" {
		if k := e.woken(spec.Restore); k != nil {
			return e.keeps(k.Machine, k.spec), nil
		}
		image, err := machine.ReadImage(spec.Restore)
		if err != nil {
			return nil, err
		}
		spec.CPUs, spec.MemoryMB, spec.Restore = image.Spec.CPUs, image.Spec.MemoryMB, ""
	}
	if err := e.end(func(k *keeper) bool { return k.spec.Dir == spec.Dir }); err != nil {
		return nil, err
	}
	m, err := e.Engine.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return e.keeps(m, spec), nil
}

// woken returns the machine that waits at an image, which it does no longer.
func (e *keeping) woken(image string) *keeper {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.asleep[image]
	delete(e.asleep, image)
	return k
}

// end kills the machines that wait and are meant.
func (e *keeping) end(meant func(*keeper) bool) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for image, k := range e.asleep {
		if meant(k) {
			err = errors.Join(err, k.Machine.Kill())
			k.Machine.Release()
			delete(e.asleep, image)
		}
	}
	return err
}

func (e *keeping) Adopt(ctx context.Context, dir string) (machine.Machine, error) {
	m, err := e.Engine.Adopt(ctx, dir)
	if err != nil {
		return nil, err
	}
	return e.keeps(m, machine.Spec{Dir: dir, CPUs: 1, MemoryMB: 1024, Disk: m.Disk()}), nil
}

func (e *keeping) keeps(m machine.Machine, spec machine.Spec) *keeper {
	k := &keeper{Machine: m, engine: e, spec: spec, done: make(chan struct{}), released: make(chan struct{})}
	go func() {
		select {
		case <-m.Done():
			k.end()
		case <-k.released:
		case <-k.done:
		}
	}()
	return k
}

// keeper is a machine of that engine.
type keeper struct {
	machine.Machine
	engine   *keeping
	ended    sync.Once
	done     chan struct{}
	let      sync.Once
	released chan struct{}

	mu    sync.Mutex
	spec  machine.Spec
	slept bool // it waits in engine.asleep
}

func (k *keeper) end() { k.ended.Do(func() { close(k.done) }) }

func (k *keeper) asleep() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.slept
}

func (k *keeper) Done() <-chan struct{} { return k.done }

func (k *keeper) Disk() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.spec.Disk
}

func (k *keeper) Kill() error {
	if k.asleep() {
		return nil
	}
	return k.Machine.Kill()
}

func (k *keeper) Release() {
	k.let.Do(func() { close(k.released) })
	if !k.asleep() {
		k.Machine.Release()
	}
}

func (k *keeper) Snapshot(ctx context.Context, spec machine.SnapshotSpec) (machine.SnapshotReport, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := os.MkdirAll(spec.Dir, 0o700)
	if spec.Held != nil {
		err = errors.Join(err, spec.Held(ctx))
	}
	for _, file := range []string{filepath.Join(spec.Dir, machine.MemoryFile), filepath.Join(spec.Dir, machine.StateFile), spec.Disk} {
		if file != "" {
			err = errors.Join(err, os.WriteFile(file, []byte("none"), 0o600))
		}
	}
	if err == nil {
		err = machine.Image{Engine: k.engine.Name(), Spec: k.spec, Hardware: json.RawMessage("{}")}.Write(spec.Dir, false)
	}
	if err != nil {
		return machine.SnapshotReport{}, errors.Join(err, os.RemoveAll(spec.Dir))
	}
	k.spec.Disk = spec.Disk
	if spec.End {
		k.engine.mu.Lock()
		k.engine.asleep[spec.Dir], k.slept = k, true
		k.engine.mu.Unlock()
		k.end()
	}
	return machine.SnapshotReport{}, nil
}
