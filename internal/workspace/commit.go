package workspace

import (
	"syscall"

	"holt/internal/store/journal"
)

// enter begins a mutating operation: it takes mu, and says whether this very
// request was done before. leave must follow unless there is an error.
func (t *Tree) enter(c Caller) (done *reply, err error) {
	t.mu.Lock()
	for t.dirtyFull() && t.broken == nil && !t.closed {
		if t.failing != nil {
			err := t.failing
			t.mu.Unlock()
			return nil, errnoOf(err)
		}
		t.kick()
		t.flushed.Wait()
	}
	if err := t.writable(); err != nil {
		t.mu.Unlock()
		return nil, err
	}
	if c.Epoch == 0 {
		return nil, nil
	}
	e := t.epochs[c.Epoch]
	if e == nil {
		t.mu.Unlock()
		return nil, syscall.ESTALE
	}
	if r, ok := e.replies[c.Unique]; ok && c.Unique != 0 {
		return &r, nil
	}
	return nil, nil
}

// writable says whether anything may still change; under mu.
func (t *Tree) writable() error {
	if t.broken != nil || t.closed {
		return syscall.EIO
	}
	return nil
}

// dirtyFull tells whether the flusher must write rows before more may become dirty.
func (t *Tree) dirtyFull() bool { return t.batch.rows()+t.writing > t.opt.MaxDirty }

func (t *Tree) leave() {
	t.inodes.tidy()
	t.mu.Unlock()
}

// once runs do between enter and leave. A request that was done before is not
// done again: repeat makes its answer from the recorded one.
func once[T any](t *Tree, c Caller, repeat func(*reply) (T, error), do func() (T, error)) (answer T, err error) {
	done, err := t.enter(c)
	if err != nil {
		return answer, err
	}
	defer t.leave()
	if done != nil {
		return repeat(done)
	}
	return do()
}

// mutate is once for a request that is answered with an error only.
func (t *Tree) mutate(c Caller, do func() error) error {
	_, err := once(t, c, func(*reply) (struct{}, error) { return struct{}{}, nil }, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// mutateBytes is once for a request that is answered with a number of bytes.
func (t *Tree) mutateBytes(c Caller, do func() (int64, error)) (int64, error) {
	return once(t, c, func(r *reply) (int64, error) { return r.n, nil }, do)
}

// mutateInode is once for a request that is answered with the attributes of an inode. A repeat gets the present ones.
func (t *Tree) mutateInode(c Caller, do func() (*inode, error)) (Attr, error) {
	attr := func(in *inode, err error) (Attr, error) {
		if err != nil {
			return Attr{}, err
		}
		return in.attr(), nil
	}
	return once(t, c, func(r *reply) (Attr, error) { return attr(t.get(r.ino)) }, func() (Attr, error) { return attr(do()) })
}

// record starts the op of a caller.
func (t *Tree) record(kind opKind, c Caller) (op, error) {
	w, err := t.writerID(c.Writer)
	return op{kind: kind, time: t.when(c), epoch: uint64(c.Epoch), unique: c.Unique, writer: w}, err
}

// perform commits o for a caller.
func (t *Tree) perform(c Caller, o op) error {
	r, err := t.record(o.kind, c)
	if err != nil {
		return err
	}
	o.time, o.epoch, o.unique, o.writer = r.time, r.epoch, r.unique, r.writer
	return t.commit(&o, nil, nil)
}

// writerID returns the number of a writer, and gives it one the first time.
func (t *Tree) writerID(w Writer) (uint32, error) {
	if w == (Writer{}) {
		return 0, nil
	}
	if id, ok := t.writers[w]; ok {
		return id, nil
	}
	if b := w.bounded(); b != w {
		return t.writerID(b)
	}
	id, err := t.index.writer(w)
	if err != nil {
		return 0, t.errno("read writer", err)
	}
	if id != 0 {
		t.writers[w] = id
		return id, nil
	}
	o := op{kind: opWriter, time: t.now(), n: int64(t.count.NextWriter), blob: w.encode()}
	if err := t.commit(&o, nil, nil); err != nil {
		return 0, err
	}
	return t.writers[w], nil
}

// commit makes an operation happen: journal first, then memory. An error says
// that nothing changed.
func (t *Tree) commit(o *op, table, data []byte) error {
	_, err := t.commitRef(o, table, data)
	return err
}

// commitRef is commit that also returns where the record lies.
func (t *Tree) commitRef(o *op, table, data []byte) (journal.Ref, error) {
	if err := t.overQuota(o, data); err != nil {
		return journal.Ref{}, err
	}
	t.metaBuf = o.encode(t.metaBuf[:0])
	if err := t.fail("commit.append"); err != nil {
		return journal.Ref{}, errnoOf(err)
	}
	ref, err := t.append(o, table, data)
	if err != nil {
		return ref, t.errno("append to journal", err)
	}
	_ = t.fail("commit.apply") // a place to die, not to fail: the journal has it
	rec := journal.Record{Pos: ref.Pos, End: ref.End, Segment: ref.Segment, Data: ref.Data, DataLen: len(data)}
	if err := t.apply(o, rec); err != nil {
		// Validation must have loaded and checked all that apply needs.
		t.broken = err
		t.log.Error("memory does not match the journal; the workspace accepts no more changes", "record", ref.Pos.String(), "kind", o.kind, "error", err)
		return ref, syscall.EIO
	}
	t.afterApply(o, rec)
	return ref, nil
}

// afterApply counts an applied record and wakes the flusher.
func (t *Tree) afterApply(o *op, rec journal.Record) {
	t.count.Last, t.count.Applied = uint64(rec.Pos), uint64(rec.End)
	t.rememberReply(o, rec)
	if o.kind == opDropCheckpoint {
		t.collected = 0 // its segments may be dead now
	}
	t.batch.ops++
	if t.batch.ops == 1 || t.batch.ops == t.opt.FlushOps {
		t.kick()
	}
}

// kick wakes the flusher.
func (t *Tree) kick() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// rememberReply keeps the answer of a request that may be repeated.
func (t *memory) rememberReply(o *op, rec journal.Record) {
	if o.kind == opFork {
		t.rememberHeldReplies(o.blob2, rec.Pos)
	}
	if o.unique == 0 {
		return
	}
	if e := t.epochs[Epoch(o.epoch)]; e != nil {
		e.remember(o.unique, reply{ino: o.ino, n: o.n}, rec.Pos)
	}
}
