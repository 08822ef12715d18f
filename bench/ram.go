package main

import (
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"holt/internal/store/journal"
)

// ram is a disk for a journal that costs next to nothing: files are memory.
type ram struct {
	mu    sync.Mutex
	files map[string]*ramFile
}

func newRAM() *ram { return &ram{files: map[string]*ramFile{}} }

// OpenFile implements [journal.Disk].
func (r *ram) OpenFile(name string, create bool) (journal.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.files[name]
	switch {
	case create && f != nil:
		return nil, fs.ErrExist
	case create:
		f = &ramFile{}
		r.files[name] = f
	case f == nil:
		return nil, fs.ErrNotExist
	}
	return f, nil
}

// ReadDir implements [journal.Disk].
func (r *ram) ReadDir(dir string) (names []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.files {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Link implements [journal.Disk].
func (r *ram) Link(from, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[to] = r.files[from]
	return nil
}

// Rename implements [journal.Disk].
func (r *ram) Rename(from, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[to] = r.files[from]
	delete(r.files, from)
	return nil
}

// Remove implements [journal.Disk].
func (r *ram) Remove(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.files, name)
	return nil
}

// SyncDir implements [journal.Disk].
func (r *ram) SyncDir(string) error { return nil }

// ramFile is a file in pages, so that one that grows is never copied.
type ramFile struct {
	mu    sync.RWMutex
	pages [][]byte
	size  int64
}

const ramPage = 1 << 20

// each calls fn for the pieces of pages that bufs take from off on.
func (f *ramFile) each(bufs [][]byte, off int64, fn func(page, buf []byte)) {
	for _, b := range bufs {
		for len(b) > 0 {
			page := f.pages[off/ramPage][off%ramPage:]
			n := min(len(b), len(page))
			fn(page[:n], b[:n])
			b, off = b[n:], off+int64(n)
		}
	}
}

func length(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

// ReadVec implements [journal.File].
func (f *ramFile) ReadVec(bufs [][]byte, off int64) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if off+int64(length(bufs)) > f.size {
		return io.ErrUnexpectedEOF
	}
	f.each(bufs, off, func(page, buf []byte) { copy(buf, page) })
	return nil
}

// WriteVec implements [journal.File].
func (f *ramFile) WriteVec(bufs [][]byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := length(bufs)
	f.size = max(f.size, off+int64(n))
	for int64(len(f.pages))*ramPage < f.size {
		f.pages = append(f.pages, make([]byte, ramPage))
	}
	f.each(bufs, off, func(page, buf []byte) { copy(page, buf) })
	return n, nil
}

// Truncate implements [journal.File].
func (f *ramFile) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size = size
	return nil
}

// Size implements [journal.File].
func (f *ramFile) Size() (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.size, nil
}

// Sync implements [journal.File].
func (f *ramFile) Sync() error { return nil }

// Close implements [journal.File].
func (f *ramFile) Close() error { return nil }
