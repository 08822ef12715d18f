package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// serve obeys orders on every connection until the program is killed: see port.go for
// them. It prints its address first.
func serve(w work) (result, error) {
	l, err := net.Listen("tcp4", w.addr)
	if err != nil {
		return result{}, err
	}
	fmt.Println(l.Addr())
	return result{}, serveOn(l)
}

func serveOn(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			servePort(conn) // until the other end hangs up
		}()
	}
}

// send and fetch move -mb MiB to a served address, or from it.
func send(w work) (result, error)  { return moved(w, orderIn) }
func fetch(w work) (result, error) { return moved(w, orderOut) }

func moved(w work, order byte) (result, error) {
	conn, err := net.Dial("tcp4", w.addr)
	if err != nil {
		return result{}, err
	}
	defer conn.Close()
	size := int64(w.mb) << 20
	start := time.Now()
	if _, err := conn.Write(binary.LittleEndian.AppendUint64([]byte{order}, uint64(size))); err != nil {
		return result{}, err
	}
	buf := make([]byte, portPiece)
	if order == orderOut {
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(struct{ io.Reader }{conn}, size), buf)
		return since(start, 1, int(size)), err
	}
	for left := size; left > 0; left -= portPiece {
		if _, err := conn.Write(buf[:min(left, portPiece)]); err != nil {
			return result{}, err
		}
	}
	err = heard(conn, orderIn)
	return since(start, 1, int(size)), err
}

// dial opens -n connections, one after the other, and has each answer once; echo has one
// connection answer -n times.
func dial(w work) (result, error) {
	start := time.Now()
	for range w.n {
		conn, err := net.Dial("tcp4", w.addr)
		if err != nil {
			return result{}, err
		}
		err = asked(conn)
		conn.Close()
		if err != nil {
			return result{}, err
		}
	}
	return since(start, w.n, 0), nil
}

func echo(w work) (result, error) {
	conn, err := net.Dial("tcp4", w.addr)
	if err != nil {
		return result{}, err
	}
	defer conn.Close()
	if err := asked(conn); err != nil { // the first is the connection's
		return result{}, err
	}
	start := time.Now()
	for range w.n {
		if err := asked(conn); err != nil {
			return result{}, err
		}
	}
	return since(start, w.n, 0), nil
}

func asked(conn net.Conn) error {
	if _, err := conn.Write([]byte{'?'}); err != nil {
		return err
	}
	return heard(conn, '?')
}

func heard(conn net.Conn, want byte) error {
	var b [1]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	if b[0] != want {
		return fmt.Errorf("the answer is %q, not %q: %w", b[0], want, unix.EPROTO)
	}
	return nil
}
