package agent

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"sync"
)

// Packets of SFTP version 3 (draft-ietf-secsh-filexfer-02): u32 length, u8 type, u32 id, and what the type has. Strings are
// u32 length and bytes.
const (
	sftpOpen   = 3
	sftpClose  = 4
	sftpWrite  = 6
	sftpStatus = 101
	sftpHandle = 102

	sftpForWriting = 0x02        // in the flags of an open
	sftpEmpty      = 0x10 | 0x20 // it empties the file, or makes it
	mostSFTP       = 1 << 20     // bytes of a packet; a larger one passes as it is, with all that follows
)

// sftpHoles stands between a client of SFTP and the server, and keeps the client from filling holes: zeros that it writes
// behind the end of a file that it has made or emptied are taken out of its packets. Before a packet of another kind the
// last byte of such a hole is written, so that the file has its size, and that packet waits until it is. So it is when the
// client has gone without closing the file.
type sftpHoles struct {
	mu      sync.Mutex
	answer  sync.Cond // an answer has come, or none comes any more
	gone    bool
	opening map[uint32]bool       // requests that make or empty a file
	files   map[string]*sftpFresh // by handle
	extra   map[uint32]*sftpExtra // by the id of the client's request that they go before
}

// sftpExtra are requests that the client has not made. Their answers come before that to its own.
type sftpExtra struct {
	left int  // answers to come
	told bool // an error was passed on, in the place of the answer to its own
}

// sftpFresh is a file that was made or emptied.
type sftpFresh struct {
	end  int64 // of what the client has written
	hole bool  // the end is a hole that the file does not have yet
}

// between returns both streams with the filter between.
func (h *sftpHoles) between(in io.Reader, out io.WriteCloser) (io.Reader, io.WriteCloser) {
	*h = sftpHoles{answer: sync.Cond{L: &h.mu}, opening: map[uint32]bool{}, files: map[string]*sftpFresh{}, extra: map[uint32]*sftpExtra{}}
	return &sftpRequests{h: h, r: bufio.NewReaderSize(in, maxChunk)}, &sftpAnswers{h: h, w: out}
}

// sftpRequests reads the client's packets.
type sftpRequests struct {
	h    *sftpHoles
	r    *bufio.Reader
	left []byte // of the packet that is passed on
	next []byte // the packet that waits for the answers to those before it
	raw  bool
}

func (s *sftpRequests) Read(p []byte) (int, error) {
	if len(s.left) == 0 && s.next != nil {
		s.h.wait(binary.BigEndian.Uint32(s.next[5:]))
		s.left, s.next = s.next, nil
	}
	if len(s.left) == 0 && !s.raw {
		packet, err := s.packet()
		switch {
		case err != nil:
			if s.left = s.h.last(); len(s.left) == 0 {
				return 0, err
			}
		case packet == nil:
			s.left, s.raw = s.h.last(), true
		default:
			if before, packet := s.h.request(packet); len(before) > 0 {
				s.left, s.next = before, packet
			} else {
				s.left = packet
			}
		}
	}
	if len(s.left) == 0 {
		return s.r.Read(p)
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// packet reads a packet; nil if it is too large.
func (s *sftpRequests) packet() ([]byte, error) {
	head, err := s.r.Peek(4)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > mostSFTP {
		return nil, nil
	}
	packet := make([]byte, 4+n)
	_, err = io.ReadFull(s.r, packet)
	return packet, err
}

// wait waits for the answers to what went before a request.
func (h *sftpHoles) wait(id uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.gone && h.extra[id] != nil && h.extra[id].left > 0 {
		h.answer.Wait()
	}
}

// request returns what the server gets in the place of a packet of the client's, and before it.
func (h *sftpHoles) request(packet []byte) (before, instead []byte) {
	if len(packet) < 9 {
		return nil, packet
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	kind, id, rest := packet[4], binary.BigEndian.Uint32(packet[5:]), packet[9:]
	name, rest := sftpString(rest)
	if kind == sftpWrite {
		return nil, h.write(packet, string(name), rest)
	}
	before = h.ends(id)
	switch {
	case kind == sftpClose:
		delete(h.files, string(name))
	case kind == sftpOpen && len(rest) >= 4:
		if flags := binary.BigEndian.Uint32(rest); flags&sftpForWriting != 0 && flags&sftpEmpty != 0 {
			h.opening[id] = true
		}
	}
	return before, packet
}

// ends returns what writes the last bytes of holes before a request.
func (h *sftpHoles) ends(id uint32) (writes []byte) {
	for handle, f := range h.files {
		if f.hole {
			f.hole = false
			writes = append(writes, sftpWritePacket(id, handle, f.end-1, []byte{0})...)
			if h.extra[id] == nil {
				h.extra[id] = &sftpExtra{}
			}
			h.extra[id].left++
		}
	}
	return writes
}

// last is ends for a client that makes no more requests. It has counted its own up, so that it has none of this number.
func (h *sftpHoles) last() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ends(math.MaxUint32)
}

// write takes the zeros out of a packet that writes.
func (h *sftpHoles) write(packet []byte, handle string, rest []byte) []byte {
	f := h.files[handle]
	if f == nil || len(rest) < 12 {
		return packet
	}
	off := int64(binary.BigEndian.Uint64(rest))
	data, _ := sftpString(rest[8:])
	end := off + int64(len(data))
	if off < 0 || end < off || end < f.end {
		return packet
	}
	hole := off >= f.end && len(data) >= 4096 && allZero(data)
	f.end, f.hole = end, hole
	if hole {
		return sftpWritePacket(binary.BigEndian.Uint32(packet[5:]), handle, off, nil)
	}
	return packet
}

func sftpWritePacket(id uint32, handle string, off int64, data []byte) []byte {
	be := binary.BigEndian
	p := be.AppendUint32(nil, uint32(1+4+4+len(handle)+8+4+len(data)))
	p = be.AppendUint32(append(p, sftpWrite), id)
	p = append(be.AppendUint32(p, uint32(len(handle))), handle...)
	p = be.AppendUint64(p, uint64(off))
	return append(be.AppendUint32(p, uint32(len(data))), data...)
}

// sftpString cuts a string off b; nothing if it is not whole.
func sftpString(b []byte) (s, rest []byte) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil
	}
	n := binary.BigEndian.Uint32(b)
	return b[4 : 4+n], b[4+n:]
}

// sftpAnswers writes the server's packets.
type sftpAnswers struct {
	h    *sftpHoles
	w    io.WriteCloser
	part []byte // of a packet that is not whole
	raw  bool
}

func (s *sftpAnswers) Close() error {
	s.h.end()
	return s.w.Close()
}

// end says that no answers come any more.
func (h *sftpHoles) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
	h.answer.Broadcast()
}

func (s *sftpAnswers) Write(p []byte) (int, error) {
	s.part = append(s.part, p...)
	var out []byte
	for !s.raw && len(s.part) >= 4 {
		n := uint64(binary.BigEndian.Uint32(s.part)) + 4
		if s.raw = n > mostSFTP+4; s.raw || uint64(len(s.part)) < n {
			break
		}
		if s.h.passes(s.part[:n]) {
			out = append(out, s.part[:n]...)
		}
		s.part = s.part[n:]
	}
	if s.raw {
		out, s.part = append(out, s.part...), nil
	}
	if len(out) > 0 {
		if _, err := s.w.Write(out); err != nil {
			s.h.end()
			return 0, err
		}
	}
	return len(p), nil
}

// passes says whether the client gets an answer. Where the last byte of a hole could not be written, it gets that
// error in the place of the answer to its own request.
func (h *sftpHoles) passes(packet []byte) bool {
	if len(packet) < 9 {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	kind, id, rest := packet[4], binary.BigEndian.Uint32(packet[5:]), packet[9:]
	switch e := h.extra[id]; {
	case e == nil:
	case e.left == 0: // to the client's own
		delete(h.extra, id)
		if e.told {
			return false
		}
	default:
		e.left--
		h.answer.Broadcast()
		failed := kind == sftpStatus && len(rest) >= 4 && binary.BigEndian.Uint32(rest) != 0
		if !failed || e.told {
			return false
		}
		e.told = true
		return true
	}
	if handle, _ := sftpString(rest); kind == sftpHandle && h.opening[id] {
		h.files[string(handle)] = &sftpFresh{}
	}
	delete(h.opening, id)
	return true
}
