package journal

import (
	"container/list"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// segment is one file of the journal.
type segment struct {
	header
	path string

	// Guarded by Journal.mu.
	end    int64 // end of the records; for the active segment, the place of the next
	synced int64 // bytes before this survive power loss
	blank  int64 // end..blank are zeros already on disk; below end: none
	redo   bool  // an fdatasync failed: rewrite synced..end before the next
}

func segmentPath(dir string, id ID) string { return filepath.Join(dir, id.String()+".seg") }

// files keeps a bounded number of segments open.
type files struct {
	disk Disk
	most int

	mu   sync.Mutex
	open map[uint32]*openFile
	idle list.List // of *openFile without users, least recently used first
}

type openFile struct {
	file    File
	ordinal uint32
	users   int
	dropped bool
	elem    *list.Element
}

// get returns s open; call put when done.
func (fs *files) get(s *segment) (*openFile, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	o := fs.open[s.ordinal]
	if o == nil {
		f, err := fs.disk.OpenFile(s.path, false)
		if err != nil {
			return nil, err
		}
		o = fs.add(s.ordinal, f)
	}
	if o.elem != nil {
		fs.idle.Remove(o.elem)
		o.elem = nil
	}
	o.users++
	return o, nil
}

func (fs *files) add(ordinal uint32, f File) *openFile {
	o := &openFile{file: f, ordinal: ordinal}
	fs.open[ordinal] = o
	return o
}

func (fs *files) put(o *openFile) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if o.users--; o.users > 0 {
		return
	}
	if o.dropped {
		o.file.Close()
		return
	}
	o.elem = fs.idle.PushBack(o)
	for fs.idle.Len() > fs.most {
		old := fs.idle.Remove(fs.idle.Front()).(*openFile)
		delete(fs.open, old.ordinal)
		old.file.Close()
	}
}

// drop closes s as soon as it has no users.
func (fs *files) drop(ordinal uint32) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	o := fs.open[ordinal]
	if o == nil {
		return
	}
	delete(fs.open, ordinal)
	o.dropped = true
	if o.elem != nil {
		fs.idle.Remove(o.elem)
		o.file.Close()
	}
}

func (fs *files) closeAll() {
	fs.mu.Lock()
	ordinals := make([]uint32, 0, len(fs.open))
	for n := range fs.open {
		ordinals = append(ordinals, n)
	}
	fs.mu.Unlock()
	for _, n := range ordinals {
		fs.drop(n)
	}
}

// create creates the segment that follows prev (nil: the first) and syncs its
// directory. If that fails it removes the segment.
func (j *Journal) create(prev *segment) (*segment, error) {
	s := &segment{header: header{ordinal: 1, created: time.Now().UnixNano()}, end: headerSize}
	rand.Read(s.id[:])
	if prev != nil {
		s.ordinal, s.prev, s.prevEnd = prev.ordinal+1, prev.id, prev.end
	}
	s.path = segmentPath(j.dir, s.id)
	if err := j.fail("journal.create"); err != nil {
		return nil, err
	}
	f, err := j.disk.OpenFile(s.path, true)
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	_, err = f.WriteVec([][]byte{s.encode()}, 0)
	if err == nil {
		err = j.fail("journal.create.dir")
	}
	if err == nil {
		err = j.disk.SyncDir(j.dir)
	}
	if err != nil {
		f.Close()
		_ = j.disk.Remove(s.path) // it has no record, so recovery ignores it too
		return nil, fmt.Errorf("create segment %s: %w", s.id, err)
	}
	j.files.mu.Lock()
	o := j.files.add(s.ordinal, f)
	o.elem = j.files.idle.PushBack(o)
	j.files.mu.Unlock()
	return s, nil
}
