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
	// MaxFrame bounds a frame's length field: a 1 MiB write with its
	// headers and tag.
	MaxFrame = 1<<20 + 64<<10
	// MaxTag bounds a request's tag, bytes.
	MaxTag = 128
	// FrameVersion is the version a [Hello] carries.
	FrameVersion = 3
	// MaxNotices is how many notifications may be on their way: sent, and not yet
	// said to be taken. So who reads them never has to wait for a kernel.
	MaxNotices = 1024
)

// FrameKind says what a frame is.
type FrameKind uint8

// The kinds of frames. Guest to host: hello, request, ack, taken. Host to
// guest: welcome, reply, notify.
const (
	FrameHello   FrameKind = 1
	FrameRequest FrameKind = 2 // i64 time | u8 tag length | tag | raw FUSE request
	FrameAck     FrameKind = 3 // u64: every lower unique is answered, and the answer received
	FrameTaken   FrameKind = 4 // u32: so many more notifications of this session reached the kernel
	FrameWelcome FrameKind = 16
	FrameReply   FrameKind = 17 // raw FUSE reply
	FrameNotify  FrameKind = 18 // raw FUSE notification
)

// Hello opens a file session: which mount the requests belong to. Welcome
// answers it with the mount the host accepts; if that is another, the guest
// gives the mount up and makes a new one.
type Hello struct {
	Mount   [16]byte // random, made by the guest for each mount
	Version uint16
	Fresh   bool // FUSE's INIT has not been answered yet
}

const helloSize = 16 + 2 + 1

// Append appends h's payload to b.
func (h Hello) Append(b []byte) []byte {
	b = append(b, h.Mount[:]...)
	b = binary.LittleEndian.AppendUint16(b, h.Version)
	if h.Fresh {
		return append(b, 1)
	}
	return append(b, 0)
}

// ParseHello reads a hello's payload.
func ParseHello(p []byte) (Hello, error) {
	if len(p) != helloSize || p[18] > 1 {
		return Hello{}, corrupt("hello", p)
	}
	return Hello{Mount: [16]byte(p), Version: binary.LittleEndian.Uint16(p[16:]), Fresh: p[18] == 1}, nil
}

// ParseWelcome reads a welcome's payload: the mount the host accepts.
func ParseWelcome(p []byte) (mount [16]byte, err error) {
	if len(p) != len(mount) {
		return mount, corrupt("welcome", p)
	}
	return [16]byte(p), nil
}

// Request is a FUSE request and what the guest says of it. The guest may say anything.
type Request struct {
	Time    int64  // ns since 1970 on the guest's clock when the request was read; 0: not said
	Tag     string // who made it
	Message []byte
}

// requestFixed is the size of a request's payload before the tag.
const requestFixed = 8 + 1

// ParseRequest reads a request's payload. The message is part of p.
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

// ParseAck reads an ack's payload: the watermark.
func ParseAck(p []byte) (uint64, error) {
	if len(p) != 8 {
		return 0, corrupt("ack", p)
	}
	return binary.LittleEndian.Uint64(p), nil
}

// ParseTaken reads a taken's payload: a number from 1 to [MaxNotices].
func ParseTaken(p []byte) (int, error) {
	if len(p) != 4 {
		return 0, corrupt("taken", p)
	}
	n := binary.LittleEndian.Uint32(p)
	if n == 0 || n > MaxNotices {
		return 0, holt.Errorf(holt.Corrupt, "%d notifications taken at once", n)
	}
	return int(n), nil
}

func corrupt(noun string, p []byte) error {
	return holt.Errorf(holt.Corrupt, "malformed %s frame of %d bytes", noun, len(p))
}

// FrameReader reads frames. It is for one goroutine.
type FrameReader struct {
	r *bufio.Reader
}

// NewFrameReader returns a reader of r's frames.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, 16<<10)}
}

// Next reads a frame. Its payload is put into buf if that is large enough,
// else into a new slice; big payloads go there without a copy. A length out of
// bounds is Corrupt and ends the stream; io.EOF comes only between frames.
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
		return 0, nil, holt.Errorf(holt.Corrupt, "frame of %d bytes; at most %d are allowed", n, MaxFrame)
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

// FrameWriter writes frames, each at once; its methods may be called
// concurrently.
type FrameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	vec bufferWriter // w, if it can take several buffers
	buf []byte       // guarded by mu
}

type bufferWriter interface{ WriteBuffers(bufs ...[]byte) error }

// NewFrameWriter returns a writer of frames to w.
func NewFrameWriter(w io.Writer) *FrameWriter {
	vec, _ := w.(bufferWriter)
	return &FrameWriter{w: w, vec: vec}
}

// Write writes a frame whose payload is parts, one after the other. On a
// session made by [Dial] they are not copied.
func (w *FrameWriter) Write(kind FrameKind, parts ...[]byte) error {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	if n > MaxFrame {
		return fmt.Errorf("write frame of %d bytes: at most %d are allowed", n, MaxFrame)
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

// RequestHeader appends to b what stands before a FUSE message of size bytes
// in a request frame, as of a time. A tag that is too long is left out.
func RequestHeader(b []byte, time int64, tag string, size int) []byte {
	if len(tag) > MaxTag {
		tag = ""
	}
	b = appendHeader(b, FrameRequest, 1+requestFixed+len(tag)+size)
	b = binary.LittleEndian.AppendUint64(b, uint64(time))
	return append(append(b, byte(len(tag))), tag...)
}

// RequestHeaderSize is the most that [RequestHeader] appends.
const RequestHeaderSize = FrameHeader + requestFixed + MaxTag
