package agent

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"sync"
)

// Packets of SFTP version 3 (draft-ietf-secsh-filexfer-02): u32 length, u8
// type, u32 id, and fields by type. Strings are u32 length and bytes.
const (
	sftpOpen   = 3
	sftpClose  = 4
	sftpWrite  = 6
	sftpStatus = 101
	sftpHandle = 102

	sftpForWriting = 0x02        // in the flags of an open
	sftpEmpty      = 0x10 | 0x20 // create or truncate
	mostSFTP       = 1 << 20     // bytes of a packet; a larger one, and everything after it, passes unchanged
)

// sftpHoles is a filter between an SFTP client and the server that keeps
// clients from filling holes: it removes zeros that the client writes behind
// the end of a file that it has created or truncated. Before a packet of
// another type it writes the last byte of such a hole, so that the file gets
// its size, and delays that packet until it is written. It also does so when
// the client ends without closing the file.
type sftpHoles struct {
	mu      sync.Mutex
	answer  sync.Cond // an answer has arrived, or none will
	gone    bool
	opening map[uint32]bool       // open requests that create or truncate
	files   map[string]*sftpFresh // by handle
	extra   map[uint32]*sftpExtra // by the id of the client's request after them
}

// sftpExtra are inserted requests. Their answers come before that of the client's request.
type sftpExtra struct {
	left int  // answers to come
	told bool // an error was sent in place of the answer to the client's request
}

// sftpFresh is a file that was created or truncated.
type sftpFresh struct {
	end  int64 // end of the client's writes
	hole bool  // the file lacks a hole up to end
}

// between returns both streams with the filter inserted.
func (h *sftpHoles) between(in io.Reader, out io.WriteCloser) (io.Reader, io.WriteCloser) {
	*h = sftpHoles{answer: sync.Cond{L: &h.mu}, opening: map[uint32]bool{}, files: map[string]*sftpFresh{}, extra: map[uint32]*sftpExtra{}}
	return &sftpRequests{h: h, r: bufio.NewReaderSize(in, maxChunk)}, &sftpAnswers{h: h, w: out}
}

// sftpRequests reads the client's packets.
type sftpRequests struct {
	h    *sftpHoles
	r    *bufio.Reader
	left []byte // rest of the packet being passed on
	next []byte // the packet that waits for earlier answers
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

// wait waits for the answers to requests inserted before a request.
func (h *sftpHoles) wait(id uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.gone && h.extra[id] != nil && h.extra[id].left > 0 {
		h.answer.Wait()
	}
}

// request returns what to send to the server before, and instead of, a client's packet.
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

// ends returns writes of the last bytes of holes, to insert before a request.
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

// last is ends when the client makes no more requests. A client's ids count up,
// so this id is unused.
func (h *sftpHoles) last() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ends(math.MaxUint32)
}

// write removes the zeros from a write packet.
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

// sftpString cuts a string off b; empty if it is incomplete.
func sftpString(b []byte) (s, rest []byte) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil
	}
	n := binary.BigEndian.Uint32(b)
	return b[4 : 4+n], b[4+n:]
}

// sftpAnswers passes on the server's packets.
type sftpAnswers struct {
	h    *sftpHoles
	w    io.WriteCloser
	part []byte // an incomplete packet
	raw  bool
}

func (s *sftpAnswers) Close() error {
	s.h.end()
	return s.w.Close()
}

// end records that no more answers arrive.
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

// passes reports whether to pass an answer to the client. If the last byte of a
// hole could not be written, the client gets that error in place of the answer
// to its request.
func (h *sftpHoles) passes(packet []byte) bool {
	if len(packet) < 9 {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	kind, id, rest := packet[4], binary.BigEndian.Uint32(packet[5:]), packet[9:]
	switch e := h.extra[id]; {
	case e == nil:
	case e.left == 0: // the answer to the client's request
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
