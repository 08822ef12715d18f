package channel

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"holt"
)

// Frames of the file channel. Integers are little-endian, as FUSE's are.
//
//	u32 length of what follows | u8 kind | payload
const (
	// FrameHeader is the size of a frame's header, bytes.
	FrameHeader = 5
	// MaxFrame is the maximum of a frame's length field: a 1 MiB write with its headers and tag.
	MaxFrame = 1<<20 + 64<<10
	// MaxTag is the maximum length of a request's tag, bytes.
	MaxTag = 128
	// FrameVersion is the protocol version in a [Hello].
	FrameVersion = 3
	// MaxNotices is the maximum number of unacknowledged notifications, so that
	// their reader need not wait for the kernel.
	MaxNotices = 1024
)

// FrameKind is the type of a frame.
type FrameKind uint8

// The kinds of frames. Guest to host: hello, request, ack, taken. Host to
// guest: welcome, reply, notify.
const (
	FrameHello   FrameKind = 1
	FrameRequest FrameKind = 2 // i64 time | u8 tag length | tag | raw FUSE request
	FrameAck     FrameKind = 3 // u64: every lower unique is answered, and its answer was received
	FrameTaken   FrameKind = 4 // u32: number of further notifications of this session that reached the kernel
	FrameWelcome FrameKind = 16
	FrameReply   FrameKind = 17 // raw FUSE reply
	FrameNotify  FrameKind = 18 // raw FUSE notification
)

// Hello begins a file session: it names the mount of the requests. Welcome
// answers with the mount that the host accepts; if that differs, the guest
// replaces its mount.
type Hello struct {
	Mount   [16]byte // random, made by the guest for each mount
	Version uint16
	Fresh   bool // FUSE's INIT has not been answered yet
}

const helloSize = 16 + 2 + 1

// Append appends the payload of h to b.
func (h Hello) Append(b []byte) []byte {
	b = append(b, h.Mount[:]...)
	b = binary.LittleEndian.AppendUint16(b, h.Version)
	if h.Fresh {
		return append(b, 1)
	}
	return append(b, 0)
}

// ParseHello decodes the payload of a hello.
func ParseHello(p []byte) (Hello, error) {
	if len(p) != helloSize || p[18] > 1 {
		return Hello{}, corrupt("hello", p)
	}
	return Hello{Mount: [16]byte(p), Version: binary.LittleEndian.Uint16(p[16:]), Fresh: p[18] == 1}, nil
}

// ParseWelcome decodes the payload of a welcome: the mount that the host accepts.
func ParseWelcome(p []byte) (mount [16]byte, err error) {
	if len(p) != len(mount) {
		return mount, corrupt("welcome", p)
	}
	return [16]byte(p), nil
}

// Request is a FUSE request with the guest's unverified metadata.
type Request struct {
	Time    int64  // ns since 1970 on the guest's clock when the request was read; 0: unknown
	Tag     string // owner of the requesting process
	Message []byte
}

// requestFixed is the size of a request's payload before the tag.
const requestFixed = 8 + 1

// ParseRequest decodes the payload of a request. The message is a slice of p.
func ParseRequest(p []byte) (Request, error) {
	if len(p) < requestFixed {
		return Request{}, corrupt("request", p)
	}
	n := requestFixed + int(p[8])
	if p[8] > MaxTag || len(p) < n {
		return Request{}, corrupt("request", p)
	}
	return Request{Time: int64(binary.LittleEndian.Uint64(p)), Tag: string(p[requestFixed:n]), Message: p[n:]}, nil
}

// ParseAck decodes the payload of an ack: the watermark.
func ParseAck(p []byte) (uint64, error) {
	if len(p) != 8 {
		return 0, corrupt("ack", p)
	}
	return binary.LittleEndian.Uint64(p), nil
}

// ParseTaken decodes the payload of a taken: a number from 1 to [MaxNotices].
func ParseTaken(p []byte) (int, error) {
	if len(p) != 4 {
		return 0, corrupt("taken", p)
	}
	n := binary.LittleEndian.Uint32(p)
	if n == 0 || n > MaxNotices {
		return 0, holt.Errorf(holt.Corrupt, "invalid number of acknowledged notifications: %d", n)
	}
	return int(n), nil
}

func corrupt(noun string, p []byte) error {
	return holt.Errorf(holt.Corrupt, "malformed %s frame of %d bytes", noun, len(p))
}

// FrameReader reads frames. It is not safe for concurrent use.
type FrameReader struct {
	r *bufio.Reader
}

// NewFrameReader returns a reader of frames from r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, 16<<10)}
}

// Next reads a frame. The payload is in buf if that is large enough, else in a
// new slice; large payloads are read without a copy. An invalid length is
// Corrupt and final; io.EOF is returned only between frames.
func (r *FrameReader) Next(buf []byte) (FrameKind, []byte, error) {
	h, err := r.r.Peek(FrameHeader)
	if err != nil {
		if err == io.EOF && len(h) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	n, kind := binary.LittleEndian.Uint32(h), FrameKind(h[4])
	if n < 1 || n > MaxFrame {
		return 0, nil, holt.Errorf(holt.Corrupt, "invalid frame length %d: the maximum is %d", n, MaxFrame)
	}
	r.r.Discard(FrameHeader)
	size := int(n) - 1
	if cap(buf) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if _, err := io.ReadFull(r.r, buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, buf, nil
}

// FrameWriter writes frames without buffering. It is safe for concurrent use.
type FrameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	vec bufferWriter // w, if it supports several buffers
	buf []byte       // guarded by mu
}

type bufferWriter interface{ WriteBuffers(bufs ...[]byte) error }

// NewFrameWriter returns a writer of frames to w.
func NewFrameWriter(w io.Writer) *FrameWriter {
	vec, _ := w.(bufferWriter)
	return &FrameWriter{w: w, vec: vec}
}

// Write writes a frame with parts as its payload. On a session made by [Dial] they are not copied.
func (w *FrameWriter) Write(kind FrameKind, parts ...[]byte) error {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	if n > MaxFrame {
		return fmt.Errorf("write frame of %d bytes: the maximum is %d", n, MaxFrame)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = appendHeader(w.buf[:0], kind, n)
	if w.vec != nil && n > 512 {
		return w.vec.WriteBuffers(append([][]byte{w.buf}, parts...)...)
	}
	for _, p := range parts {
		w.buf = append(w.buf, p...)
	}
	_, err := w.w.Write(w.buf)
	if cap(w.buf) > 64<<10 {
		w.buf = nil
	}
	return err
}

func appendHeader(b []byte, kind FrameKind, n int) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(n)), byte(kind))
}

// RequestHeader appends to b the request frame's bytes before a FUSE message of
// size bytes. It leaves out a tag that is too long.
func RequestHeader(b []byte, time int64, tag string, size int) []byte {
	if len(tag) > MaxTag {
		tag = ""
	}
	b = appendHeader(b, FrameRequest, 1+requestFixed+len(tag)+size)
	b = binary.LittleEndian.AppendUint64(b, uint64(time))
	return append(append(b, byte(len(tag))), tag...)
}

// RequestHeaderSize is the maximum number of bytes that [RequestHeader] appends.
const RequestHeaderSize = FrameHeader + requestFixed + MaxTag
