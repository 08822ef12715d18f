package agent

import (
	"encoding/binary"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/guest/channel"
)

// testFS is a minimal in-memory FUSE server with one directory of files; the
// real one is package mount.
type testFS struct {
	mu     sync.Mutex
	files  map[uint64]*testFile
	names  map[string]uint64
	times  map[uint64][]int64 // that each request for a change came with, by its number
	ops    map[uint32]int
	tags   map[string]string // of the last WRITE, by file name
	seen   map[uint64]int    // how often each number came
	ack    uint64
	taken  int                      // notifications
	hold   func(opcode uint32) bool // true: never answer
	begun  chan struct{}            // closed when INIT has been answered
	once   sync.Once
	hellos []channel.Hello
	accept func(channel.Hello) [16]byte
}

type testFile struct {
	name string
	data []byte
	mode uint32
}

func newTestFS() *testFS {
	return &testFS{
		files: map[uint64]*testFile{}, names: map[string]uint64{}, ops: map[uint32]int{}, times: map[uint64][]int64{},
		tags: map[string]string{}, seen: map[uint64]int{}, begun: make(chan struct{}),
		hold: func(uint32) bool { return false }, accept: func(h channel.Hello) [16]byte { return h.Mount },
	}
}

func (f *testFS) counts() map[uint32]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.ops)
}

// serveFS serves f on conn until it ends.
func serveFS(t *testing.T, conn net.Conn, f *testFS) *testFS {
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		f.serve(conn)
	}()
	return f
}

func (f *testFS) serve(conn net.Conn) {
	r, w := channel.NewFrameReader(conn), channel.NewFrameWriter(conn)
	buf := make([]byte, channel.MaxFrame)
	for {
		kind, p, err := r.Next(buf)
		if err != nil {
			return
		}
		switch kind {
		case channel.FrameHello:
			h, _ := channel.ParseHello(p)
			f.mu.Lock()
			f.hellos = append(f.hellos, h)
			id := f.accept(h)
			f.mu.Unlock()
			w.Write(channel.FrameWelcome, id[:])
		case channel.FrameAck:
			n, _ := channel.ParseAck(p)
			f.mu.Lock()
			f.ack = n
			f.mu.Unlock()
		case channel.FrameTaken:
			n, _ := channel.ParseTaken(p)
			f.mu.Lock()
			f.taken += n
			f.mu.Unlock()
		case channel.FrameRequest:
			r, _ := channel.ParseRequest(p)
			m := r.Message
			if changes(u32(m[4:])) {
				f.mu.Lock()
				f.times[u64(m[8:])] = append(f.times[u64(m[8:])], r.Time)
				f.mu.Unlock()
			}
			head, body, send := f.answer(r.Tag, m)
			if send {
				w.Write(channel.FrameReply, head, body)
			}
			if binary.NativeEndian.Uint32(m[4:]) == opcodeInit && send {
				f.once.Do(func() { close(f.begun) })
			}
		}
	}
}

func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

func (f *testFS) answer(tag string, m []byte) (head, body []byte, send bool) {
	op, unique, node, in := u32(m[4:]), u64(m[8:]), u64(m[16:]), m[40:]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops[op]++
	f.seen[unique]++
	if f.hold(op) || op == opcodeForget || op == opcodeBatchForget || op == opcodeInterrupt {
		return nil, nil, false
	}
	body, errno := f.do(op, node, in, tag)
	if errno != 0 {
		return errorReply(unique, errno), nil, true
	}
	head = binary.NativeEndian.AppendUint32(nil, uint32(fuseOutHeader+len(body)))
	head = binary.NativeEndian.AppendUint32(head, 0)
	return binary.NativeEndian.AppendUint64(head, unique), body, true
}

func (f *testFS) do(op uint32, node uint64, in []byte, tag string) ([]byte, unix.Errno) {
	file := f.files[node]
	switch op {
	case opcodeInit:
		out := make([]byte, 64)
		binary.NativeEndian.PutUint32(out[0:], 7)
		binary.NativeEndian.PutUint32(out[4:], 31)
		binary.NativeEndian.PutUint32(out[8:], 4<<20)                    // max_readahead
		binary.NativeEndian.PutUint32(out[12:], 1|1<<3|1<<5|1<<22|1<<25) // ASYNC_READ ATOMIC_O_TRUNC? BIG_WRITES MAX_PAGES
		binary.NativeEndian.PutUint32(out[12:], 1|1<<5|1<<22)
		binary.NativeEndian.PutUint16(out[16:], 64) // max_background
		binary.NativeEndian.PutUint16(out[18:], 48)
		binary.NativeEndian.PutUint32(out[20:], 1<<20) // max_write
		binary.NativeEndian.PutUint32(out[24:], 1)
		binary.NativeEndian.PutUint16(out[28:], 256) // max_pages
		return out, 0
	case 1: // lookup
		n, ok := f.names[cstr(in)]
		if !ok {
			return nil, unix.ENOENT
		}
		return f.entry(n), 0
	case 3: // getattr
		return append(make([]byte, 16), f.attr(node)...), 0
	case 4: // setattr: valid u32, pad, fh, size
		if file != nil && u32(in)&8 != 0 {
			size := int(u64(in[16:]))
			file.data = append(file.data[:min(size, len(file.data))], make([]byte, max(0, size-len(file.data)))...)
		}
		return append(make([]byte, 16), f.attr(node)...), 0
	case 35: // create: flags, mode, umask, open_flags, name
		name := cstr(in[16:])
		n := uint64(len(f.files) + 2)
		f.files[n] = &testFile{name: name, mode: unix.S_IFREG | 0o755}
		f.names[name] = n
		f.tags[name] = tag
		return append(f.entry(n), make([]byte, 16)...), 0
	case 15: // read: fh, offset, size
		off, size := int(u64(in[8:])), int(u32(in[16:]))
		off = min(off, len(file.data))
		return file.data[off:min(len(file.data), off+size)], 0
	case 16: // write: fh, offset, size, …40 bytes
		off, size := int(u64(in[8:])), int(u32(in[16:]))
		if need := off + size - len(file.data); need > 0 {
			file.data = append(file.data, make([]byte, need)...)
		}
		copy(file.data[off:], in[40:40+size])
		f.tags[file.name] = tag
		return append(binary.NativeEndian.AppendUint32(nil, uint32(size)), 0, 0, 0, 0), 0
	case 10: // unlink
		delete(f.names, cstr(in))
		return nil, 0
	case 18, 20, 30: // release fsync fsyncdir
		return nil, 0
	}
	return nil, unix.ENOSYS
}

func cstr(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func (f *testFS) attr(n uint64) []byte {
	b := make([]byte, 88)
	mode, size := uint32(unix.S_IFDIR|0o777), 0
	if file := f.files[n]; file != nil {
		mode, size = file.mode, len(file.data)
	}
	binary.NativeEndian.PutUint64(b, n)
	binary.NativeEndian.PutUint64(b[8:], uint64(size))
	binary.NativeEndian.PutUint64(b[16:], uint64((size+511)/512))
	binary.NativeEndian.PutUint64(b[24:], uint64(time.Now().Unix()))
	binary.NativeEndian.PutUint32(b[60:], mode)
	binary.NativeEndian.PutUint32(b[64:], 1)
	binary.NativeEndian.PutUint32(b[68:], 1000)
	binary.NativeEndian.PutUint32(b[72:], 1000)
	binary.NativeEndian.PutUint32(b[80:], 4096)
	return b
}

// entry returns a lookup's answer: 40 bytes of ids and timeouts, then attributes.
func (f *testFS) entry(n uint64) []byte {
	b := make([]byte, 40)
	binary.NativeEndian.PutUint64(b, n)
	binary.NativeEndian.PutUint64(b[16:], 60) // entry_valid
	binary.NativeEndian.PutUint64(b[24:], 60) // attr_valid
	return append(b, f.attr(n)...)
}
