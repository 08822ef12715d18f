package workspace

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"holt"
	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// heldMount is what a checkpoint holds of a guest's mount, so that in a fork
// the same mount continues: which it is, its terms, and the answers that it may
// still ask for. Lookup counts are not held, as they do not survive a takeover.
type heldMount struct {
	number         Epoch
	id             [16]byte
	request, reply []byte // of INIT
	answers        []heldAnswer
}

type heldAnswer struct {
	unique uint64
	reply
}

const (
	heldVersion = 1         // the first byte of what holds mounts
	mostHeld    = 192 << 10 // bytes of it; so it fits into a record
)

// holdMounts returns what the guests' mounts have, encoded. Mounts of the host
// are left out: they end with their daemon.
func (t *memory) holdMounts() ([]byte, error) {
	var all []heldMount
	for n, e := range t.epochs {
		if e.kind != GuestMount {
			continue
		}
		m := heldMount{number: n, id: e.id, request: e.request, reply: e.reply}
		for _, q := range e.queue {
			if r, ok := e.replies[q.unique]; ok && q.unique >= e.acked {
				m.answers = append(m.answers, heldAnswer{q.unique, r})
			}
		}
		all = append(all, m)
	}
	b := packMounts(all)
	if len(b) > mostHeld {
		return nil, holt.Errorf(holt.TooMany, "checkpoint workspace: %d guests have it mounted and have too many unacknowledged requests", len(all)).
			WithHint("stop computers that no longer respond")
	}
	return b, nil
}

// packMounts encodes mounts:
//
//	version u8, then each mount: number uvarint, id [16]byte, INIT and its answer as uvarint length and bytes,
//	uvarint count of answers, each: unique zigzag uvarint from the one before, inode uvarint, n uvarint
func packMounts(all []heldMount) []byte {
	b := []byte{heldVersion}
	for _, m := range all {
		b = append(binary.AppendUvarint(b, uint64(m.number)), m.id[:]...)
		b = append(binary.AppendUvarint(b, uint64(len(m.request))), m.request...)
		b = append(binary.AppendUvarint(b, uint64(len(m.reply))), m.reply...)
		b = binary.AppendUvarint(b, uint64(len(m.answers)))
		last := uint64(0)
		for _, a := range m.answers {
			b = binary.AppendUvarint(b, zigzag(int64(a.unique-last)))
			b = binary.AppendUvarint(b, uint64(a.ino))
			b = binary.AppendUvarint(b, uint64(a.n))
			last = a.unique
		}
	}
	return b
}

var errHeld = errors.New("what a checkpoint holds of mounts cannot be decoded")

// unpackMounts is the inverse of packMounts. It keeps nothing of b.
func unpackMounts(b []byte) (all []heldMount, err error) {
	if len(b) == 0 || len(b) > mostHeld || b[0] != heldVersion {
		return nil, errHeld
	}
	d := heldDecoder{b: b[1:]}
	for len(d.b) > 0 {
		m := heldMount{number: Epoch(d.number(1<<63 - 1))}
		copy(m.id[:], d.bytes(len(m.id)))
		m.request = d.bytes(int(d.number(mostInit)))
		m.reply = d.bytes(int(d.number(mostInit)))
		n := d.number(mostReplies)
		for last := uint64(0); n > 0 && !d.bad; n-- {
			last += uint64(unzigzag(d.number(^uint64(0))))
			m.answers = append(m.answers, heldAnswer{last, reply{ino: Ino(d.number(1<<63 - 1)), n: int64(d.number(1<<63 - 1))}})
		}
		twice := func(o heldMount) bool { return o.number == m.number || o.id == m.id }
		if d.bad || m.number == 0 || slices.ContainsFunc(all, twice) {
			return nil, errHeld
		}
		all = append(all, m)
	}
	return all, nil
}

// heldDecoder takes values off the front of b; once one is not there, all
// others are zero.
type heldDecoder struct {
	b   []byte
	bad bool
}

func (d *heldDecoder) number(most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > most {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *heldDecoder) bytes(n int) []byte {
	if n > len(d.b) {
		d.b, d.bad = nil, true
	}
	if d.bad {
		return nil
	}
	b := slices.Clone(d.b[:n])
	d.b = d.b[n:]
	return b
}

// reopenMounts opens the mounts that a fork continues. Their answers it finds where
// recovery does: see rememberHeldReplies.
func (t *memory) reopenMounts(held []byte) error {
	if len(held) == 0 {
		return nil
	}
	all, err := unpackMounts(held)
	for _, m := range all {
		e := newEpoch(m.number, m.id[:], GuestMount)
		e.request, e.reply = m.request, m.reply
		t.epochs[m.number] = e
		t.batch.epochs[m.number] = struct{}{}
		t.count.NextEpoch = max(t.count.NextEpoch, uint64(m.number)+1)
	}
	return err
}

// rememberHeldReplies remembers the answers for the mounts that a fork continues.
func (t *memory) rememberHeldReplies(held []byte, pos journal.Pos) {
	if len(held) == 0 {
		return
	}
	all, _ := unpackMounts(held) // reopenMounts read it before
	for _, m := range all {
		if e := t.epochs[m.number]; e != nil && e.id == m.id {
			for _, a := range m.answers {
				e.remember(a.unique, a.reply, pos)
			}
		}
	}
}

// heldMounts returns what a checkpoint that is in the index holds of mounts.
func (t *Tree) heldMounts(ctx context.Context, c Checkpoint) (b []byte, err error) {
	err = t.readBriefly(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT mounts FROM checkpoint WHERE id = ?", []any{int64(c.ID)}, func(r *db.Row) error {
			b = r.Bytes(0)
			return nil
		})
	})
	return b, err
}
