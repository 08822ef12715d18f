package workspace

import (
	"errors"
	"fmt"
	"syscall"

	"holt/internal/store/journal"
)

// errApply says that a record does not fit the state before it.
var errApply = errors.New("record does not fit the tree")

// apply does what a record says. It is the only way that state changes, live
// and in recovery, and depends on nothing but the state and the record.
func (t *memory) apply(o *op, rec journal.Record) error {
	if o.kind != opParts && o.kind != opPartsEnd {
		t.parts = nil // their end never came
	}
	t.markStale(o)
	switch o.kind {
	case opFormat:
		return t.applyFormat(o)
	case opWriter:
		return t.applyWriter(o)
	case opMake:
		return t.applyMake(o)
	case opLink:
		return t.applyLink(o)
	case opUnlink:
		return t.applyUnlink(o)
	case opRename:
		return t.applyRename(o)
	case opSetAttr:
		return t.applySetAttr(o)
	case opWrite:
		return t.applyWrite(o, rec)
	case opPunch:
		return t.applyPunch(o)
	case opCopy:
		return t.applyCopy(o)
	case opSetXattr, opDelXattr:
		return t.applyXattr(o)
	case opFree:
		return t.applyFree(o)
	case opBegin, opInit, opEnd:
		return t.applyEpoch(o)
	case opCheckpoint:
		return t.applyCheckpoint(o)
	case opDropCheckpoint:
		return t.applyDropCheckpoint(o)
	case opParts:
		return t.applyParts(o)
	case opPartsEnd:
		return t.applyPartsEnd(o)
	case opFork:
		return t.applyFork(o)
	case opBytes:
		return nil
	}
	return fmt.Errorf("%w: kind %d", errApply, o.kind)
}

// alter comes before every change of an inode: it moves what the inode was to
// the past, unless it was that for this version only, and stamps it: ctime,
// writer, version.
func (t *memory) alter(in *inode, o *op) {
	t.copyOnWrite(in, t.bornAfter(in.born, o.writer))
	in.stamp(o)
}

func (in *inode) stamp(o *op) {
	if o.writer != 0 {
		in.writer = o.writer
	}
	in.ctime = o.time
}

// alterDir is alter for a directory whose entries o changes. They have
// versions of their own, so that it keeps its version within a generation,
// however many write in it by turns.
func (t *memory) alterDir(d *inode, o *op) {
	if uint64(d.born) > t.count.Sealed {
		t.batch.dirty(d)
	} else {
		t.copyOnWrite(d, t.born(o.writer))
	}
	d.stamp(o)
	d.mtime = o.time
}

// enterName gives a directory an entry that it does not have.
func (t *memory) enterName(d *inode, name string, in *inode, o *op) {
	d.dir.cookie++
	t.setEntry(d, name, dentry{ino: in.ino, cookie: d.dir.cookie, born: t.born(o.writer), kind: uint8(in.mode >> 12)})
	d.size++
}

// replaceName is enterName for a name that was another entry's until now.
func (t *memory) replaceName(d *inode, name string, in *inode, o *op) {
	t.enterName(d, name, in, o)
	e := d.dir.entries[name]
	e.replaced = true
	d.dir.entries[name] = e
}

// eraseName takes an entry out of a directory.
func (t *memory) eraseName(d *inode, name string, o *op) {
	t.tombstone(d, name, d.dir.entries[name], o.writer)
	t.setEntry(d, name, dentry{})
	d.size--
}

func (t *memory) applyFormat(o *op) error {
	if t.count.NextIno != uint64(Root) {
		return fmt.Errorf("%w: a second root", errApply)
	}
	if len(o.blob) != len(ID{}) {
		return fmt.Errorf("%w: no id", errApply)
	}
	in := t.newInode(Root, o)
	in.nlink, in.dir = 2, newDir(Root, 0, true)
	t.count.Dirs++
	t.moveDir(in, Root, "")
	t.setLineage([]Ancestor{{ID: ID(o.blob)}})
	return nil
}

func (t *memory) applyWriter(o *op) error {
	w, err := decodeWriter(o.blob)
	if err != nil || uint64(o.n) != t.count.NextWriter {
		return fmt.Errorf("%w: writer %d", errApply, o.n)
	}
	t.count.NextWriter++
	t.writers[w] = uint32(o.n)
	t.batch.writers = append(t.batch.writers, namedWriter{uint32(o.n), w})
	return nil
}

// newInode makes an inode of a record. Its number is the next one: numbers are
// never reused.
func (t *memory) newInode(ino Ino, o *op) *inode {
	v := t.born(o.writer)
	in := &inode{node: node{ino: ino, mode: o.mode, uid: o.uid, gid: o.gid, nlink: 1, rdev: o.rdev,
		atime: o.time, mtime: o.time, ctime: o.time, btime: o.time, writer: o.writer, born: v, data: v}}
	in.plain = true
	t.count.NextIno = uint64(ino) + 1
	t.count.Inodes++
	t.inodes.add(in)
	in.touch()
	t.batch.dirty(in)
	return in
}

func (t *memory) applyMake(o *op) error {
	if o.ino != Ino(t.count.NextIno) {
		return fmt.Errorf("%w: inode %d", errApply, o.ino)
	}
	if o.name == "" { // see Tree.Tmpfile
		in := t.newInode(o.ino, o)
		in.nlink = 0
		t.inherited(in, o)
		t.orphans[o.ino] = struct{}{}
		t.count.Files++
		return nil
	}
	d, err := t.getDir(o.parent)
	if err != nil {
		return err
	}
	if _, err := t.entry(d, o.name); err != syscall.ENOENT {
		return fmt.Errorf("%w: name exists", errApply)
	}
	t.alterDir(d, o)
	in := t.newInode(o.ino, o)
	switch in.kind() {
	case syscall.S_IFDIR:
		in.nlink, in.dir = 2, newDir(d.ino, 0, true)
		d.nlink++
		t.count.Dirs++
		t.moveDir(in, d.ino, o.name)
	case syscall.S_IFREG:
		t.count.Files++
	case syscall.S_IFLNK:
		t.setTarget(in, o.blob)
		in.size = int64(len(o.blob))
	}
	t.inherited(in, o)
	t.enterName(d, o.name, in, o)
	return nil
}

func (t *memory) applyLink(o *op) error {
	d, err := t.getDir(o.parent)
	if err != nil {
		return err
	}
	in, err := t.get(o.ino)
	if err != nil {
		return err
	}
	if _, err := t.entry(d, o.name); err != syscall.ENOENT || in.isDir() {
		return fmt.Errorf("%w: name exists", errApply)
	}
	if in.nlink == 0 {
		delete(t.orphans, in.ino)
		t.batch.named = append(t.batch.named, in.ino)
	}
	t.alterDir(d, o)
	t.alter(in, o)
	in.nlink++
	t.enterName(d, o.name, in, o)
	return nil
}

func (t *memory) applyUnlink(o *op) error {
	d, err := t.getDir(o.parent)
	if err != nil {
		return err
	}
	e, err := t.entry(d, o.name)
	if err != nil {
		return err
	}
	in, err := t.get(e.ino)
	if err != nil {
		return err
	}
	t.alterDir(d, o)
	t.eraseName(d, o.name, o)
	t.unlinked(d, in, o)
	return nil
}

// unlinked takes a name away from in, which was in directory d.
func (t *memory) unlinked(d, in *inode, o *op) {
	t.alter(in, o)
	if in.isDir() {
		d.nlink--
		in.nlink = 0
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: in.ino, version: in.born})
	} else {
		in.nlink--
	}
	if in.nlink > 0 {
		return
	}
	if o.mask&opFlagFree != 0 {
		t.free(in, in.born)
		return
	}
	t.orphans[in.ino] = struct{}{}
}

// free ends an inode without a name in a version. Its extents and attributes
// stay in memory until they are in the past, or nowhere.
func (t *memory) free(in *inode, v uint32) {
	t.copyOnWrite(in, v)
	delete(t.orphans, in.ino)
	t.count.Inodes--
	t.count.Allocated -= uint64(in.alloc)
	switch in.kind() {
	case syscall.S_IFREG:
		t.count.Files--
		t.count.Bytes -= uint64(in.size)
	case syscall.S_IFDIR:
		t.count.Dirs--
	}
	in.freed = true
}

// lastVersion is the version in which an inode without a name ends. Nobody
// could see it any more, so that it is not a change that a checkpoint is for.
func (t *memory) lastVersion(in *inode) uint32 {
	v, ok := t.version[0]
	if !ok || v < in.born {
		v = t.newVersion(0)
	}
	return v
}

func (t *memory) applyFree(o *op) error {
	in, err := t.get(o.ino)
	if err != nil {
		return err
	}
	if in.nlink != 0 {
		return fmt.Errorf("%w: inode %d has a name", errApply, in.ino)
	}
	t.free(in, t.lastVersion(in))
	return nil
}

func (t *memory) applyRename(o *op) error {
	from, err := t.getDir(o.parent)
	if err != nil {
		return err
	}
	to, err := t.getDir(o.other)
	if err != nil {
		return err
	}
	e, err := t.entry(from, o.name)
	if err != nil {
		return err
	}
	in, err := t.get(e.ino)
	if err != nil {
		return err
	}
	victim, err := t.victim(to, o.name2)
	if err != nil {
		return err
	}
	if o.mask&RenameExchange != 0 && victim == nil {
		return errApply
	}
	t.alterDir(from, o)
	t.alterDir(to, o)
	if o.mask&RenameExchange != 0 {
		t.exchange(o, from, to, in, victim)
	} else {
		t.move(o, from, to, in, victim)
	}
	return nil
}

// victim returns what a rename would replace, or nil.
func (t *memory) victim(d *inode, name string) (*inode, error) {
	e, err := t.entry(d, name)
	if err == syscall.ENOENT {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in, err := t.get(e.ino)
	return in, t.missingInode(d, name, err)
}

func (t *memory) move(o *op, from, to, in, victim *inode) {
	if victim != nil {
		t.eraseName(to, o.name2, o)
		t.unlinked(to, victim, o)
	}
	t.eraseName(from, o.name, o)
	t.alter(in, o)
	if victim == nil {
		t.enterName(to, o.name2, in, o)
	} else {
		t.replaceName(to, o.name2, in, o)
	}
	if in.isDir() {
		t.reparent(in, from, to)
		t.moveDir(in, to.ino, o.name2)
	}
}

// exchange swaps two names. They are new entries, with new cookies: a cookie
// stands for one entry for ever.
func (t *memory) exchange(o *op, from, to, a, b *inode) {
	t.eraseName(from, o.name, o)
	t.eraseName(to, o.name2, o)
	t.alter(a, o)
	t.alter(b, o)
	t.replaceName(from, o.name, b, o)
	t.replaceName(to, o.name2, a, o)
	if a.isDir() {
		t.reparent(a, from, to)
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: a.ino, version: a.born, aside: true})
	}
	if b.isDir() {
		t.reparent(b, to, from)
		t.moveDir(b, from.ino, o.name)
	}
	if a.isDir() {
		t.moveDir(a, to.ino, o.name2)
	}
}

// reparent moves a directory's ".." and the link it is.
func (t *memory) reparent(in, from, to *inode) {
	in.dir.parent = to.ino
	from.nlink--
	to.nlink++
}

func (t *memory) applySetAttr(o *op) error {
	mask := SetMask(o.mask)
	in, err := t.get(o.ino)
	if err != nil {
		return err
	}
	t.alter(in, o)
	if mask&SetSize != 0 {
		if err := t.resize(in, o.n); err != nil {
			return err
		}
	}
	in.permit(o)
	if mask&SetAtime != 0 {
		in.atime = o.atime
	}
	if mask&SetMtime != 0 {
		in.mtime = o.mtime
	}
	if mask&SetCtime != 0 {
		in.ctime = o.ctime
	}
	return nil
}

// permit sets the mode and owner that o names.
func (in *inode) permit(o *op) {
	mask := SetMask(o.mask)
	if mask&SetMode != 0 {
		in.mode = in.kind() | o.mode&07777
	}
	if mask&SetUID != 0 {
		in.uid = o.uid
	}
	if mask&SetGID != 0 {
		in.gid = o.gid
	}
}

// resize sets the size of a file; what is behind a smaller one is gone.
func (t *memory) resize(in *inode, size int64) error {
	if size < in.size {
		if _, err := t.getFile(in.ino, size, in.size); err != nil {
			return err
		}
		in.file.remove(size, in.size, t.changing(in))
	}
	t.count.Bytes += uint64(size - in.size)
	in.size, in.data = size, in.born
	return nil
}

func (t *memory) applyWrite(o *op, rec journal.Record) error {
	end := o.off + int64(rec.DataLen)
	in, err := t.getFile(o.ino, o.off, end)
	if err != nil {
		return err
	}
	if rec.DataLen == 0 {
		return fmt.Errorf("%w: no data", errApply)
	}
	t.wrote(in, o)
	in.file.put(extent{off: o.off, n: uint32(rec.DataLen), segment: rec.Segment, place: uint32(rec.Data),
		whole: uint32(rec.DataLen), born: in.born}, t.changing(in))
	t.grow(in, end)
	return nil
}

// wrote stamps a file whose bytes o changes, and sets what o says: fewer set-id bits, or with opFlagTake any mode and owner.
func (t *memory) wrote(in *inode, o *op) {
	t.alter(in, o)
	in.mtime, in.data = o.time, in.born
	in.permit(o)
}

// grow makes a file at least size long.
func (t *memory) grow(in *inode, size int64) {
	if size > in.size {
		t.count.Bytes += uint64(size - in.size)
		in.size = size
	}
}

func (t *memory) applyPunch(o *op) error {
	end := o.off + o.n
	in, err := t.getFile(o.ino, o.off, end)
	if err != nil {
		return err
	}
	t.wrote(in, o)
	in.file.remove(o.off, end, t.changing(in))
	t.grow(in, o.from) // the size afterwards
	return nil
}

func (t *memory) applyCopy(o *op) error {
	src, err := t.getFile(o.other, o.from, o.from+o.n)
	if err != nil {
		return err
	}
	dst, err := t.getFile(o.ino, o.off, o.off+o.n)
	if err != nil {
		return err
	}
	t.wrote(dst, o)
	var shared []extent
	src.file.each(o.from, o.from+o.n, func(e extent) bool {
		shared = append(shared, e.cut(o.from, o.from+o.n))
		return true
	})
	dst.file.remove(o.off, o.off+o.n, t.changing(dst))
	for _, e := range shared {
		e.off += o.off - o.from
		e.born = dst.born
		dst.file.put(e, t.changing(dst))
	}
	t.grow(dst, o.off+o.n)
	if o.mask&opFlagTake == 0 {
		return nil
	}
	t.alter(src, o)
	src.file.remove(o.from, o.from+o.n, t.changing(src))
	if o.from+o.n == src.size {
		return t.resize(dst, o.off+o.n)
	}
	return nil
}
