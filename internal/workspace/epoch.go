package workspace

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"

	"holt/internal/store/journal"
)

// mostReplies bounds what is remembered for a mount that acknowledges too late
// (agents have 1,024 requests without an answer at most, and acknowledge every
// 128 answers), and mostSpan how many segments are kept from the collector for its sake. The
// oldest answers go first: a repeat of such a request is executed again.
const (
	mostReplies = 1 << 12
	mostSpan    = 8
)

// epoch is one mount, from BeginEpoch to EndEpoch.
type epoch struct {
	number  Epoch
	id      [16]byte
	kind    MountKind
	since   Ino // what was made before, a kernel may have looked up more often than was counted; 0: everything was counted
	request []byte
	reply   []byte

	replies map[uint64]reply
	queue   []replyAt // in journal order; the answers of some may be dropped
	acked   uint64
}

// reply is enough to build the answer of a mutating request again.
type reply struct {
	ino Ino
	n   int64
}

type replyAt struct {
	unique uint64
	pos    journal.Pos
}

func newEpoch(n Epoch, id []byte, kind MountKind) *epoch {
	e := &epoch{number: n, kind: kind, replies: map[uint64]reply{}}
	copy(e.id[:], id)
	return e
}

func (e *epoch) remember(unique uint64, r reply, pos journal.Pos) {
	if unique < e.acked {
		return
	}
	e.replies[unique] = r
	e.queue = append(e.queue, replyAt{unique, pos})
	for len(e.replies) > mostReplies || pos.Segment()-e.queue[0].pos.Segment() > mostSpan {
		delete(e.replies, e.queue[0].unique)
		e.queue = e.queue[1:]
	}
}

func (e *epoch) acknowledge(watermark uint64) {
	if watermark <= e.acked {
		return
	}
	e.acked = watermark
	// Requests are worked on side by side, so the queue is only nearly in the order
	// of their numbers. What stands behind one that is not acknowledged goes with
	// it: each answer is looked at once, however often a guest acknowledges.
	n := 0
	for ; n < len(e.queue) && e.queue[n].unique < watermark; n++ {
		delete(e.replies, e.queue[n].unique)
	}
	e.queue = e.queue[n:]
}

// oldestReply returns the position from which recovery must look for answers
// that may be asked for again; end if there are none.
func (t *memory) oldestReply(end uint64) uint64 {
	for _, e := range t.epochs {
		if len(e.queue) > 0 {
			end = min(end, uint64(e.queue[0].pos))
		}
	}
	return end
}

// EpochInfo describes an open epoch.
type EpochInfo struct {
	Epoch Epoch
	ID    [16]byte
	Kind  MountKind
}

// Epochs lists the open epochs, oldest first.
func (w *Workspace) Epochs() []EpochInfo {
	t := w.tree
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]EpochInfo, 0, len(t.epochs))
	for _, e := range t.epochs {
		out = append(out, EpochInfo{e.number, e.id, e.kind})
	}
	slices.SortFunc(out, func(a, b EpochInfo) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return out
}

// BeginEpoch opens the epoch of the mount with this id, or finds it open:
// resumed says that it was.
func (w *Workspace) BeginEpoch(id [16]byte, kind MountKind) (e Epoch, resumed bool, err error) {
	t := w.tree
	if _, err := t.enter(Caller{}); err != nil {
		return 0, false, err
	}
	defer t.leave()
	for _, e := range t.epochs {
		if e.id == id {
			return e.number, true, nil
		}
	}
	e = Epoch(t.count.NextEpoch)
	o := op{kind: opBegin, time: t.now(), n: int64(e), name: string(kind), blob: id[:]}
	return e, false, t.commit(&o, nil, nil)
}

// EpochInit returns the recorded INIT request and its reply.
func (w *Workspace) EpochInit(e Epoch) (req, reply []byte, ok bool) {
	t := w.tree
	t.mu.RLock()
	defer t.mu.RUnlock()
	x := t.epochs[e]
	if x == nil || len(x.request) == 0 {
		return nil, nil, false
	}
	return slices.Clone(x.request), slices.Clone(x.reply), true
}

// mostInit bounds an INIT request, and its reply, bytes.
const mostInit = 4096

// SetEpochInit records the INIT request of a mount and its reply.
func (w *Workspace) SetEpochInit(e Epoch, req, reply []byte) error {
	if len(req) == 0 || len(req) > mostInit || len(reply) > mostInit {
		return syscall.EINVAL
	}
	t := w.tree
	return t.mutate(Caller{Epoch: e}, func() error {
		o := op{kind: opInit, time: t.now(), n: int64(e), blob: req, blob2: reply}
		return t.commit(&o, nil, nil)
	})
}

// EndEpoch says that the mount is gone. With the last one go the unlinked
// inodes. An epoch that is not open is ended already: no error.
func (w *Workspace) EndEpoch(e Epoch) error { return w.tree.endEpoch(e) }

func (t *Tree) endEpoch(e Epoch) error {
	return t.mutate(Caller{}, func() error {
		if t.epochs[e] == nil {
			return nil
		}
		if len(t.epochs) == 1 {
			for ino := range t.orphans {
				if _, err := t.get(ino); err != nil {
					return err
				}
			}
		}
		o := op{kind: opEnd, time: t.now(), n: int64(e)}
		return t.commit(&o, nil, nil)
	})
}

// Acknowledge says that every request of e numbered below watermark was
// answered and its answer received: recorded answers below it are dropped.
func (w *Workspace) Acknowledge(e Epoch, watermark uint64) {
	t := w.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.epochs[e]; x != nil {
		x.acknowledge(watermark)
	}
}

func (t *memory) applyEpoch(o *op) error {
	number := Epoch(o.n)
	e := t.epochs[number]
	if (e == nil) != (o.kind == opBegin) {
		return fmt.Errorf("%w: epoch %d", errApply, number)
	}
	t.batch.epochs[number] = struct{}{}
	if o.kind != opInit {
		t.skew.Store(0)
	}
	switch o.kind {
	case opBegin:
		t.epochs[number] = newEpoch(number, o.blob, MountKind(o.name))
		t.count.NextEpoch = uint64(number) + 1
	case opInit:
		e.request, e.reply = o.blob, o.blob2
	case opEnd:
		if delete(t.epochs, number); len(t.epochs) == 0 {
			t.count.Stale = 0
		}
		return t.freeOrphans()
	}
	return nil
}

// freeOrphans ends every unlinked inode once no mount is open.
func (t *memory) freeOrphans() error {
	if len(t.epochs) > 0 {
		return nil
	}
	for ino := range t.orphans {
		in, err := t.get(ino)
		if err != nil {
			return err
		}
		t.free(in, t.lastVersion(in))
	}
	for _, in := range t.inodes.ring {
		in.lookups.Store(0)
	}
	clear(t.inodes.counts)
	return nil
}

// lookupsCounted tells whether every lookup of an inode that a kernel may hold was
// counted: of one that was there when another process had the mount, or the
// mount's guest was somewhere else, they may not have been.
func (t *memory) lookupsCounted(ino Ino) bool {
	for _, e := range t.epochs {
		if ino < e.since {
			return false
		}
	}
	return true
}

// freeNow tells whether an inode that loses its last name can go at once:
// it is not mounted, or no kernel knows it.
func (t *memory) freeNow(in *inode) bool {
	return len(t.epochs) == 0 || t.lookupsCounted(in.ino) && in.lookups.Load() == 0
}

// Forget says that a kernel dropped n lookups of ino. An inode without a name
// goes with the last one. After a takeover the counts of what was there before are
// not known, so that only a FORGET of more than was counted since proves anything;
// the rest waits for the end of the epoch.
func (t *Tree) Forget(c Caller, ino Ino, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Epoch == 0 || t.epochs[c.Epoch] == nil || t.broken != nil || t.closed {
		return
	}
	counted := uint64(t.inodes.lookups(ino))
	if counted < mostLookups {
		t.inodes.setLookups(ino, uint32(counted-min(n, counted)))
	}
	if _, orphan := t.orphans[ino]; !orphan {
		return
	}
	if counted < mostLookups && (n > counted || n == counted && t.lookupsCounted(ino)) {
		if _, err := t.get(ino); err != nil {
			return
		}
		o := op{kind: opFree, time: t.now(), ino: ino}
		_ = t.commit(&o, nil, nil) // logged; the end of the epoch frees it too
	}
}

// mostLookups is where counting stops: such an inode waits for the end of the
// epoch, however many lookups are forgotten.
const mostLookups = 1<<32 - 1

// addLookup counts one more lookup.
func (in *inode) addLookup() {
	for {
		n := in.lookups.Load()
		if n == mostLookups || in.lookups.CompareAndSwap(n, n+1) {
			return
		}
	}
}

func (c *inodeCache) lookups(ino Ino) uint32 {
	if in := c.m[ino]; in != nil {
		return in.lookups.Load()
	}
	return c.counts[ino]
}

func (c *inodeCache) setLookups(ino Ino, n uint32) {
	switch in := c.m[ino]; {
	case in != nil:
		in.lookups.Store(n)
	case n == 0:
		delete(c.counts, ino)
	default:
		c.counts[ino] = n
	}
}
