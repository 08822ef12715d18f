package mount

import (
	"context"
	"encoding/binary"
	"sync"

	"holt"
	"holt/internal/workspace"
)

// Change is something that a kernel must drop from its cache: with a Name the
// entry in the directory Ino, otherwise attributes and bytes of Ino.
type Change struct {
	Ino  workspace.Ino
	Name string
}

// maxQueued is the maximum number of queued changes.
const maxQueued = 1 << 16

// Notifier announces changes that were not made through the mount (by the API,
// a restore) to the kernel that has it mounted. It never blocks its callers,
// and holds no lock while a kernel accepts a notification. Changes while
// nothing is mounted wait for the next session; unacknowledged ones of an ended
// session are sent again. The zero value is ready. It serves one mount at a
// time.
type Notifier struct {
	mu      sync.Mutex
	queue   []Change      // not acknowledged by the kernel, oldest first
	sent    int           // number of them in flight
	whole   bool          // the queue has all changes that the kernel may have missed
	moved   chan struct{} // closed and replaced when more may be sent
	drained chan struct{} // closed and replaced when the queue is empty
}

// Notify queues changes. It returns TooMany when the queue is full; a guest
// then gets the changes when its next session begins, and another mount has to
// be unmounted.
func (n *Notifier) Notify(changes ...Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue)+len(changes) > maxQueued {
		n.whole = false
		return holt.Errorf(holt.TooMany, "the mount does not accept change notifications: %d are queued", len(n.queue)).
			WithHint("unmount it, or stop the computer that has it mounted")
	}
	n.queue = append(n.queue, changes...)
	wake(&n.moved)
	return nil
}

// wake wakes the waiters of a channel.
func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// Wait returns when the kernel has acknowledged every change queued so far, or ctx has ended.
func (n *Notifier) Wait(ctx context.Context) error {
	n.mu.Lock()
	if len(n.queue) == 0 {
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
		return holt.Errorf(holt.Timeout, "the mount did not accept the changes in time: %w", context.Cause(ctx))
	}
}

// isWhole reports whether the queue has all changes that the kernel may have missed.
func (n *Notifier) isWhole() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whole
}

// complete queues changes that the kernel may have missed, because a daemon was
// killed or the queue was full. The queue is then complete.
func (n *Notifier) complete(changes []Change) error {
	if err := n.Notify(changes...); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.whole = true
	return nil
}

// Told reports whether the kernel has received all changes: nothing is queued,
// and nothing was lost.
func (n *Notifier) Told() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whole && len(n.queue) == 0
}

// begin starts a session with nothing in flight.
func (n *Notifier) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = 0
}

// next returns the next change to send, if fewer than window are in flight.
// Otherwise it returns a channel that is closed when there may be one.
func (n *Notifier) next(window int) (Change, bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sent < min(len(n.queue), window) {
		n.sent++
		return n.queue[n.sent-1], true, nil
	}
	if n.moved == nil {
		n.moved = make(chan struct{})
	}
	return Change{}, false, n.moved
}

// taken acknowledges the oldest count changes in flight. It returns
// InvalidArgument if there are fewer.
func (n *Notifier) taken(count int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if count > n.sent {
		return holt.Errorf(holt.InvalidArgument, "%d notifications acknowledged, but only %d in flight", count, n.sent)
	}
	n.queue, n.sent = n.queue[count:], n.sent-count
	wake(&n.moved)
	if len(n.queue) == 0 {
		n.queue = nil
		wake(&n.drained)
	}
	return nil
}

// drain sends what may be sent now, and returns a channel that is closed when there may be more.
func (n *Notifier) drain(window int, send func(Change) error) (moved <-chan struct{}, err error) {
	for {
		c, ok, moved := n.next(window)
		if !ok {
			return moved, nil
		}
		if err := send(c); err != nil {
			return nil, err
		}
	}
}

// run sends changes as they are queued, with at most window in flight, until
// ctx ends or sending fails.
func (n *Notifier) run(ctx context.Context, window int, send func(Change) error) error {
	for {
		moved, err := n.drain(window, send)
		if err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil
		}
	}
}

// Codes of notifications, in the error field of a reply's header.
const (
	notifyInvalInode = 2
	notifyInvalEntry = 3
)

// encode returns the FUSE notification for c: a reply's header with unique
// zero, then the structure.
func (c Change) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, outHeaderSize, outHeaderSize+24+len(c.Name)+1)
	if c.Name == "" {
		le.PutUint32(b[4:], notifyInvalInode)
		b = le.AppendUint64(b, uint64(c.Ino))
		b = le.AppendUint64(b, 0)          // offset
		b = le.AppendUint64(b, ^uint64(0)) // length -1: to the end
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
