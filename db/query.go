package db

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"holt"
)

// Limits bound one user query. Zero fields take the defaults.
type Limits struct {
	Time  time.Duration // default 10 s
	Rows  int           // default 10,000
	Bytes int           // of all values together; default 16 MiB
}

func (l Limits) withDefaults() Limits {
	if l.Time <= 0 {
		l.Time = 10 * time.Second
	}
	if l.Rows <= 0 {
		l.Rows = 10_000
	}
	if l.Bytes <= 0 {
		l.Bytes = 16 << 20
	}
	return l
}

// Query runs one SELECT that a user sent: on a read-only connection whose
// authorizer refuses everything but reading, within limits. A result that is
// too long is cut and marked Truncated. Errors are InvalidArgument (the SQL)
// or Timeout.
func (d *DB) Query(ctx context.Context, sql string, limits Limits) (holt.QueryResult, error) {
	limits = limits.withDefaults()
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limits.Time)
	defer cancel()
	c, err := d.takeGuarded()
	if err != nil {
		return holt.QueryResult{}, holt.Errorf(holt.Unavailable, "open index: %w", err)
	}
	defer d.putGuarded(c)
	c.SetInterrupt(ctx.Done())
	defer c.SetInterrupt(nil)
	res, err := run(c, sql, limits)
	if err != nil {
		return holt.QueryResult{}, queryError(ctx, sql, err, limits)
	}
	res.ElapsedMS = float64(time.Since(start).Microseconds()) / 1000
	return res, nil
}

// queryError says what is wrong with a query as its author can use it.
func queryError(ctx context.Context, sql string, err error, limits Limits) error {
	var e *holt.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return holt.Errorf(holt.Timeout, "the query took longer than %v", limits.Time).
			WithHint("ask for less, or allow more time")
	case ctx.Err() != nil:
		return holt.Errorf(holt.Timeout, "the query was given up: %w", ctx.Err())
	}
	const only = "one SELECT; no PRAGMA, ATTACH or change of any kind"
	reason := reasonOf(err)
	switch code := sqlite.ErrCode(err).ToPrimary(); {
	case code == sqlite.ResultAuth, strings.HasPrefix(reason, "cannot modify"):
		return holt.Errorf(holt.InvalidArgument, "a query can only read").WithHint(only)
	case code == sqlite.ResultTooBig:
		return holt.Errorf(holt.InvalidArgument, "the query made a value of more than %d MiB", mostValue>>20)
	case reason == "incomplete input":
		reason = "the statement is not complete"
	}
	if at, ok := sqlite.ErrorOffset(err); ok && at <= len(sql) {
		before := sql[:at]
		line := strings.LastIndexByte(before, '\n') + 1
		reason = fmt.Sprintf("%s, at line %d, column %d", reason, strings.Count(before, "\n")+1, utf8.RuneCountInString(before[line:])+1)
	}
	return holt.Errorf(holt.InvalidArgument, "in the query: %s", strings.ToValidUTF8(reason, "\uFFFD"))
}

// reasonOf is SQLite's own sentence, without what the driver puts before it.
func reasonOf(err error) string {
	code := sqlite.ErrCode(err).Message()
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return strings.TrimPrefix(err.Error(), code+": ")
}

// run prepares and steps one statement.
func run(c *Conn, sql string, limits Limits) (holt.QueryResult, error) {
	res := holt.QueryResult{Rows: [][]any{}}
	stmt, trailing, err := c.PrepareTransient(sql)
	if err != nil {
		return res, err
	}
	defer stmt.Finalize()
	if strings.Trim(sql[len(sql)-trailing:], "; \t\r\n") != "" {
		return res, holt.Errorf(holt.InvalidArgument, "the query holds more than one statement").WithHint("send them one by one")
	}
	n := stmt.ColumnCount()
	if n == 0 {
		return res, holt.Errorf(holt.InvalidArgument, "the query returns no columns").WithHint("send one SELECT")
	}
	for i := range n {
		res.Columns = append(res.Columns, strings.ToValidUTF8(stmt.ColumnName(i), "\uFFFD"))
	}
	for size := 0; ; {
		more, err := stmt.Step()
		if err != nil || !more {
			return res, err
		}
		for i := range n {
			size += 16
			if t := stmt.ColumnType(i); t == sqlite.TypeText || t == sqlite.TypeBlob {
				size += stmt.ColumnLen(i)
			}
		}
		if len(res.Rows) == limits.Rows || size > limits.Bytes {
			res.Truncated = true
			return res, nil
		}
		row := make([]any, n)
		for i := range n {
			row[i] = value(stmt, i)
		}
		res.Rows = append(res.Rows, row)
	}
}

// value returns a column as JSON can carry it.
func value(stmt *Stmt, i int) any {
	switch stmt.ColumnType(i) {
	case sqlite.TypeInteger:
		return stmt.ColumnInt64(i)
	case sqlite.TypeFloat:
		f := stmt.ColumnFloat(i)
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return stmt.ColumnText(i)
		}
		return f
	case sqlite.TypeNull:
		return nil
	}
	b := make([]byte, stmt.ColumnLen(i))
	stmt.ColumnBytes(i, b)
	if utf8.Valid(b) {
		return string(b)
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString(b)}
}

// mostValue bounds one value of a query, in bytes.
const mostValue = 32 << 20

// takeGuarded returns a connection that can only read.
func (d *DB) takeGuarded() (*Conn, error) {
	select {
	case c := <-d.guarded:
		return c, nil
	default:
	}
	c, err := d.Reader()
	if err != nil {
		return nil, err
	}
	c.Limit(sqlite.LimitLength, mostValue)
	c.Limit(sqlite.LimitSQLLength, 1<<20)
	c.Limit(sqlite.LimitAttached, 0)
	if err := c.SetDefensive(true); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.SetAuthorizer(sqlite.AuthorizeFunc(authorize)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (d *DB) putGuarded(c *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writer != nil {
		select {
		case d.guarded <- c:
			return
		default:
		}
	}
	c.Close()
}

// authorize allows reading and nothing else.
func authorize(a sqlite.Action) sqlite.AuthResult {
	switch a.Type() {
	case sqlite.OpSelect, sqlite.OpRead, sqlite.OpRecursive:
		return sqlite.AuthResultOK
	case sqlite.OpFunction:
		if !strings.EqualFold(a.Operation(), "load_extension") {
			return sqlite.AuthResultOK
		}
	}
	return sqlite.AuthResultDeny
}
