package agent

import "sync"

// scrollback keeps the last bytes that a terminal showed, at absolute offsets.
// Unlike a run's output it never waits for a reader: a slow reader gets a gap.
type scrollback struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	ring    []byte        // grows to limit, then wraps; byte o is at o % len
	start   int64         // offset of the first byte kept
	end     int64
	limit   int
	closed  bool
}

// scrollbackMin is the initial size of a ring, bytes.
const scrollbackMin = 16 << 10

func newScrollback(limit int) *scrollback {
	return &scrollback{changed: make(chan struct{}), limit: limit}
}

func (s *scrollback) write(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(p) == 0 {
		return
	}
	s.grow(len(p))
	if over := len(p) - len(s.ring); over > 0 {
		s.end += int64(over)
		p = p[over:]
	}
	s.put(s.end, p)
	s.end += int64(len(p))
	s.start = max(s.start, s.end-int64(len(s.ring)))
	s.notify()
}

// grow makes room for n more bytes, up to the limit. mu is held.
func (s *scrollback) grow(n int) {
	need := int(s.end-s.start) + n
	if need <= len(s.ring) || len(s.ring) == s.limit {
		return
	}
	size := max(scrollbackMin, len(s.ring))
	for size < need && size < s.limit {
		size *= 2
	}
	kept := s.copy(make([]byte, s.end-s.start), s.start)
	s.ring = make([]byte, min(size, s.limit))
	s.put(s.start, kept)
}

// put stores bytes at an offset. mu is held.
func (s *scrollback) put(offset int64, p []byte) {
	for len(p) > 0 {
		n := copy(s.ring[offset%int64(len(s.ring)):], p)
		p, offset = p[n:], offset+int64(n)
	}
}

// copy fills p with bytes from offset, and returns it. mu is held.
func (s *scrollback) copy(p []byte, offset int64) []byte {
	for n := 0; n < len(p); {
		n += copy(p[n:], s.ring[(offset+int64(n))%int64(len(s.ring)):])
	}
	return p
}

func (s *scrollback) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// close marks the end of the output.
func (s *scrollback) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.notify()
}

// shrink frees the ring, for a terminal that ended long ago.
func (s *scrollback) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring, s.start = nil, s.end
}

// reading is the result of a read at an offset.
type reading struct {
	data    []byte          // the next bytes
	dropped int64           // or the number of dropped bytes
	over    bool            // or the end
	changed <-chan struct{} // or closed when there is more
}

// at returns up to len(buf) bytes from offset, in buf.
func (s *scrollback) at(offset int64, buf []byte) reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case offset < s.start:
		return reading{dropped: s.start - offset}
	case offset < s.end:
		n := min(int64(len(buf)), s.end-offset)
		return reading{data: s.copy(buf[:n], offset)}
	}
	return reading{over: s.closed, changed: s.changed}
}

// bounds returns the offsets of the first byte kept and of the next to come.
func (s *scrollback) bounds() (start, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start, s.end
}

// size returns its memory use in bytes.
func (s *scrollback) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ring)
}
