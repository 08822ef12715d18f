package workspace

import (
	"errors"
	"fmt"
	"syscall"

	"holt/journal"
)

// errApply says that a record does not fit the state before it.
var errApply = errors.New("record does not fit the tree")

// apply does what a record says. It is the only way that state changes, live
// and in recovery, and depends on nothing but the state and the record.
func (t *Tree) apply(o *op, rec journal.Record) error {
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
	}
	return fmt.Errorf("%w: kind %d", errApply, o.kind)
}

// born returns the version of a change: (generation, writer) in one number.
func (t *Tree) born(writer uint32) uint32 {
	if v, ok := t.version[writer]; ok {
		return v
	}
	t.count.Version++
	v := uint32(t.count.Version)
	t.version[writer] = v
	t.batch.versions = append(t.batch.versions, versionRow{v, writer, t.count.Generation})
	return v
}

// changed stamps an inode that o changes: ctime, writer, version.
func (t *Tree) changed(in *inode, o *op) {
	if o.writer != 0 {
		in.writer = o.writer
	}
	in.ctime = o.time
	in.born = t.born(in.writer)
	t.batch.dirty(in)
}

// changedDir stamps a directory whose entries o changes.
func (t *Tree) changedDir(d *inode, o *op) {
	d.mtime = o.time
	t.changed(d, o)
}

// enterName gives a directory an entry that it does not have.
func (t *Tree) enterName(d *inode, name string, in *inode, o *op) {
	d.dir.cookie++
	t.setEntry(d, name, dentry{ino: in.ino, cookie: d.dir.cookie, born: t.born(o.writer), kind: uint16(in.mode >> 12)})
	d.size++
}

// eraseName takes an entry out of a directory.
func (t *Tree) eraseName(d *inode, name string) {
	t.setEntry(d, name, dentry{})
	d.size--
}

func (t *Tree) applyFormat(o *op) error {
	if t.count.NextIno != uint64(Root) {
		return fmt.Errorf("%w: a second root", errApply)
	}
	in := t.newInode(Root, o)
	in.nlink, in.dir = 2, newDir(Root, 0, true)
	t.count.Dirs++
	t.batch.dirs = append(t.batch.dirs, dirMove{ino: Root, parent: Root})
	return nil
}

func (t *Tree) applyWriter(o *op) error {
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
func (t *Tree) newInode(ino Ino, o *op) *inode {
	in := &inode{node: node{ino: ino, mode: o.mode, uid: o.uid, gid: o.gid, nlink: 1, rdev: o.rdev,
		atime: o.time, mtime: o.time, ctime: o.time, btime: o.time, writer: o.writer}}
	in.plain = true
	in.born = t.born(o.writer)
	t.count.NextIno = uint64(ino) + 1
	t.count.Inodes++
	t.inodes.add(in)
	in.touch()
	t.batch.dirty(in)
	return in
}

func (t *Tree) applyMake(o *op) error {
	d, err := t.getDir(o.parent)
	if err != nil {
		return err
	}
	if o.ino != Ino(t.count.NextIno) {
		return fmt.Errorf("%w: inode %d", errApply, o.ino)
	}
	if _, err := t.entry(d, o.name); err != syscall.ENOENT {
		return fmt.Errorf("%w: name exists", errApply)
	}
	in := t.newInode(o.ino, o)
	switch in.kind() {
	case syscall.S_IFDIR:
		in.nlink, in.dir = 2, newDir(d.ino, 0, true)
		d.nlink++
		t.count.Dirs++
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: in.ino, parent: d.ino, name: o.name})
	case syscall.S_IFREG:
		t.count.Files++
	case syscall.S_IFLNK:
		in.extra = &extra{target: string(o.blob)}
		in.size = int64(len(o.blob))
	}
	t.enterName(d, o.name, in, o)
	t.changedDir(d, o)
	return nil
}

func (t *Tree) applyLink(o *op) error {
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
	}
	in.nlink++
	t.changed(in, o)
	t.enterName(d, o.name, in, o)
	t.changedDir(d, o)
	return nil
}

func (t *Tree) applyUnlink(o *op) error {
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
	t.eraseName(d, o.name)
	t.changedDir(d, o)
	t.unlinked(d, in, o)
	return nil
}

// unlinked takes a name away from in, which was in directory d.
func (t *Tree) unlinked(d, in *inode, o *op) {
	if in.isDir() {
		d.nlink--
		in.nlink = 0
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: in.ino})
	} else {
		in.nlink--
	}
	t.changed(in, o)
	if in.nlink > 0 {
		return
	}
	if o.mask&opFlagFree != 0 {
		t.free(in)
		return
	}
	t.orphans[in.ino] = struct{}{}
}

// free ends an inode without a name.
func (t *Tree) free(in *inode) {
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
	t.dropExtents(in)
	in.freed, in.extra = true, nil
	t.batch.dirty(in)
}

func (t *Tree) applyFree(o *op) error {
	in, err := t.get(o.ino)
	if err != nil {
		return err
	}
	if in.nlink != 0 {
		return fmt.Errorf("%w: inode %d has a name", errApply, in.ino)
	}
	t.free(in)
	return nil
}

func (t *Tree) applyRename(o *op) error {
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
	if o.mask&RenameExchange != 0 {
		if victim == nil {
			return errApply
		}
		t.exchange(o, from, to, in, victim)
	} else {
		t.move(o, from, to, in, victim)
	}
	t.changedDir(from, o)
	t.changedDir(to, o)
	return nil
}

// victim returns what a rename would replace, or nil.
func (t *Tree) victim(d *inode, name string) (*inode, error) {
	e, err := t.entry(d, name)
	if err == syscall.ENOENT {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in, err := t.get(e.ino)
	return in, t.lost(d, name, err)
}

func (t *Tree) move(o *op, from, to, in, victim *inode) {
	if victim != nil {
		t.eraseName(to, o.name2)
		t.unlinked(to, victim, o)
	}
	t.eraseName(from, o.name)
	t.enterName(to, o.name2, in, o)
	t.changed(in, o)
	if in.isDir() {
		t.reparent(in, from, to)
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: in.ino, parent: to.ino, name: o.name2})
	}
}

// exchange swaps two names; both keep their cookies.
func (t *Tree) exchange(o *op, from, to, a, b *inode) {
	ea, eb := from.dir.entries[o.name], to.dir.entries[o.name2]
	v := t.born(o.writer)
	t.setEntry(from, o.name, dentry{ino: b.ino, cookie: ea.cookie, born: v, kind: eb.kind})
	t.setEntry(to, o.name2, dentry{ino: a.ino, cookie: eb.cookie, born: v, kind: ea.kind})
	t.changed(a, o)
	t.changed(b, o)
	if a.isDir() {
		t.reparent(a, from, to)
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: a.ino, aside: true})
	}
	if b.isDir() {
		t.reparent(b, to, from)
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: b.ino, parent: from.ino, name: o.name})
	}
	if a.isDir() {
		t.batch.dirs = append(t.batch.dirs, dirMove{ino: a.ino, parent: to.ino, name: o.name2})
	}
}

// reparent moves a directory's ".." and the link it is.
func (t *Tree) reparent(in, from, to *inode) {
	in.dir.parent = to.ino
	from.nlink--
	to.nlink++
}

func (t *Tree) applySetAttr(o *op) error {
	mask := SetMask(o.mask)
	in, err := t.get(o.ino)
	if err != nil {
		return err
	}
	if mask&SetSize != 0 {
		if err := t.resize(in, o.n); err != nil {
			return err
		}
	}
	if mask&SetMode != 0 {
		in.mode = in.kind() | o.mode&07777
	}
	if mask&SetUID != 0 {
		in.uid = o.uid
	}
	if mask&SetGID != 0 {
		in.gid = o.gid
	}
	if mask&SetAtime != 0 {
		in.atime = o.atime
	}
	if mask&SetMtime != 0 {
		in.mtime = o.mtime
	}
	t.changed(in, o)
	if mask&SetCtime != 0 {
		in.ctime = o.ctime
	}
	return nil
}

// resize sets the size of a file; what is behind a smaller one is gone.
func (t *Tree) resize(in *inode, size int64) error {
	if size < in.size {
		if _, err := t.getFile(in.ino, size, in.size); err != nil {
			return err
		}
		in.file.remove(size, in.size, t.changing(in))
	}
	t.count.Bytes += uint64(size - in.size)
	in.size = size
	return nil
}

func (t *Tree) applyWrite(o *op, rec journal.Record) error {
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

// wrote stamps a file whose bytes o changes, and clears set-id bits if o says so.
func (t *Tree) wrote(in *inode, o *op) {
	in.mtime = o.time
	if o.mask&uint32(SetMode) != 0 {
		in.mode = in.kind() | o.mode&07777
	}
	t.changed(in, o)
}

// grow makes a file at least size long.
func (t *Tree) grow(in *inode, size int64) {
	if size > in.size {
		t.count.Bytes += uint64(size - in.size)
		in.size = size
	}
}

func (t *Tree) applyPunch(o *op) error {
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

func (t *Tree) applyCopy(o *op) error {
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
	return nil
}
