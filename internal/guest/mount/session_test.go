package mount

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/guest/channel"
	"holt/internal/workspace"
)

// sessionOf returns a session's frames for these messages.
func sessionOf(messages ...message) []byte {
	hello := channel.Hello{Mount: [16]byte{1}, Version: channel.FrameVersion, Fresh: true}.Append(nil)
	b := binary.LittleEndian.AppendUint32(nil, uint32(1+len(hello)))
	b = append(append(b, byte(channel.FrameHello)), hello...)
	for i, m := range append([]message{askInit(31)}, messages...) {
		binary.LittleEndian.PutUint64(m[8:], uint64(i+1))
		b = append(channel.RequestHeader(b, -1<<62, "run/x", len(m)), m...)
	}
	return b
}

// FuzzGuest sends arbitrary bytes to sessions; the workspace must be intact when all have ended.
func FuzzGuest(f *testing.F) {
	f.Add(sessionOf(goodRequests()...))
	for _, m := range goodRequests() {
		f.Add(sessionOf(m, m))
	}
	made := ask(opCreate, 1, uint32(0o101), uint32(0o644), 8, "n\x00")
	f.Add(sessionOf(made, made, ask(opWrite, 2, 8, uint64(1<<40), uint32(4), 20, "data"), ask(opRename2, 1, uint64(1), uint32(0), 4, "n\x00m\x00"),
		ask(opFallocate, 2, 8, uint64(3), uint64(1<<62), 8), ask(opRead, 2, 8, uint64(1<<40-2), uint32(maxTransfer), 20)))
	ws := newWorkspace(f) // checked at the end of all
	f.Fuzz(func(t *testing.T, stream []byte) {
		for _, e := range ws.Epochs() { // each is a mount of its own
			if err := ws.EndEpoch(e.Epoch); err != nil {
				t.Fatal(err)
			}
		}
		host, guest := net.Pipe()
		result := make(chan error, 1)
		go func() { result <- Guest(context.Background(), ws, host, GuestOptions{}) }()
		go func() {
			guest.Write(stream)
			guest.Close()
		}()
		go io.Copy(io.Discard, guest)
		if err := <-result; holt.CodeOf(err) == holt.Internal {
			t.Error(err)
		}
	})
}

// TestPanicEndsOneSession: after a panic in a session the request is answered,
// so that it is not repeated, and the session ends.
func TestPanicEndsOneSession(t *testing.T) {
	ws := newWorkspace(t)
	k := newKernel(t)
	k.tag = func(m message) string {
		if m.opcode() == opMkdir {
			return "defect"
		}
		return ""
	}
	host, guest := socketPair(t)
	result, attached := make(chan error, 1), make(chan error, 1)
	go func() {
		result <- Guest(t.Context(), ws, host, GuestOptions{Writer: func(string) workspace.Writer { panic("a defect") }})
	}()
	go func() { attached <- k.attach(guest) }()
	if err := unix.Mkdir(filepath.Join(k.dir, "d"), 0o755); err != unix.EIO {
		t.Errorf("mkdir: %v, want EIO", err)
	}
	if err := <-result; holt.CodeOf(err) != holt.Internal {
		t.Errorf("got %v, want Internal", err)
	}
	<-attached
	serveGuest(t, ws, k, GuestOptions{})
	if err := unix.Mkdir(filepath.Join(k.dir, "d"), 0o755); err != nil {
		t.Errorf("mkdir in the next session: %v", err)
	}
}

// panicky is a file system that panics.
type panicky struct{ fuse.RawFileSystem }

func (panicky) GetAttr(<-chan struct{}, *fuse.GetAttrIn, *fuse.AttrOut) fuse.Status {
	panic("a defect")
}

func TestPanicInWork(t *testing.T) {
	ws := newWorkspace(t)
	host, guest := socketPair(t)
	defer guest.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newSession(ctx, cancel, ws, host, GuestOptions{Notifier: &Notifier{}, Log: testLog(t)})
	opt := protocolOptions(s.log)
	opt.PanicHandler = s.panicked
	s.server = fuse.NewProtocolServer(panicky{fuse.NewDefaultRawFileSystem()}, opt)
	m := askInit(31)
	s.server.HandleRequest([][]byte{m}, [][]byte{make([]byte, smallReply)})
	sl := <-s.free
	sl.in = s.buffers.Get().(*[]byte)
	s.work(sl, ask(opGetattr, 1, 16))
	if holt.CodeOf(context.Cause(ctx)) != holt.Internal {
		t.Errorf("the session goes on: %v", context.Cause(ctx))
	}
	kind, payload, err := channel.NewFrameReader(guest).Next(nil)
	if err != nil || kind != channel.FrameReply || int32(binary.LittleEndian.Uint32(payload[4:])) != -int32(unix.EIO) {
		t.Errorf("answered %d %x, %v", kind, payload, err)
	}
}
