package mount

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt"
	"holt/internal/guest/channel"
)

// A guest that sends hello for one unknown mount after another does not fill the log.
func TestEndlessHellos(t *testing.T) {
	ws := newWorkspace(t)
	host, guest := socketPair(t)
	go io.Copy(io.Discard, guest)
	go func() {
		frames := channel.NewFrameWriter(guest)
		for n := uint64(1); ; n++ {
			hello := channel.Hello{Version: channel.FrameVersion}
			binary.LittleEndian.PutUint64(hello.Mount[:], n)
			if frames.Write(channel.FrameHello, hello.Append(nil)) != nil {
				return
			}
		}
	}()
	var log bytes.Buffer
	err := Guest(t.Context(), ws, host, GuestOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	guest.Close()
	if holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("the session ended with %v", err)
	}
	if n := strings.Count(log.String(), "\n"); n == 0 || n > maxRefused {
		t.Errorf("%d lines in the log", n)
	}
	if len(ws.Epochs()) != 0 {
		t.Errorf("mounts: %v", ws.Epochs())
	}
}

// A guest that writes to checkpoints without end, as only a kernel can, does
// not fill the log either.
func TestEndlessWritesToThePast(t *testing.T) {
	var log bytes.Buffer
	p := past{&tree{notifier: &Notifier{}, log: slog.New(slog.NewTextHandler(&log, nil))}}
	in := fuse.WriteIn{WriteFlags: fuse.WRITE_CACHE}
	in.NodeId = pastBit | 1<<pastInode | 2
	for range maxQueued + 1000 {
		if _, status := p.Write(nil, &in, []byte("x")); status != fuse.EROFS {
			t.Fatal(status)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

// FuzzInitReply: the recorded INIT reply, which may be damaged, determines how a mount is served.
func FuzzInitReply(f *testing.F) {
	good := make([]byte, initReplySize)
	binary.LittleEndian.PutUint32(good, initReplySize)
	binary.LittleEndian.PutUint32(good[outHeaderSize+20:], 1<<20)
	f.Add(good)
	f.Add(good[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseInitReply(b)
		if err != nil {
			return
		}
		if terms := r.terms(); !terms.ready || terms.transfer > maxTransfer {
			t.Errorf("%+v", terms)
		}
	})
}

// FuzzScanMounts: for any mount table, only entries of dir itself match.
func FuzzScanMounts(f *testing.F) {
	f.Add("36 35 0:51 / /mnt/a\\040b rw shared:1 - fuse.holt holt rw\n", "/mnt/a b")
	f.Add("36 35 0:51 / / rw\n36 35 x:y / /m rw - fuse.holt\n", "/m")
	f.Add("1 2 0:99999999999 / /\\9 - \n", "/")
	f.Fuzz(func(t *testing.T, table, dir string) {
		m, ok, err := scanMounts(strings.NewReader(table), dir)
		if err == nil && !ok && m != (mounted{}) {
			t.Errorf("%+v", m)
		}
	})
}
