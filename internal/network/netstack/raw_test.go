package netstack

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRaw: raw reads and writes of a socket wait, end, fail and have deadlines like others.
func TestRaw(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	c, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	it, want := raw{c}, bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // more than a socket holds
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(other, int64(len(want))))
		got <- b
	}()
	if n, err := it.Write(want); n != len(want) || err != nil {
		t.Fatalf("wrote %d of %d: %v", n, len(want), err)
	}
	if !bytes.Equal(<-got, want) {
		t.Fatal("something else arrived")
	}
	b := make([]byte, 9)
	conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := it.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d until the deadline: %v", n, err)
	}
	conn.SetReadDeadline(time.Time{})
	time.AfterFunc(10*time.Millisecond, func() { other.Write([]byte("late")); other.(*net.TCPConn).CloseWrite() })
	if n, err := it.Read(b); string(b[:n]) != "late" || err != nil {
		t.Errorf("read %q: %v", b[:n], err)
	}
	if n, err := it.Read(b); n != 0 || err != io.EOF {
		t.Errorf("read %d at the end: %v", n, err)
	}
	other.(*net.TCPConn).SetLinger(0)
	other.Close()
	for err = nil; err == nil; {
		_, err = it.Write(want)
	}
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		t.Errorf("write to who has gone: %v", err)
	}
	conn.Close()
	if _, err := it.Read(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of what is closed: %v", err)
	}
}
