package db

import (
	"context"
	"errors"
	"sync"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// spares is a pool of read connections that opens a new one if none is idle, so
// that no caller waits.
type spares struct {
	mu     sync.Mutex
	idle   []*Conn
	closed bool
	used   sync.WaitGroup
}

// mostIdle is the number of idle connections that stay open.
const mostIdle = 2

// ReadNow is [DB.Read] without the limit on concurrent readers. It is for
// callers that hold a lock that writers wait for, and for callers that are
// already readers. The callers bound how many run at once.
func (d *DB) ReadNow(ctx context.Context, fn func(*Tx) error) (err error) {
	c, err := d.spares.take(d.path)
	if err != nil {
		return err
	}
	defer d.spares.put(c)
	if err := ctx.Err(); err != nil {
		return err
	}
	c.SetInterrupt(ctx.Done())
	defer sqlitex.Transaction(c)(&err)
	return fn(&Tx{c})
}

func (s *spares) take(path string) (*Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.used.Add(1)
		return c, nil
	}
	c, err := connect(path, sqlite.OpenReadOnly)
	if err == nil {
		s.used.Add(1)
	}
	return c, err
}

func (s *spares) put(c *Conn) {
	defer s.used.Done()
	c.SetInterrupt(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.idle) >= mostIdle {
		c.Close() // read only
		return
	}
	s.idle = append(s.idle, c)
}

// close waits for the connections in use.
func (s *spares) close() (err error) {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.idle {
		err = errors.Join(err, c.Close())
	}
	s.idle = nil
	s.mu.Unlock()
	s.used.Wait()
	return err
}
