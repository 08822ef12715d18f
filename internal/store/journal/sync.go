package journal

import (
	"fmt"
	"syscall"
)

// Sync makes every record before pos survive power loss. Overlapping calls
// share an fdatasync. After an error no record appended since the last success
// is known to be durable; the next call tries all of them again.
func (j *Journal) Sync(pos Pos) error {
	if j.Synced() >= pos {
		return nil
	}
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	if j.Synced() >= pos {
		return nil
	}
	j.mu.Lock()
	if j.broken != nil {
		j.mu.Unlock()
		return j.broken
	}
	end := j.End()
	var todo []*segment
	for i := len(j.segs) - 1; i >= 0; i-- {
		if s := j.segs[i]; s.synced < s.end {
			todo = append(todo, s)
		} else if s.synced > headerSize {
			break // older segments were synced before it
		}
	}
	j.mu.Unlock()
	for i := len(todo) - 1; i >= 0; i-- {
		if err := j.syncSegment(todo[i]); err != nil {
			return fmt.Errorf("sync segment %s: %w", todo[i].id, err)
		}
	}
	j.synced.Store(uint64(end))
	return nil
}

// syncSegment is called with syncMu held.
func (j *Journal) syncSegment(s *segment) error {
	o, err := j.files.get(s)
	if err != nil {
		return err
	}
	defer j.files.put(o)
	j.mu.Lock()
	end, redo := s.end, s.redo
	if s == j.active && end-s.synced < blankLow {
		j.layOut(s, o.file)
	}
	j.mu.Unlock()
	if redo {
		if err := j.rewrite(s, o.file, end); err != nil {
			return err
		}
	}
	err = j.fail("journal.sync")
	if err == nil {
		err = o.file.Sync()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		s.redo = true
		return err
	}
	s.redo, s.synced = false, end
	return nil
}

// Small syncs, of less than blankLow bytes, come from programs that sync each
// write. For them blankSize zeros are written ahead when fewer than blankLow
// are left. Records that overwrite zeros change neither the file's size nor its
// allocation, so that fdatasync has no metadata to commit, which doubles its
// rate on ext4. (fallocate does not help: marking its extents as written is a
// metadata change too.)
const (
	blankLow  = 32 << 10
	blankSize = 256 << 10
)

// layOut writes zeros behind the end of s. mu is held, since an append may
// write there next. Failure is harmless: recovery accepts any number of zeros
// behind the end.
func (j *Journal) layOut(s *segment, f File) {
	from := max(s.end, s.blank)
	size := min(blankSize, j.opt.SegmentSize-from)
	if s.blank >= s.end+blankLow || size <= 0 {
		return
	}
	n, _ := f.WriteVec([][]byte{make([]byte, size)}, from)
	s.blank = from + int64(n)
}

// rewrite makes the pages of synced..end dirty again after a failed fdatasync.
// If their content has changed, answered operations are lost: the journal then
// accepts no more appends, and a restart recovers the complete prefix.
func (j *Journal) rewrite(s *segment, f File, end int64) error {
	for off := s.synced; off < end; {
		if off == 0 {
			off = headerSize
		}
		b, err := readRecord(f, s.id, off, end)
		if err == errTorn {
			err = fmt.Errorf("journal bytes were lost after a failed sync: %w", syscall.EIO)
			j.mu.Lock()
			j.broken = err
			j.mu.Unlock()
		}
		if err != nil {
			return err
		}
		if _, err := f.WriteVec([][]byte{b}, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	if s.synced > 0 {
		return nil // and so is the header
	}
	_, err := f.WriteVec([][]byte{s.encode()}, 0)
	return err
}

// readRecord returns the verified bytes of the record at off.
func readRecord(f File, id ID, off, limit int64) ([]byte, error) {
	if limit-off < headSize {
		return nil, errTorn
	}
	head := make([]byte, headSize)
	if err := f.ReadVec([][]byte{head}, off); err != nil {
		return nil, err
	}
	m, d, err := decodeHead(head)
	if err != nil {
		return nil, err
	}
	n := headSize + m + tableSize(d) + d
	if int64(n) > limit-off {
		return nil, errTorn
	}
	b := make([]byte, n)
	if err := f.ReadVec([][]byte{b}, off); err != nil {
		return nil, err
	}
	_, _, _, err = decodeRecord(b, id, off)
	return b, err
}
