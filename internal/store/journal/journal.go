package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Options configure a journal.
type Options struct {
	SegmentSize int64                    // sealed at about this size, bytes; default 256 MiB
	OpenFiles   int                      // idle segments kept open; default 128
	Disk        Disk                     // default [OS]
	Fail        func(point string) error // called at failpoints, for tests
	Log         *slog.Logger             // default: discard
}

// Journal is an open journal. Call Recover once before Append.
type Journal struct {
	dir  string
	disk Disk
	opt  Options
	log  *slog.Logger

	files  files
	tables tableCache

	end    atomic.Uint64 // Pos of the next record
	synced atomic.Uint64 // everything before this Pos survives power loss

	syncMu sync.Mutex // held for one fdatasync; calls that wait for it form the group commit

	mu     sync.Mutex // guards the fields below and segment.end, synced, redo
	segs   []*segment // by ordinal
	active *segment   // nil: the next append creates one
	last   *segment   // the one whose end is the journal's end
	broken error      // appended bytes were lost: appends and syncs fail with this
	head   []byte     // buffer of the running append
}

// Ref is the place of an appended record.
type Ref struct {
	Pos     Pos    // of the record
	End     Pos    // of the record after it
	Segment uint32 // ordinal
	Data    int64  // offset of the data in the segment
}

// Open reads the headers of the segments in dir, which must exist.
func Open(dir string, opt Options) (*Journal, error) {
	if opt.SegmentSize <= 0 {
		opt.SegmentSize = 256 << 20
	}
	if opt.OpenFiles <= 0 {
		opt.OpenFiles = 128
	}
	if opt.Disk == nil {
		opt.Disk = OS{}
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	j := &Journal{dir: dir, disk: opt.Disk, opt: opt, log: opt.Log,
		files:  files{disk: opt.Disk, most: opt.OpenFiles, open: map[uint32]*openFile{}},
		tables: tableCache{m: map[tableKey][]byte{}}}
	names, err := j.disk.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".seg") {
			if err := j.load(name); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(j.segs, func(a, b *segment) int { return int(a.ordinal) - int(b.ordinal) })
	return j, nil
}

// load reads one segment's header. A file without a valid header is left from a
// crash before its first record: it is put aside.
func (j *Journal) load(name string) error {
	path := filepath.Join(j.dir, name)
	f, err := j.disk.OpenFile(path, false)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("open segment %s: %w", name, err)
	}
	b := make([]byte, min(size, headerSize))
	if err := f.ReadVec([][]byte{b}, 0); err != nil && len(b) > 0 {
		return fmt.Errorf("read segment %s: %w", name, err)
	}
	h, err := decodeHeader(b)
	if err == nil && path != segmentPath(j.dir, h.id) {
		err = errors.New("its name does not match its id")
	}
	if err != nil {
		return j.aside(path, err)
	}
	j.segs = append(j.segs, &segment{header: h, path: path, end: size, synced: size})
	return nil
}

// aside renames a file so that it is no longer part of the journal.
func (j *Journal) aside(path string, why error) error {
	j.log.Warn("journal segment put aside", "segment", filepath.Base(path), "reason", why)
	if err := j.disk.Rename(path, strings.TrimSuffix(path, ".seg")+".lost"); err != nil {
		return fmt.Errorf("put segment aside: %w", err)
	}
	return nil
}

func (j *Journal) fail(point string) error {
	if j.opt.Fail == nil {
		return nil
	}
	return j.opt.Fail(point)
}

// End returns the position of the next record.
func (j *Journal) End() Pos { return Pos(j.end.Load()) }

// Synced returns the position before which everything survives power loss.
func (j *Journal) Synced() Pos { return Pos(j.synced.Load()) }

// Append writes one record: meta (1 to MaxMeta bytes) and data (at most
// MaxData) with its table from [Sum]. A failed append changes nothing: the next
// append overwrites its bytes, which are never read. The error wraps the errno.
func (j *Journal) Append(meta, table, data []byte) (Ref, error) {
	if len(meta) == 0 || len(meta) > MaxMeta || len(data) > MaxData || len(table) != tableSize(len(data)) {
		return Ref{}, fmt.Errorf("append %d+%d bytes: %w", len(meta), len(data), syscall.EINVAL)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return Ref{}, j.broken
	}
	front := headSize + len(meta) + len(table)
	if err := j.rotate(int64(front + len(data))); err != nil {
		return Ref{}, err
	}
	s := j.active
	b := append(append(append(j.head[:0], make([]byte, headSize)...), meta...), table...)
	j.head = b
	seal(b, len(meta), len(data), s.id, s.end)
	if err := j.fail("journal.append"); err != nil {
		return Ref{}, err
	}
	if err := j.write(s, b, data); err != nil {
		return Ref{}, fmt.Errorf("append to segment %s at %d: %w", s.id, s.end, err)
	}
	r := Ref{Pos: makePos(s.ordinal, s.end), Segment: s.ordinal, Data: s.end + int64(front)}
	s.end += int64(front + len(data))
	r.End = makePos(s.ordinal, s.end)
	j.end.Store(uint64(r.End))
	return r, nil
}

func (j *Journal) write(s *segment, front, data []byte) error {
	o, err := j.files.get(s)
	if err != nil {
		return err
	}
	defer j.files.put(o)
	bufs := [2][]byte{front, data}
	n := 2
	if len(data) == 0 {
		n = 1
	}
	wrote, err := o.file.WriteVec(bufs[:n], s.end)
	if err != nil && wrote > 0 {
		// Optional: the salted checksum already keeps leftovers from being read as records.
		_ = o.file.Truncate(s.end)
		s.blank = 0
	}
	return err
}

// rotate ensures an active segment with room for n bytes.
func (j *Journal) rotate(n int64) error {
	if j.active != nil && (j.active.end+n <= j.opt.SegmentSize || j.active.end == headerSize) {
		return nil
	}
	s, err := j.create(j.last)
	if err != nil {
		return err
	}
	j.segs = append(j.segs, s)
	j.active, j.last = s, s
	return nil
}

// Seal ends the active segment if it has a record: the segment never changes
// again, and the next append starts a new one. It returns the end of the sealed
// segments.
func (j *Journal) Seal() (end Pos, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return 0, j.broken
	}
	if j.active != nil && j.active.end > headerSize {
		if err := j.rotate(j.opt.SegmentSize); err != nil {
			return 0, err
		}
	}
	for _, s := range j.segs {
		if s != j.active {
			end = makePos(s.ordinal, s.end)
		}
	}
	return end, nil
}

// Link makes the segments up to end, as returned by Seal, the start of another
// journal in dir on the same file system, with hard links. Their content must
// have been synced.
func (j *Journal) Link(dir string, end Pos) error {
	j.mu.Lock()
	all := slices.Clone(j.segs)
	j.mu.Unlock()
	for _, s := range all {
		if s.ordinal > end.Segment() {
			break
		}
		if err := j.fail("journal.link"); err != nil {
			return err
		}
		if err := j.disk.Link(s.path, segmentPath(dir, s.id)); err != nil {
			return fmt.Errorf("link segment %s: %w", s.id, err)
		}
	}
	return nil
}

// Remove unlinks a sealed segment.
func (j *Journal) Remove(ordinal uint32) error {
	if err := j.fail("journal.remove"); err != nil {
		return err
	}
	j.mu.Lock()
	i, ok := slices.BinarySearchFunc(j.segs, ordinal, func(s *segment, o uint32) int { return int(s.ordinal) - int(o) })
	if !ok || j.segs[i] == j.active || j.segs[i] == j.last || j.segs[i].synced < j.segs[i].end {
		j.mu.Unlock()
		return fmt.Errorf("remove segment %d: %w", ordinal, syscall.EBUSY)
	}
	s := j.segs[i]
	j.segs = slices.Delete(j.segs, i, i+1)
	j.mu.Unlock()
	j.files.drop(ordinal)
	j.tables.forget(ordinal)
	return j.disk.Remove(s.path)
}

// Segment describes one segment to the index and the collector.
type Segment struct {
	Ordinal uint32
	ID      ID
	Bytes   int64 // up to the end of its last record
	Sealed  bool
}

// Segments lists the segments, oldest first.
func (j *Journal) Segments() []Segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]Segment, len(j.segs))
	for i, s := range j.segs {
		out[i] = Segment{s.ordinal, s.id, s.end, s != j.active && s != j.last}
	}
	return out
}

// Close closes the files. It does not sync.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil {
		j.broken = fmt.Errorf("journal is closed: %w", syscall.EIO)
	}
	j.files.closeAll()
	return nil
}
