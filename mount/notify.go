package mount

import (
	"context"
	"encoding/binary"
	"sync"

	"holt"
	"holt/workspace"
)

// Change names what a kernel may no longer believe. With a Name it is that
// entry of the directory Ino, else the attributes and the bytes of Ino.
type Change struct {
	Ino  workspace.Ino
	Name string
}

// maxQueued bounds the changes that wait for a mount.
const maxQueued = 1 << 16

// Notifier carries changes that were made on another way than through a mount
// (the API, a restore) to the kernel that has it mounted, on a path of its own:
// it blocks nobody, and no lock is held while a kernel takes in a notice. What
// comes while nothing is mounted waits for the next session. Its zero value is
// ready; it serves one mount at a time.
type Notifier struct {
	mu      sync.Mutex
	queue   []Change
	taken   int           // in delivery, not yet delivered
	arrived chan struct{} // closed and replaced when something is queued
	drained chan struct{} // closed and replaced when everything was delivered
}

// Notify queues changes. It returns TooMany when as much waits as may; the
// mount then has to be ended.
func (n *Notifier) Notify(changes ...Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue)+len(changes) > maxQueued {
		return holt.Errorf(holt.TooMany, "%d changes wait for a mount that does not take them", len(n.queue)).
			WithHint("unmount it, or stop the computer that has it mounted")
	}
	n.queue = append(n.queue, changes...)
	if n.arrived != nil {
		close(n.arrived)
		n.arrived = nil
	}
	return nil
}

// Wait returns when every change queued so far was handed to the kernel, or
// ctx ended.
func (n *Notifier) Wait(ctx context.Context) error {
	n.mu.Lock()
	if len(n.queue)+n.taken == 0 {
		n.mu.Unlock()
		return nil
	}
	if n.drained == nil {
		n.drained = make(chan struct{})
	}
	drained := n.drained
	n.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return holt.Errorf(holt.Timeout, "mount did not take in the changes in time: %w", context.Cause(ctx))
	}
}

// take returns the next change. Without one it returns a channel that is
// closed when there is.
func (n *Notifier) take() (Change, bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) > 0 {
		c := n.queue[0]
		n.queue = n.queue[1:]
		n.taken++
		return c, true, nil
	}
	if n.arrived == nil {
		n.arrived = make(chan struct{})
	}
	return Change{}, false, n.arrived
}

// delivered says that a taken change reached the kernel; if it did not, it
// goes back to the front.
func (n *Notifier) delivered(c Change, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken--
	if !ok {
		n.queue = append([]Change{c}, n.queue...)
		return
	}
	if len(n.queue)+n.taken == 0 && n.drained != nil {
		close(n.drained)
		n.drained = nil
	}
}

// drain delivers what is queued now, and returns a channel that is closed
// when there is more.
func (n *Notifier) drain(deliver func(Change) error) (arrived <-chan struct{}, err error) {
	for {
		c, ok, arrived := n.take()
		if !ok {
			return arrived, nil
		}
		err := deliver(c)
		n.delivered(c, err == nil)
		if err != nil {
			return nil, err
		}
	}
}

// run delivers changes as they come, until ctx ends or a delivery fails.
func (n *Notifier) run(ctx context.Context, deliver func(Change) error) error {
	for {
		arrived, err := n.drain(deliver)
		if err != nil {
			return err
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil
		}
	}
}

// Codes of notifications, in the place of a reply's error.
const (
	notifyInvalInode = 2
	notifyInvalEntry = 3
)

// encode returns the FUSE notification that tells a guest's kernel of c: a
// reply's header with unique zero, then the structure.
func (c Change) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, outHeaderSize, outHeaderSize+24+len(c.Name)+1)
	if c.Name == "" {
		le.PutUint32(b[4:], notifyInvalInode)
		b = le.AppendUint64(b, uint64(c.Ino))
		b = le.AppendUint64(b, 0)          // from the first byte
		b = le.AppendUint64(b, ^uint64(0)) // to the end: a length of -1
	} else {
		le.PutUint32(b[4:], notifyInvalEntry)
		b = le.AppendUint64(b, uint64(c.Ino))
		b = le.AppendUint32(b, uint32(len(c.Name)))
		b = le.AppendUint32(b, 0)
		b = append(append(b, c.Name...), 0)
	}
	le.PutUint32(b, uint32(len(b)))
	return b
}
