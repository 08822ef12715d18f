package mount

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"holt/internal/guest/agent"
)

// ackEvery is the number of answers between two acknowledgements of the watermark.
const ackEvery = 128

// server answers the host's kernel for one mount. One goroutine reads requests
// and passes each to its own goroutine, as a session does for a guest.
type server struct {
	fs       fuse.RawFileSystem
	opt      *fuse.MountOptions
	protocol *fuse.ProtocolServer
	dev      *agent.FuseDevice
	mem      *memory
	terms    terms
	log      *slog.Logger
	agreed   func(terms)            // called with the results of INIT; may be nil
	began    func()                 // called after INIT is answered
	ack      func(watermark uint64) // called when all requests below a number are answered; may be nil

	answers int       // used by the reading goroutine only
	broken  bool      // reading requests failed; valid after serve
	buffers sync.Pool // of *[]byte, for replies
	working sync.WaitGroup
}

// newServer serves a mount from where the previous daemon left it.
func newServer(fs fuse.RawFileSystem, opt *fuse.MountOptions, dev *agent.FuseDevice, mem *memory, log *slog.Logger) (s *server, err error) {
	s = &server{fs: fs, opt: opt, dev: dev, mem: mem, log: log,
		buffers: sync.Pool{New: func() any { b := make([]byte, smallReply); return &b }}}
	if req, reply, ok := mem.init(); ok {
		s.protocol, s.terms, err = resume(fs, opt, req, reply)
		return s, err
	}
	s.protocol = fuse.NewProtocolServer(fs, opt)
	return s, nil
}

// serve answers requests until the mount is gone or leave was called, and no
// request is in progress.
func (s *server) serve() {
	defer s.working.Wait()
	for _, h := range s.mem.slots() {
		s.spread(h)
	}
	for h := s.mem.take(); ; {
		if h.length().Load() == 0 && !s.read(h, s.dev.Read) {
			return
		}
		if h.length().Load() == 0 {
			continue
		}
		next := s.mem.take()
		if !s.read(next, s.dev.TryRead) {
			return // the next daemon finds h
		}
		// This goroutine answers a quick request itself if no other is waiting: waking
		// another goroutine costs more.
		if next.length().Load() == 0 && quick(h) {
			s.work(h, s.mem.begin(h))
		} else {
			s.spread(h)
		}
		h = next
	}
}

// read reads a request into a slot, whose length stays 0 if there is none. It
// returns false when the mount is gone.
func (s *server) read(h *held, read func([]byte) (int, error)) bool {
	n, err := read(h.buf)
	if err != nil || n < inHeaderSize {
		h.length().Store(0) // the kernel aborted the delivery
	}
	switch {
	case err == nil && n >= inHeaderSize:
		if s.answers++; s.answers%ackEvery == 0 && s.ack != nil {
			s.ack(s.mem.watermark())
		}
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // ENOENT: the request was interrupted
	case errors.Is(err, unix.ENODEV), errors.Is(err, os.ErrDeadlineExceeded):
		return false
	default:
		s.log.Error("cannot read requests to a host mount any more", "err", err)
		s.broken = true
		return false
	}
	return true
}

// leave stops serving without ending the mount: new requests wait.
func (s *server) leave() error { return s.dev.StopReading() }

// quick reports whether a request only needs memory and an append to the journal.
func quick(h *held) bool {
	switch message(h.buf).opcode() {
	case opRead, opReaddir, opReaddirplus, opFsync, opFsyncdir, opFallocate, opCopyFileRange, opLseek:
		return false
	}
	return h.length().Load() < smallReply
}

// spread answers a request in its own goroutine, unless the order matters.
func (s *server) spread(h *held) {
	m := s.mem.begin(h)
	switch m.opcode() {
	case opInit, opForget, opBatchForget:
		s.work(h, m)
	default:
		s.working.Go(func() { s.work(h, m) })
	}
}

func (s *server) work(h *held, m message) {
	defer s.mem.end(h)
	if m.opcode() == opInterrupt {
		return // nothing here blocks longer than a disk
	}
	v, err := admit(m, s.terms)
	switch {
	case err != nil:
		s.log.Error("unsupported request of this host's kernel", "err", err)
		s.fail(h, syscall.ENOSYS)
		return
	case v.answer:
		s.fail(h, v.errno)
		return
	}
	m.setSlot(h.id)
	buf := s.buffers.Get().(*[]byte)
	defer s.buffers.Put(buf)
	if need := replySize(m); cap(*buf) < need {
		*buf = make([]byte, need)
	}
	out := (*buf)[:cap(*buf)]
	n, status := s.protocol.HandleRequest([][]byte{m}, [][]byte{out})
	switch op := m.opcode(); {
	case op == opForget || op == opBatchForget:
	case n == 0:
		s.log.Error("request was not answered by go-fuse", "op", opName(op), "status", status)
		s.fail(h, syscall.EIO)
	case op == opInit:
		s.init(h, m, out[:n])
	default:
		s.reply(h, out[:n])
	}
}

// init answers INIT after recording the request and its reply: the next daemon
// must use the same terms.
func (s *server) init(h *held, m message, reply []byte) {
	r, err := parseInitReply(reply)
	if err != nil {
		s.log.Error("cannot begin a host mount", "err", err)
		s.fail(h, syscall.EIO)
		return
	}
	s.mem.setInit(m, reply)
	s.terms = r.terms()
	if s.agreed != nil {
		s.agreed(s.terms)
	}
	s.reply(h, reply)
	if s.began != nil {
		s.began()
	}
}

func (s *server) fail(h *held, errno syscall.Errno) {
	b := make([]byte, outHeaderSize)
	binary.LittleEndian.PutUint32(b, outHeaderSize)
	binary.LittleEndian.PutUint32(b[4:], uint32(-int32(errno)))
	binary.NativeEndian.PutUint64(b[8:], h.unique().Load())
	_ = s.dev.Reply(b) // the request was interrupted, or the mount is gone
}

// reply passes a reply to the kernel. If the kernel has no such request, it was
// interrupted or answered by the previous daemon.
func (s *server) reply(h *held, b []byte) {
	binary.NativeEndian.PutUint64(b[8:], h.unique().Load())
	err := s.dev.Reply(b)
	if errors.Is(err, unix.EINVAL) { // the kernel rejects it; its process would wait for ever
		s.log.Error("invalid reply", "bytes", len(b))
		s.fail(h, syscall.EIO)
	}
}

// notify passes a change to the kernel, which may wait for the file's lock.
func (s *server) notify(c Change) error {
	if err := s.dev.Notify(c.encode()); err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: it is not cached
		return err
	}
	return nil
}
