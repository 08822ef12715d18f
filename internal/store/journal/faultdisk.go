package journal

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
)

// Op is a call that a [FaultDisk] can make fail.
type Op string

// The calls.
const (
	OpCreate  Op = "create"
	OpRead    Op = "read"
	OpWrite   Op = "write"
	OpSync    Op = "sync"
	OpSyncDir Op = "syncdir"
	OpRemove  Op = "remove"
	OpLink    Op = "link"
)

// FaultDisk is a [Disk] for tests: it makes calls fail and simulates a power loss.
type FaultDisk struct {
	Under Disk

	mu     sync.Mutex
	hook   func(op Op, name string, n int) (done int, err error)
	synced map[string]int64 // by path: bytes before this survive
	linked map[string]bool  // by path: the directory entry survives
}

// NewFaultDisk returns a FaultDisk over the real disk.
func NewFaultDisk() *FaultDisk {
	return &FaultDisk{Under: OS{}, synced: map[string]int64{}, linked: map[string]bool{}}
}

// SetHook makes fn decide whether a call fails: a failing write writes only its
// first done bytes. Nil: no call fails.
func (d *FaultDisk) SetHook(fn func(op Op, name string, n int) (done int, err error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = fn
}

func (d *FaultDisk) ask(op Op, name string, n int) (int, error) {
	d.mu.Lock()
	hook := d.hook
	d.mu.Unlock()
	if hook == nil {
		return n, nil
	}
	return hook(op, name, n)
}

// OpenFile implements [Disk].
func (d *FaultDisk) OpenFile(name string, create bool) (File, error) {
	if create {
		if _, err := d.ask(OpCreate, name, 0); err != nil {
			return nil, err
		}
	}
	f, err := d.Under.OpenFile(name, create)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, err
	}
	d.mu.Lock()
	if _, known := d.synced[name]; !known {
		d.synced[name], d.linked[name] = size, !create
	}
	d.mu.Unlock()
	return &faultFile{File: f, disk: d, name: name}, nil
}

// ReadDir implements [Disk].
func (d *FaultDisk) ReadDir(dir string) ([]string, error) { return d.Under.ReadDir(dir) }

// Rename implements [Disk].
func (d *FaultDisk) Rename(from, to string) error { return d.Under.Rename(from, to) }

// Link implements [Disk].
func (d *FaultDisk) Link(from, to string) error {
	if _, err := d.ask(OpLink, to, 0); err != nil {
		return err
	}
	if err := d.Under.Link(from, to); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.linked[to] = false
	if synced, known := d.synced[from]; known {
		d.synced[to] = synced
	}
	return nil
}

// Remove implements [Disk].
func (d *FaultDisk) Remove(name string) error {
	if _, err := d.ask(OpRemove, name, 0); err != nil {
		return err
	}
	return d.Under.Remove(name)
}

// SyncDir implements [Disk].
func (d *FaultDisk) SyncDir(dir string) error {
	if _, err := d.ask(OpSyncDir, dir, 0); err != nil {
		return err
	}
	if err := d.Under.SyncDir(dir); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.linked {
		if filepath.Dir(name) == filepath.Clean(dir) {
			d.linked[name] = true
		}
	}
	return nil
}

// Image copies dir to dst as a power loss now could leave it: synced bytes are
// complete; of the rest, rng drops pages and truncates the end.
func (d *FaultDisk) Image(dir, dst string, rng *rand.Rand) error {
	names, err := d.Under.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if linked, known := d.linked[path]; known && !linked && rng.IntN(2) == 0 {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		if synced, known := d.synced[path]; known && synced < int64(len(b)) {
			b = lose(b, synced, rng)
		}
		if err := os.WriteFile(filepath.Join(dst, name), b, 0o600); err != nil {
			return fmt.Errorf("image: %w", err)
		}
	}
	return nil
}

// lose returns a possible content of b after a power loss when only b[:synced] was synced.
func lose(b []byte, synced int64, rng *rand.Rand) []byte {
	const page = 4096
	b = b[:synced+rng.Int64N(int64(len(b))-synced+1)]
	if rng.IntN(2) == 0 {
		return b
	}
	for p := synced; p < int64(len(b)); p = p/page*page + page {
		if rng.IntN(4) == 0 {
			clear(b[p:min(int64(len(b)), p/page*page+page)])
		}
	}
	return b
}

type faultFile struct {
	File
	disk *FaultDisk
	name string
}

func (f *faultFile) ReadVec(bufs [][]byte, off int64) error {
	if _, err := f.disk.ask(OpRead, f.name, 0); err != nil {
		return err
	}
	return f.File.ReadVec(bufs, off)
}

func (f *faultFile) WriteVec(bufs [][]byte, off int64) (int, error) {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	done, fault := f.disk.ask(OpWrite, f.name, n)
	f.disk.mu.Lock()
	f.disk.synced[f.name] = min(f.disk.synced[f.name], off)
	f.disk.mu.Unlock()
	if fault == nil {
		return f.File.WriteVec(bufs, off)
	}
	if done = min(done, n-1); done <= 0 {
		return 0, fault
	}
	part, left := bufs[:0:0], done
	for _, b := range bufs {
		b = b[:min(len(b), left)]
		part, left = append(part, b), left-len(b)
	}
	if m, err := f.File.WriteVec(part, off); err != nil {
		return m, err
	}
	return done, fault
}

func (f *faultFile) Sync() error {
	size, err := f.File.Size()
	if err != nil {
		return err
	}
	if _, err := f.disk.ask(OpSync, f.name, 0); err != nil {
		return err
	}
	if err := f.File.Sync(); err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	// Bytes written during the sync count as not synced.
	f.disk.synced[f.name] = max(f.disk.synced[f.name], size)
	return nil
}

var _ = []Disk{OS{}, (*FaultDisk)(nil)}
