package workspace

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"holt/internal/store/journal"
)

// A restore changes thousands of files, and happens wholly or not at all: its
// parts are written to the journal first, packed into records that change
// nothing, and the record after them makes all of them happen. A group without
// its end is nothing: recovery reads over it.

// mostParts bounds the parts in one record, bytes.
const mostParts = 128 << 10

// parts are encoded parts, in blobs of bounded size.
type parts struct {
	blobs [][]byte
	one   []byte
}

func (p *parts) add(o *op) {
	p.one = o.encode(p.one[:0])
	last := len(p.blobs) - 1
	if last < 0 || len(p.blobs[last])+len(p.one)+binary.MaxVarintLen32 > mostParts {
		p.blobs, last = append(p.blobs, make([]byte, 0, mostParts)), last+1
	}
	p.blobs[last] = append(binary.AppendUvarint(p.blobs[last], uint64(len(p.one))), p.one...)
}

// eachPart calls fn with the encoded parts of one blob.
func eachPart(b []byte, fn func(part []byte) error) error {
	for len(b) > 0 {
		n, k := binary.Uvarint(b)
		if k <= 0 || n == 0 || n > uint64(len(b)-k) {
			return errOp
		}
		if err := fn(b[k : k+int(n)]); err != nil {
			return err
		}
		b = b[k+int(n):]
	}
	return nil
}

// packExtents encodes extents that lie at or after off.
func packExtents(off int64, extents []extent) []byte {
	b := make([]byte, 0, 12*len(extents))
	for _, e := range extents {
		for _, v := range [...]uint64{uint64(e.off - off), uint64(e.n), uint64(e.segment), uint64(e.place), uint64(e.whole), uint64(e.delta)} {
			b = binary.AppendUvarint(b, v)
		}
		off = e.end()
	}
	return b
}

// unpackExtents decodes extents that lie in off..end, in order. They may be
// anything that an extent may be.
func unpackExtents(off, end int64, b []byte) (extents []extent, err error) {
	if off < 0 || end < off || end > maxSize {
		return nil, errOp
	}
	for len(b) > 0 {
		var v [6]uint64
		for i := range v {
			n, k := binary.Uvarint(b)
			if k <= 0 || i > 0 && n > 1<<32-1 || n > maxSize {
				return nil, errOp
			}
			v[i], b = n, b[k:]
		}
		e := extent{off: off + int64(v[0]), n: uint32(v[1]), segment: uint32(v[2]), place: uint32(v[3]), whole: uint32(v[4]), delta: uint32(v[5])}
		if e.n == 0 || e.end() > end || e.off/windowSize != (e.end()-1)/windowSize || v[4] > journal.MaxData || v[5]+v[1] > v[4] {
			return nil, errOp
		}
		extents, off = append(extents, e), e.end()
	}
	return extents, nil
}

// commitParts makes parts happen, all or none. mu is held, and everything that
// the parts touch is loaded.
func (t *Tree) commitParts(all parts, end op) error {
	defer func() { t.parts = nil }()
	for i, b := range all.blobs {
		o := op{kind: opParts, time: end.time, n: int64(i), blob: b}
		if err := t.commit(&o, nil, nil); err != nil {
			return err
		}
	}
	end.kind, end.from = opPartsEnd, int64(len(all.blobs))
	return t.commit(&end, nil, nil)
}

// applyParts keeps the parts until their end comes.
func (t *memory) applyParts(o *op) error {
	if o.n == 0 {
		t.parts, t.partsAt = nil, [2]uint64{t.count.Last, t.count.Applied}
	}
	if int64(len(t.parts)) != o.n {
		return fmt.Errorf("%w: parts %d", errApply, o.n)
	}
	t.parts = append(t.parts, o.blob)
	return nil
}

// applyPartsEnd makes the parts before it happen.
func (t *memory) applyPartsEnd(o *op) error {
	blobs := t.parts
	if int64(len(blobs)) != o.from {
		return fmt.Errorf("%w: %d of %d records of parts", errApply, len(blobs), o.from)
	}
	t.parts = nil
	if err := t.makeRoom(blobs); err != nil {
		return err
	}
	if o.n != 0 {
		t.count.Head = uint64(o.n)
	}
	touched := map[Ino]*inode{}
	for _, b := range blobs {
		err := eachPart(b, func(b []byte) error {
			part, err := decodeOp(b)
			if err != nil {
				return fmt.Errorf("%w: %w", errApply, err)
			}
			part.writer, part.time = o.writer, o.time
			return t.applyPart(&part, touched)
		})
		if err != nil {
			return err
		}
	}
	for _, in := range touched {
		_, orphan := t.orphans[in.ino]
		switch {
		case in.freed:
		case in.nlink > 0 && orphan:
			delete(t.orphans, in.ino)
			t.batch.named = append(t.batch.named, in.ino)
		case in.nlink == 0 && !orphan:
			t.orphans[in.ino] = struct{}{}
			t.removePath(in)
		}
	}
	return nil
}

// makeRoom looks, before anything changes, whether the inodes that parts make
// are not there. Those that are gone the index must forget first.
func (t *memory) makeRoom(blobs [][]byte) error {
	var made []Ino
	freed := false
	for _, b := range blobs {
		err := eachPart(b, func(b []byte) error {
			if opKind(b[0]) != opRevive {
				return nil
			}
			part, err := decodeOp(b)
			if err != nil {
				return err
			}
			in := t.inodes.m[part.ino]
			if part.ino == 0 || in != nil && !in.freed {
				return fmt.Errorf("inode %d is there", part.ino)
			}
			freed = freed || in != nil
			made = append(made, part.ino)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%w: %w", errApply, err)
		}
	}
	if freed {
		// The parts change nothing, but a recovery from the index must read them.
		c := &t.count
		last, applied := c.Last, c.Applied
		c.Last, c.Applied = t.partsAt[0], t.partsAt[1]
		err := t.write()
		if c.Last, c.Applied = last, applied; err != nil {
			return err
		}
	}
	return sets(made, func(set string) error {
		there, err := t.index.anyInode(set)
		if err == nil && there {
			err = fmt.Errorf("%w: inodes are there", errApply)
		}
		return err
	})
}

// removePath takes the path from a directory without a name.
func (t *memory) removePath(in *inode) {
	if in.isDir() {
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: in.ino, version: in.born})
	}
}

func (t *memory) applyPart(o *op, touched map[Ino]*inode) error {
	switch o.kind {
	case opRevive:
		return t.applyRevive(o, touched)
	case opErase, opEnter:
		return t.applyName(o, touched)
	case opExtents:
		return t.applyExtents(o)
	case opSetXattr, opDelXattr:
		return t.applyXattr(o)
	case opImage:
		return t.applyImage(o)
	case opTwin, opMerged:
		return t.applyMerged(o)
	case opAdopt:
		return t.applyAdopt(o)
	case opFree:
		in, err := t.get(o.ino)
		if err != nil {
			return err
		}
		t.removePath(in)
		if in.nlink != 0 {
			return fmt.Errorf("%w: inode %d has a name", errApply, in.ino)
		}
		t.free(in, t.bornAfter(in.born, o.writer))
		return nil
	}
	return fmt.Errorf("%w: part of kind %d", errApply, o.kind)
}

// applyRevive makes an inode without a name, often one that was there before:
// a directory continues with the cookies that it has given out. See makeRoom.
func (t *memory) applyRevive(o *op, touched map[Ino]*inode) error {
	if t.inodes.m[o.ino] != nil {
		return fmt.Errorf("%w: inode %d is made twice", errApply, o.ino)
	}
	next := t.count.NextIno
	in := t.newInode(o.ino, o)
	t.count.NextIno = max(next, uint64(o.ino)+1)
	in.nlink, in.btime = 0, o.btime
	switch in.kind() {
	case syscall.S_IFDIR:
		in.dir = newDir(Root, uint64(o.off), true)
		t.count.Dirs++
	case syscall.S_IFREG:
		in.file = &file{complete: true}
		t.count.Files++
	case syscall.S_IFLNK:
		t.setTarget(in, o.blob)
		in.size = int64(len(o.blob))
	}
	touched[in.ino] = in
	return nil
}

// applyName takes a name away or gives one, and nothing else: what has none
// for the snapshot may get another. A directory is a link of its own too.
func (t *memory) applyName(o *op, touched map[Ino]*inode) error {
	d, err := t.getDir(o.parent)
	if err != nil {
		return err
	}
	e, err := t.entry(d, o.name)
	if (err == nil) != (o.kind == opErase) {
		return fmt.Errorf("%w: name %q in %d: %w", errApply, o.name, o.parent, err)
	}
	if o.kind == opErase {
		o.ino = e.ino
	}
	in, err := t.get(o.ino)
	if err != nil {
		return err
	}
	t.alterDir(d, o)
	t.alter(in, o)
	touched[in.ino] = in
	links := uint32(1)
	if in.isDir() {
		links = 2
	}
	if o.kind == opErase {
		t.eraseName(d, o.name, o)
		in.nlink -= links
		if in.isDir() {
			d.nlink--
			t.batch.dirs = append(t.batch.dirs, dirMove{ino: in.ino, version: in.born, aside: true})
		}
		return nil
	}
	t.enterName(d, o.name, in, o)
	in.nlink += links
	if in.isDir() {
		d.nlink++
		in.dir.parent = d.ino
		t.moveDir(in, d.ino, o.name)
		t.longest = 0
	}
	return nil
}

// applyExtents says what bytes a range of a file has; no size changes.
func (t *memory) applyExtents(o *op) error {
	end := o.off + o.n
	extents, err := unpackExtents(o.off, end, o.blob)
	if err != nil {
		return err
	}
	in, err := t.getFile(o.ino, o.off, end)
	if err != nil {
		return err
	}
	t.alter(in, o)
	in.file.remove(o.off, end, t.changing(in))
	for _, e := range extents {
		e.born = in.born
		in.file.put(e, t.changing(in))
	}
	return nil
}

// applyImage sets all that stat shows and the record says, to the letter.
func (t *memory) applyImage(o *op) error {
	in, err := t.get(o.ino)
	if err != nil {
		return err
	}
	t.alter(in, o)
	in.mode, in.uid, in.gid = in.kind()|o.mode&07777, o.uid, o.gid
	in.atime, in.mtime, in.ctime, in.writer = o.atime, o.mtime, o.ctime, o.author
	if in.isFile() {
		t.count.Bytes += uint64(o.n - in.size)
		in.size, in.data = o.n, o.data
		if o.data == 0 {
			in.data = in.born // no version had these bytes before
		}
	}
	return nil
}
