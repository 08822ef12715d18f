package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"holt"
)

// Limits limit one user query. Zero fields take the defaults.
type Limits struct {
	Time  time.Duration // default 10 s
	Rows  int           // default 10,000
	Bytes int           // of all values together; default 16 MiB
}

// LimitsOf returns the limits of a query of one table, which takes at most a minute. of names the table in errors.
func LimitsOf(q holt.TableQuery, of string) (Limits, error) {
	l := Limits{Time: time.Duration(q.TimeoutMS) * time.Millisecond, Rows: q.MaxRows}
	if l.Time > time.Minute {
		return l, holt.Errorf(holt.InvalidArgument, "invalid timeout: the maximum of a query of %s is %s", of, holt.ShortDuration(time.Minute)).WithHint("give a shorter timeout")
	}
	return l, nil
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

// Source is a database that users can query.
type Source struct {
	DB     *DB     // nil: none, only Tables
	Views  string  // SQL that is run first; its temporary views hide those of the database
	Tables []Table // besides those of the database

	// For Across.
	Name   string
	Keys   []Key
	Unique map[string][]string // key columns of views and Tables
}

// Query runs one SELECT of a user in one read transaction, on its own read-only
// connection, with an authorizer that allows only reading, and within limits. A
// result that exceeds them is truncated and marked Truncated. Errors are
// InvalidArgument (the SQL), Timeout, or those of a [Table].
func (s Source) Query(ctx context.Context, sql string, limits Limits) (holt.QueryResult, error) {
	return ask(ctx, sql, limits, func(a *asked) (*Conn, error) { return a.source(s) })
}

// These limits bound the memory and time of a query. SQLite keeps values in
// registers, at most one per instruction, and spills the rest to files above a
// few MiB. The first two limits together allow about 300 MiB in the worst case;
// usual queries have some hundred instructions. The length limits the time of a
// single instruction, which cannot be interrupted: instr, replace and LIKE
// multiply the lengths of their arguments.
const (
	mostValue   = 256 << 10 // bytes of one value, and of one row in a sorter
	mostSteps   = 43 << 6   // instructions; SQLite grows the program by doubling from 42
	mostSQL     = 128 << 10 // bytes
	mostColumns = 200
	mostPattern = 1000 // bytes of a pattern of LIKE or GLOB
)

// asked is the state of one query.
type asked struct {
	ctx     context.Context
	conns   []*Conn
	refused error // the error of a table; SQLite passes on only its text
	held    int   // rows of tables held by cursors
}

// ask runs one query on the connection that open returns.
func ask(ctx context.Context, sql string, limits Limits, open func(*asked) (*Conn, error)) (holt.QueryResult, error) {
	limits = limits.withDefaults()
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limits.Time)
	defer cancel()
	a := &asked{ctx: ctx}
	defer a.close()
	c, err := open(a)
	if err != nil {
		if ctx.Err() != nil {
			return holt.QueryResult{}, a.explain(sql, err, limits)
		}
		return holt.QueryResult{}, holt.Errorf(holt.Unavailable, "open index: %w", err)
	}
	if err := c.SetAuthorizer(sqlite.AuthorizeFunc(authorize)); err != nil {
		return holt.QueryResult{}, err
	}
	if len(sql) > mostSQL {
		return holt.QueryResult{}, holt.Errorf(holt.InvalidArgument, "the query is longer than %d KiB", mostSQL>>10)
	}
	res, err := run(c, sql, limits)
	if err != nil {
		return holt.QueryResult{}, a.explain(sql, err, limits)
	}
	res.ElapsedMS = float64(time.Since(start).Microseconds()) / 1000
	return res, nil
}

// source opens a source. All reads of it see one state.
func (a *asked) source(s Source) (*Conn, error) {
	path, flags := ":memory:", sqlite.OpenReadWrite
	if s.DB != nil {
		path, flags = s.DB.path, sqlite.OpenReadOnly
	}
	c, err := a.connect(path, flags)
	if err != nil {
		return nil, err
	}
	for _, t := range s.Tables {
		if err := c.SetModule(t.Name, &sqlite.Module{Connect: a.computed(t, s.Name)}); err != nil {
			return nil, err
		}
	}
	if s.Views != "" {
		if err := sqlitex.ExecuteScript(c, s.Views, nil); err != nil {
			return nil, err
		}
	}
	for _, sql := range []string{"BEGIN", "SELECT 1 FROM sqlite_schema LIMIT 1"} {
		if err := sqlitex.ExecuteTransient(c, sql, nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// connect opens a connection that is closed with the query.
func (a *asked) connect(path string, flags sqlite.OpenFlags) (*Conn, error) {
	c, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	a.conns = append(a.conns, c)
	c.SetBusyTimeout(busy)
	c.SetInterrupt(a.ctx.Done())
	for limit, n := range map[sqlite.Limit]int32{sqlite.LimitLength: mostValue, sqlite.LimitVDBEOp: mostSteps, sqlite.LimitColumn: mostColumns,
		sqlite.LimitLikePatternLength: mostPattern, sqlite.LimitAttached: 0} {
		c.Limit(limit, n)
	}
	return c, nil // never SetDefensive: the driver passes too few arguments, and SQLite writes to a garbage address
}

// close closes the connections of the query, first the one that reads from the others.
func (a *asked) close() {
	for i := len(a.conns) - 1; i >= 0; i-- {
		a.conns[i].Close() // read only
	}
}

// explain turns an error of SQLite into one for the author of the query.
func (a *asked) explain(sql string, err error, limits Limits) error {
	var e *holt.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(a.ctx.Err(), context.DeadlineExceeded):
		return holt.Errorf(holt.Timeout, "the query took longer than %s", holt.ShortDuration(limits.Time)).
			WithHint("select fewer rows, or allow more time")
	case a.ctx.Err() != nil:
		return holt.Errorf(holt.Timeout, "the query was cancelled: %w", a.ctx.Err())
	case a.refused != nil:
		return holt.AsError(a.refused)
	}
	const only = "send one SELECT; PRAGMA, ATTACH and changes are not allowed"
	reason := reasonOf(err)
	switch code := sqlite.ErrCode(err).ToPrimary(); {
	case code == sqlite.ResultAuth, strings.HasPrefix(reason, "cannot modify"):
		return holt.Errorf(holt.InvalidArgument, "the query is not read-only").WithHint(only)
	case code == sqlite.ResultTooBig:
		return holt.Errorf(holt.InvalidArgument, "a value or row of the query exceeds %d KiB", mostValue>>10).
			WithHint("return many rows instead of one large value")
	case code == sqlite.ResultNoMem:
		return holt.Errorf(holt.InvalidArgument, "the query is too complex: it needs more than %d SQLite instructions", mostSteps).
			WithHint("split it into several queries")
	case code == sqlite.ResultFull:
		return holt.Errorf(holt.OutOfSpace, "the disk that holds temporary files is full").WithHint("select fewer rows, or omit ORDER BY")
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

// reasonOf returns SQLite's own message without the driver's prefix.
func reasonOf(err error) string {
	code := sqlite.ErrCode(err).Message()
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return strings.TrimPrefix(err.Error(), code+": ")
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
