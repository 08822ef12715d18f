package db

import (
	"context"
	"errors"
	"sync"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// spares are reading connections that nobody waits for: where none is idle one
// is opened.
type spares struct {
	mu     sync.Mutex
	idle   []*Conn
	closed bool
	used   sync.WaitGroup
}

// mostIdle is how many spares stay open for the next.
const mostIdle = 2

// ReadNow is [DB.Read] that never waits for other readers. It is for who holds a lock
// that writers wait for, and for who reads already: how many there are at once
// is theirs to bound.
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
		c.Close() // nothing was written
		return
	}
	s.idle = append(s.idle, c)
}

// close waits for those that are used.
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
