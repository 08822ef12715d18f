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

// ackEvery is how many answers come between two looks at what need not be
// remembered any more.
const ackEvery = 128

// server answers this host's kernel for one mount. One goroutine reads requests
// and hands each to a goroutine of its own, as a session does for a guest.
type server struct {
	fs       fuse.RawFileSystem
	opt      *fuse.MountOptions
	protocol *fuse.ProtocolServer
	dev      *agent.FuseDevice
	mem      *memory
	terms    terms
	log      *slog.Logger
	agreed   func(terms)            // called with what INIT agreed on; may be nil
	began    func()                 // called when INIT was answered
	ack      func(watermark uint64) // told which requests were answered; may be nil

	answers int       // by the reading goroutine only
	broken  bool      // requests cannot be read any more; for who waits for serve
	buffers sync.Pool // of *[]byte, for replies
	working sync.WaitGroup
}

// newServer serves a mount, from where the daemon before left it.
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

// serve answers requests until the mount is gone, or leave was called, and
// nothing is in work.
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
			return // who serves the mount next finds h
		}
		// A request that nothing waits behind is answered by this goroutine, if that is quick: to wake another one costs more.
		if next.length().Load() == 0 && quick(h) {
			s.work(h, s.mem.begin(h))
		} else {
			s.spread(h)
		}
		h = next
	}
}

// read reads a request into a slot; its length stays 0 if there is none. False when the mount is over.
func (s *server) read(h *held, read func([]byte) (int, error)) bool {
	n, err := read(h.buf)
	if err != nil || n < inHeaderSize {
		h.length().Store(0) // the kernel took back what it had begun to hand over
	}
	switch {
	case err == nil && n >= inHeaderSize:
		if s.answers++; s.answers%ackEvery == 0 && s.ack != nil {
			s.ack(s.mem.watermark())
		}
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // ENOENT: it was interrupted
	case errors.Is(err, unix.ENODEV), errors.Is(err, os.ErrDeadlineExceeded):
		return false
	default:
		s.log.Error("requests to a host mount are not read any more", "err", err)
		s.broken = true
		return false
	}
	return true
}

// leave ends serving, but not the mount: what the kernel asks waits there.
func (s *server) leave() error { return s.dev.StopReading() }

// quick tells whether a request waits for nothing but memory and the end of the journal.
func quick(h *held) bool {
	switch message(h.buf).opcode() {
	case opRead, opReaddir, opReaddirplus, opFsync, opFsyncdir, opFallocate, opCopyFileRange, opLseek:
		return false
	}
	return h.length().Load() < smallReply
}

// spread has a request answered by a goroutine of its own, unless its order counts.
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
		return // nothing here waits for longer than a disk
	}
	v, err := admit(m, s.terms)
	switch {
	case err != nil:
		s.log.Error("a request of this host's kernel is not understood", "err", err)
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

// init answers INIT, after it and its answer were recorded: the next daemon
// must serve what was promised here.
func (s *server) init(h *held, m message, reply []byte) {
	r, err := parseInitReply(reply)
	if err != nil {
		s.log.Error("a host mount cannot begin", "err", err)
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
	_ = s.dev.Reply(b) // the process has given up, or the mount is gone
}

// reply hands an answer to the kernel. One that it does not wait for is for a
// process that has given up, or was given by the daemon before.
func (s *server) reply(h *held, b []byte) {
	binary.NativeEndian.PutUint64(b[8:], h.unique().Load())
	err := s.dev.Reply(b)
	if errors.Is(err, unix.EINVAL) { // the kernel does not take it, and would wait for ever
		s.log.Error("a reply is not valid", "bytes", len(b))
		s.fail(h, syscall.EIO)
	}
}

// notify hands a change to the kernel, which may wait for the file's lock.
func (s *server) notify(c Change) error {
	if err := s.dev.Notify(c.encode()); err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: it knew nothing of it
		return err
	}
	return nil
}
