package mount

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt"
	"holt/internal/guest/channel"
	"holt/internal/workspace"
)

const (
	// maxServed is the maximum of concurrent requests of a guest. Further ones wait
	// in the channel, so that a guest uses at most this many buffers of at most 1
	// MiB for requests, and as many for replies.
	maxServed = 32
	// smallReply is the buffer size for all replies except READ, READDIR and
	// attributes: the longest is the target of a symbolic link.
	smallReply = 8 << 10
)

// session is a session of the file channel. One goroutine reads requests and
// passes each to its own goroutine; replies are sent in the order of
// completion, under the lock of the frame writer.
type session struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	ws       *workspace.Workspace
	conn     net.Conn
	requests *channel.FrameReader
	frames   *channel.FrameWriter
	notifier *Notifier
	log      *slog.Logger

	// The mount. It changes only while no request is in progress.
	tree      *tree
	server    *fuse.ProtocolServer
	terms     terms
	initSent  []byte // its INIT request, nil until it arrives
	initReply []byte

	writer     func(tag string) workspace.Writer
	observe    func(op string, took time.Duration) // may be nil
	free       chan *slot
	buffers    sync.Pool // of *[]byte
	working    sync.WaitGroup
	notifying  sync.WaitGroup
	notifyOnce sync.Once
}

// slot is the place of one request in progress. Its number is passed in the
// padding of the request's header, by which the tree finds the writer.
type slot struct {
	id  uint16
	in  *[]byte
	out *[]byte
}

func newSession(ctx context.Context, cancel context.CancelCauseFunc, ws *workspace.Workspace, conn net.Conn, opt GuestOptions) *session {
	s := &session{
		ctx: ctx, cancel: cancel, ws: ws, conn: conn,
		requests: channel.NewFrameReader(conn),
		frames:   channel.NewFrameWriter(conn),
		notifier: opt.Notifier,
		log:      opt.Log,
		writer:   opt.Writer,
		observe:  opt.Observe,
		free:     make(chan *slot, maxServed),
		buffers:  sync.Pool{New: func() any { b := make([]byte, smallReply); return &b }},
	}
	for i := range maxServed {
		s.free <- &slot{id: uint16(i)}
	}
	return s
}

// restore creates the protocol server of an existing mount: it replays the
// recorded INIT and drops the reply. Without a record it waits for INIT.
func (s *session) restore(epoch workspace.Epoch) error {
	opt := protocolOptions(s.log)
	opt.PanicHandler = s.panicked
	s.tree = &tree{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		ws:            s.ws.Tree(), epoch: epoch, identity: true, valid: forever, log: s.log,
		notifier: s.notifier,
		writers:  make([]workspace.Writer, maxServed),
		times:    make([]int64, maxServed),
	}
	s.terms, s.initSent, s.initReply = terms{}, nil, nil
	req, reply, ok := s.ws.EpochInit(epoch)
	if !ok {
		s.server = fuse.NewProtocolServer(past{s.tree}, opt)
		return nil
	}
	var was terms
	var err error
	if s.server, was, err = resume(past{s.tree}, opt, req, reply); err != nil {
		return err
	}
	s.agree(was, req, reply)
	return nil
}

// agree sets the terms of the session.
func (s *session) agree(to terms, sent, reply []byte) {
	s.terms, s.initSent, s.initReply = to, sent, reply
	s.tree.longXattr = s.terms.longXattr
}

// serve reads frames until the session ends, or the guest sends hello for
// another mount and all requests of this one are done.
func (s *session) serve() (next channel.Hello, err error) {
	for {
		var sl *slot
		select {
		case sl = <-s.free:
		case <-s.ctx.Done():
			return next, context.Cause(s.ctx)
		}
		sl.in = s.buffers.Get().(*[]byte)
		kind, payload, err := s.requests.Next(*sl.in)
		if err != nil {
			return next, err
		}
		if cap(payload) > cap(*sl.in) {
			*sl.in = payload[:cap(payload)]
		}
		started := false
		switch kind {
		case channel.FrameRequest:
			started, err = s.request(sl, payload)
		case channel.FrameAck:
			var watermark uint64
			if watermark, err = channel.ParseAck(payload); err == nil {
				s.ws.Acknowledge(s.tree.epoch, watermark)
			}
		case channel.FrameTaken:
			err = s.taken(payload)
		case channel.FrameHello:
			next, err = parseHello(payload)
			s.release(sl)
			s.working.Wait()
			return next, err
		default:
			err = holt.Errorf(holt.InvalidArgument, "the guest sent an unexpected frame of kind %d", kind)
		}
		if err != nil {
			return next, err
		}
		if !started {
			s.release(sl)
		}
	}
}

func (s *session) release(sl *slot) {
	s.buffers.Put(sl.in)
	if sl.out != nil {
		s.buffers.Put(sl.out)
	}
	sl.in, sl.out = nil, nil
	s.free <- sl
}

// request handles one request. It completes requests that need no work, or
// whose order matters; for the others started reports that a goroutine has the
// slot.
func (s *session) request(sl *slot, payload []byte) (started bool, err error) {
	asked, err := channel.ParseRequest(payload)
	if err != nil {
		return false, err
	}
	m := message(asked.Message)
	defer func() {
		if r := recover(); r != nil {
			err = s.reply(m, errnoOf(s.panicked(r)))
		}
	}()
	if s.initSent != nil && bytes.Equal(m, s.initSent) {
		return false, s.frames.Write(channel.FrameReply, s.initReply) // it was lost on its way
	}
	v, err := admit(m, s.terms)
	switch {
	case err != nil:
		return false, err
	case v.answer:
		return false, s.reply(m, v.errno)
	}
	switch m.opcode() {
	case opInit:
		return false, s.init(m)
	case opForget:
		past{s.tree}.Forget(m.node(), m.u64(0))
		return false, nil
	case opBatchForget:
		for b := m.tailFrom(8); len(b) > 0; b = b[forgetOneSize:] {
			past{s.tree}.Forget(binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
		}
		return false, nil
	case opInterrupt:
		// No reply is due. Nothing here waits for longer than a disk, so a request
		// that was not begun yet may miss it.
		s.server.HandleRequest([][]byte{m}, [][]byte{make([]byte, outHeaderSize)})
		return false, nil
	}
	m.setSlot(sl.id)
	s.tree.writers[sl.id], s.tree.times[sl.id] = s.writerOf(asked.Tag), asked.Time
	s.working.Go(func() { s.work(sl, m) })
	return true, nil
}

// writerOf returns the writer of a tag.
func (s *session) writerOf(tag string) workspace.Writer {
	if tag == "" || s.writer == nil {
		return workspace.Writer{}
	}
	return s.writer(tag)
}

// init answers the first request of a mount after recording the request and its
// reply: another daemon must use the same terms.
func (s *session) init(m message) error {
	sent, reply := bytes.Clone(m), make([]byte, smallReply)
	n, _ := s.server.HandleRequest([][]byte{m}, [][]byte{reply})
	reply = reply[:n]
	r, err := parseInitReply(reply)
	if err != nil {
		return refuse(sent, "it cannot be answered: %v", err)
	}
	if err := s.ws.SetEpochInit(s.tree.epoch, sent, reply); err != nil {
		return holt.Errorf(holt.Internal, "record INIT: %w", err)
	}
	s.agree(r.terms(), sent, reply)
	return s.frames.Write(channel.FrameReply, reply)
}

// work serves one request and sends its reply.
func (s *session) work(sl *slot, m message) {
	began := time.Now()
	defer func() {
		if s.observe != nil {
			s.observe(opName(m.opcode()), time.Since(began))
		}
		if r := recover(); r != nil {
			s.reply(m, errnoOf(s.panicked(r)))
		}
		s.release(sl)
	}()
	if m.opcode() == opSyncfs {
		s.send(s.reply(m, errnoOf(s.tree.status(s.tree.ws.Sync()))))
		return
	}
	sl.out = s.buffers.Get().(*[]byte)
	if need := replySize(m); cap(*sl.out) < need {
		*sl.out = make([]byte, need)
	}
	out := (*sl.out)[:cap(*sl.out)]
	n, status := s.server.HandleRequest([][]byte{m}, [][]byte{out})
	if n == 0 {
		s.log.Error("request was not answered by go-fuse", "op", opName(m.opcode()), "status", status)
		s.send(s.reply(m, syscall.EIO))
		return
	}
	s.send(s.frames.Write(channel.FrameReply, out[:n]))
}

func errnoOf(status fuse.Status) syscall.Errno { return syscall.Errno(status) }

// replySize returns the maximum size of the reply to an admitted request, bytes.
func replySize(m message) int {
	switch m.opcode() {
	case opRead, opReaddir, opReaddirplus:
		return smallReply + int(m.u32(16))
	case opGetxattr, opListxattr:
		return smallReply + int(m.u32(0))
	}
	return smallReply
}

// reply sends a reply without a body.
func (s *session) reply(m message, errno syscall.Errno) error {
	b := make([]byte, outHeaderSize)
	binary.LittleEndian.PutUint32(b, outHeaderSize)
	binary.LittleEndian.PutUint32(b[4:], uint32(-int32(errno)))
	binary.LittleEndian.PutUint64(b[8:], m.unique())
	return s.frames.Write(channel.FrameReply, b)
}

// send ends the session when a reply could not be sent.
func (s *session) send(err error) {
	if err != nil {
		s.cancel(err)
	}
}

// notify sends a change to the guest's kernel. It does not wait: the agent
// acknowledges the change when its kernel has accepted it, and meanwhile
// continues to read replies.
func (s *session) notify(c Change) error {
	return s.frames.Write(channel.FrameNotify, c.encode())
}

// taken handles a guest's acknowledgement of notifications. A wrong one affects
// only its own kernel.
func (s *session) taken(payload []byte) error {
	count, err := channel.ParseTaken(payload)
	if err != nil {
		return err
	}
	if err := s.notifier.taken(count); err != nil {
		return err
	}
	if s.notifier.Told() {
		s.ws.MarkNotified(s.notifier.Told)
	}
	return nil
}

// panicked ends this session only. The request is answered, so that it does not
// fail the next session too.
func (s *session) panicked(r any) fuse.Status {
	s.log.Error("a guest's request failed because of a bug", "panic", r, "stack", string(debug.Stack()))
	s.cancel(holt.Errorf(holt.Internal, "a guest's request failed because of a bug: %v", r))
	return fuse.EIO
}
