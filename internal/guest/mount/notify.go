package mount

import (
	"context"
	"encoding/binary"
	"sync"

	"holt"
	"holt/internal/workspace"
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
// comes while nothing is mounted waits for the next session; what a session
// sent and its kernel was not known to have taken when it ended is sent again.
// Its zero value is ready; it serves one mount at a time.
type Notifier struct {
	mu      sync.Mutex
	queue   []Change      // that the kernel is not known to have taken, oldest first
	sent    int           // so many of them are on their way
	whole   bool          // what the kernel does not know is in the queue, and nowhere else
	moved   chan struct{} // closed and replaced when more may be sent than before
	drained chan struct{} // closed and replaced when the kernel has taken everything
}

// Notify queues changes. It returns TooMany when as much waits as may; a guest is
// then told of what changed when its next session begins, and another mount has
// to be ended.
func (n *Notifier) Notify(changes ...Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue)+len(changes) > maxQueued {
		n.whole = false
		return holt.Errorf(holt.TooMany, "%d changes wait for a mount that does not take them", len(n.queue)).
			WithHint("unmount it, or stop the computer that has it mounted")
	}
	n.queue = append(n.queue, changes...)
	wake(&n.moved)
	return nil
}

// wake lets go who waits on a channel.
func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// Wait returns when the kernel has taken every change queued so far, or ctx
// ended.
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
		return holt.Errorf(holt.Timeout, "mount did not take in the changes in time: %w", context.Cause(ctx))
	}
}

// isWhole says whether what the kernel does not know is in the queue.
func (n *Notifier) isWhole() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whole
}

// complete queues what the kernel may not have been told besides what waits: by
// a daemon that was killed, or because too much waited. Then the queue is whole.
func (n *Notifier) complete(changes []Change) error {
	if err := n.Notify(changes...); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.whole = true
	return nil
}

// Told says whether the kernel knows everything: nothing waits, and nothing was
// lost.
func (n *Notifier) Told() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whole && len(n.queue) == 0
}

// begin is called before a session: nothing is on its way.
func (n *Notifier) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = 0
}

// next returns the next change to send, while fewer than window are on their
// way. Without one it returns a channel that is closed when there may be.
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

// taken says that the kernel has the oldest count of the changes on their way.
// It returns InvalidArgument if there are not as many.
func (n *Notifier) taken(count int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if count > n.sent {
		return holt.Errorf(holt.InvalidArgument, "%d notices taken of %d on their way", count, n.sent)
	}
	n.queue, n.sent = n.queue[count:], n.sent-count
	wake(&n.moved)
	if len(n.queue) == 0 {
		n.queue = nil
		wake(&n.drained)
	}
	return nil
}

// drain sends what may be sent now, and returns a channel that is closed when
// there may be more.
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

// run sends changes as they come, at most window ahead of what the kernel has
// taken, until ctx ends or one cannot be sent.
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
