package client

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// source lets several attempts at one call read from the same reader, one
// after the other, although the first may still be blocked in it when its
// connection breaks. As long as given is 0 nothing has been used up.
type source struct {
	chunks  chan []byte
	err     error // of the reader; set before chunks is closed
	given   atomic.Int64
	stopped chan struct{}
}

// newSource starts to read. The goroutine ends with the reader, or after stop
// with the Read that it is in.
func newSource(r io.Reader) *source {
	s := &source{chunks: make(chan []byte), stopped: make(chan struct{})}
	go s.pump(r)
	return s
}

func (s *source) pump(r io.Reader) {
	defer close(s.chunks)
	for {
		buf := make([]byte, 64<<10)
		n, err := r.Read(buf)
		if n > 0 {
			select {
			case s.chunks <- buf[:n]:
			case <-s.stopped:
				return
			}
		}
		if err != nil {
			s.err = err
			return
		}
	}
}

func (s *source) stop() { close(s.stopped) }

// attempt returns the body of one call.
func (s *source) attempt() *attempt { return &attempt{s: s, closed: make(chan struct{})} }

type attempt struct {
	s      *source
	rest   []byte
	closed chan struct{}
	once   sync.Once
}

func (a *attempt) Read(p []byte) (int, error) {
	if len(a.rest) == 0 {
		select {
		case <-a.closed: // first: nothing may be taken for a broken connection
			return 0, os.ErrClosed
		default:
		}
		select {
		case <-a.closed:
			return 0, os.ErrClosed
		case chunk, ok := <-a.s.chunks:
			if !ok {
				return 0, a.s.err
			}
			a.s.given.Add(int64(len(chunk)))
			a.rest = chunk
		}
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *attempt) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}
