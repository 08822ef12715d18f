package workspace

import (
	"context"

	"holt/internal/store/journal"

	"holt"
)

// copyOf returns the row of an inode that the other made, under a number here.
func (m *merge) copyOf(f *inodeRow, ino Ino) *inodeRow {
	row := *f
	row.ino, row.data, row.ctime = ino, 0, m.into.when(Caller{})
	return &row
}

// classifyInode merges the bytes and the attributes of an inode that is on both
// sides.
func (m *merge) classifyInode(u *mergeUnit) error {
	row := *u.n.row
	if u.b.row == nil {
		same, err := m.same(u.f, u.n)
		if err == nil && !same {
			u.conflict = holt.BothMade
		}
		return err
	}
	changed, err := m.classifyBytes(u, &row)
	if err != nil || u.conflict != "" {
		return err
	}
	xattrs, attrs, err := m.classifyAttrs(u, &row)
	if err != nil || u.conflict != "" || !changed && !attrs {
		return err
	}
	row.ctime = m.into.when(Caller{})
	u.result = &wantedInode{row: &row, made: &mergedContents{attrs: xattrs}}
	return m.values.take(xattrs)
}

// classifyBytes says whether the bytes change, and puts what comes with them into
// the row.
func (m *merge) classifyBytes(u *mergeUnit, row *inodeRow) (bool, error) {
	b, f, n := u.b, u.f, u.n
	if !f.row.isFile() {
		return false, nil // a link's target never changes
	}
	if same, err := m.sameBytes(b, f); err != nil || same {
		return false, err
	}
	if same, err := m.sameBytes(f, n); err != nil || same {
		return false, err
	}
	same, err := m.sameBytes(b, n)
	if err != nil {
		return false, err
	}
	row.data, row.mtime = 0, m.into.when(Caller{})
	if same {
		u.rewritten = true
		row.size, row.mtime, row.writer = f.row.size, f.row.mtime, f.row.writer
		return true, nil
	}
	u.conflict = holt.BothChanged
	if !m.opt.Text {
		return false, nil
	}
	var texts [3][]byte
	for i, x := range []state{b, n, f} {
		text, ok, err := x.text()
		if err != nil || !ok {
			return false, err
		}
		texts[i] = text
	}
	out, ok := merge3(texts[0], texts[1], texts[2])
	if !ok {
		u.conflict = holt.BothChangedLines
		return false, nil
	}
	u.conflict, u.merged = "", true
	row.size = int64(len(out))
	u.text, err = m.write(out) // at once: all of them would be too much to hold
	return true, err
}

// classifyAttrs merges attributes one by one.
func (m *merge) classifyAttrs(u *mergeUnit, row *inodeRow) (xattrs xattrChanges, changed bool, err error) {
	b, f, n := u.b.row, u.f.row, u.n.row
	for _, a := range []struct {
		b, f, n uint32
		to      *uint32
	}{{b.mode, f.mode, n.mode, &row.mode}, {b.uid, f.uid, n.uid, &row.uid}, {b.gid, f.gid, n.gid, &row.gid}} {
		if a.f == a.b || a.f == a.n {
			continue
		}
		if a.n != a.b {
			u.conflict = holt.BothChangedAttributes
			return nil, false, nil
		}
		*a.to, changed = a.f, true
	}
	if f.mtime != b.mtime && n.mtime == b.mtime && !f.isDir() && f.mtime != row.mtime && !u.merged {
		row.mtime, changed = f.mtime, true
	}
	var maps3 [3]map[string]string
	for i, x := range []state{u.b, u.f, u.n} {
		if maps3[i], err = x.p.xattrs(x.row.ino); err != nil {
			return nil, false, err
		}
	}
	xattrs = xattrChanges{}
	all := map[string]bool{}
	for _, m := range maps3[:2] {
		for name := range m {
			all[name] = true
		}
	}
	for name := range all {
		vb, inB := maps3[0][name]
		vf, inF := maps3[1][name]
		vn, inN := maps3[2][name]
		switch {
		case inF == inB && vf == vb, inF == inN && vf == vn:
			continue
		case inN != inB || vn != vb:
			u.conflict, u.attribute = holt.BothChangedAttributes, name
			return nil, false, nil
		}
		changed = true
		xattrs[name] = xattr{value: []byte(vf), gone: !inF}
	}
	return xattrs, changed, nil
}

// mergedContents is what a merge makes of an inode.
type mergedContents struct {
	all   []extent
	attrs xattrChanges
}

// fill finds the bytes and the writers of what is merged.
func (m *merge) fill() error {
	for _, u := range m.sorted() {
		if u.conflict != "" || u.result == nil {
			continue
		}
		if err := m.fillUnit(u); err != nil {
			return err
		}
	}
	return nil
}

func (m *merge) fillUnit(u *mergeUnit) (err error) {
	c := u.result.made
	if c == nil { // it is new
		c = &mergedContents{}
		u.result.made = c
		theirs, err := u.f.p.xattrs(u.f.row.ino)
		if err != nil {
			return err
		}
		c.attrs = changesTo(nil, theirs)
		if err := m.values.take(c.attrs); err != nil {
			return err
		}
	}
	row := u.result.row
	if !row.isFile() {
		row.writer, err = m.author(row.writer, u.n.row == nil)
		return err
	}
	switch {
	case u.merged:
		c.all, row.writer = u.text, 0
	case u.rewritten:
		if row.writer, err = m.author(row.writer, true); err == nil {
			c.all, err = m.bring(u.f)
		}
	default:
		c.all, err = u.n.extents()
	}
	return err
}

// author returns the number here of one of the other's writers.
func (m *merge) author(id uint32, theirs bool) (uint32, error) {
	if ours, ok := m.authors[id]; ok || id == 0 || !theirs || m.dry {
		if !theirs {
			return id, nil
		}
		return ours, nil
	}
	w, err := m.f.p.writerByID(id)
	if err != nil {
		return 0, err
	}
	m.authors[id], err = m.into.writerID(w)
	return m.authors[id], err
}

// sourceBytes are bytes of one of the other's records.
type sourceBytes struct {
	segment, place, whole, delta, n uint32
}

func (e extent) bytesOf() sourceBytes {
	return sourceBytes{e.segment, e.place, e.whole, e.delta, e.n}
}

// bring returns the extents of a file of the other as they are here: of the
// same segment, if that is on this disk too, and else of a copy.
func (m *merge) bring(f state) ([]extent, error) {
	all, err := f.extents()
	if err != nil {
		return nil, err
	}
	here := m.onDisk()
	for i, e := range all {
		num, ok := here[m.f.segments[e.segment]]
		c, staged := m.staged[e.bytesOf()]
		switch {
		case ok:
			all[i].segment = num
			continue
		case staged:
		case m.dry:
			m.wanted = append(m.wanted, e)
			continue
		default:
			if c, err = m.copyBytes(e); err != nil {
				return nil, err
			}
		}
		c.off = e.off
		all[i] = c
	}
	return all, nil
}

// onDisk lists the segments that lie here whole.
func (m *merge) onDisk() map[journal.ID]uint32 {
	here := map[journal.ID]uint32{}
	for _, s := range m.into.journal.Segments() {
		here[s.ID] = s.Ordinal
	}
	return here
}

// stage copies the bytes that the last build wanted, one record at a time.
func (m *merge) stage(ctx context.Context) error {
	for _, e := range m.wanted {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := m.into.enter(Caller{}); err != nil {
			return err
		}
		_, err := m.copyBytes(e)
		m.into.leave()
		if err != nil {
			return err
		}
	}
	return nil
}

// copyBytes appends bytes of the other to the journal here; mu is held.
func (m *merge) copyBytes(e extent) (extent, error) {
	b := make([]byte, e.n)
	if err := m.from.readData(e.source(), int(e.delta), b); err != nil {
		return extent{}, err
	}
	c, err := m.into.keepBytes(b)
	m.staged[e.bytesOf()] = c
	return c, err
}

// keepBytes appends bytes to the journal for a later record to refer to.
func (t *Tree) keepBytes(b []byte) (extent, error) {
	o := op{kind: opBytes, time: t.now()}
	ref, err := t.commitRef(&o, journal.Sum(nil, b), b)
	return extent{n: uint32(len(b)), segment: ref.Segment, place: uint32(ref.Data), whole: uint32(len(b))}, err
}

// write appends a text and returns its extents.
func (m *merge) write(text []byte) (all []extent, err error) {
	for off := 0; off < len(text); off += chunk {
		piece := text[off:min(off+chunk, len(text))]
		e := extent{n: uint32(len(piece))}
		if !m.dry {
			if e, err = m.into.keepBytes(piece); err != nil {
				return nil, err
			}
		}
		e.off = int64(off)
		all = append(all, e)
	}
	return all, nil
}
