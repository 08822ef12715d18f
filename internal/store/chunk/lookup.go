package chunk

import (
	"context"
	"errors"
	"fmt"

	"holt/internal/store/db"
)

// lookups runs the queries that are needed for every chunk, on connections with
// prepared statements: preparing costs ten times as much as running.
type lookups struct {
	index *db.DB
	idle  chan *lookup
}

type lookup struct {
	conn  *db.Conn
	stmts map[string]*db.Stmt
}

// query runs a query and calls fn for each row.
func (l *lookups) query(ctx context.Context, sql string, bind, fn func(*db.Stmt)) error {
	if err := ended(ctx); err != nil {
		return err
	}
	c, err := l.take()
	if err != nil {
		return fmt.Errorf("read chunk index: %w", err)
	}
	if err := c.query(sql, bind, fn); err != nil {
		return errors.Join(fmt.Errorf("read chunk index: %w", err), c.conn.Close())
	}
	select {
	case l.idle <- c:
		return nil
	default:
		return c.conn.Close()
	}
}

func (l *lookups) take() (*lookup, error) {
	select {
	case c := <-l.idle:
		return c, nil
	default:
	}
	conn, err := l.index.Reader()
	return &lookup{conn, map[string]*db.Stmt{}}, err
}

func (c *lookup) query(sql string, bind, fn func(*db.Stmt)) error {
	stmt := c.stmts[sql]
	if stmt == nil {
		var err error
		if stmt, err = c.conn.Prepare(sql); err != nil {
			return err
		}
		c.stmts[sql] = stmt
	}
	bind(stmt)
	for {
		more, err := stmt.Step()
		if err != nil {
			return err
		}
		if !more {
			return stmt.Reset()
		}
		fn(stmt)
	}
}

// close closes the idle connections; when no query runs, that is all of them.
func (l *lookups) close() (err error) {
	for {
		select {
		case c := <-l.idle:
			err = errors.Join(err, c.conn.Close())
		default:
			return err
		}
	}
}
