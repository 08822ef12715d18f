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

// Source is a database that users may ask, and what they find there.
type Source struct {
	DB     *DB
	Views  string  // SQL of ours that is run first: temporary views go before the database's
	Tables []Table // besides those of the database

	// For Across.
	Name   string
	Keys   []Key
	Unique map[string][]string // columns that tell the rows of a view, or of one of Tables, apart
}

// Query runs one SELECT that a user sent: on a read-only connection of its own
// whose authorizer refuses everything but reading, in one transaction, within
// limits. A result that is too long is cut and marked Truncated. Errors are
// InvalidArgument (the SQL), Timeout, or those of a [Table].
func (s Source) Query(ctx context.Context, sql string, limits Limits) (holt.QueryResult, error) {
	return ask(ctx, sql, limits, func(a *asked) (*Conn, error) { return a.source(s) })
}

// What bounds the memory of a query: SQLite keeps its program's values in
// registers, of which an instruction fills one at most, and puts everything
// else aside in files once it takes more than a few MiB. The first two
// together are some 300 MiB for a program that does nothing but that; usual
// queries have some hundred instructions. The length bounds the time of an
// instruction too, which nothing interrupts: instr, replace and LIKE multiply
// the lengths of what they are given.
const (
	mostValue   = 256 << 10 // bytes of one value, and of one row on its way
	mostSteps   = 43 << 6   // instructions; SQLite doubles what it has, beginning with 42
	mostSQL     = 128 << 10 // bytes
	mostColumns = 200
	mostPattern = 1000 // bytes of a pattern of LIKE or GLOB
)

// asked is one question while it is answered.
type asked struct {
	ctx     context.Context
	conns   []*Conn
	refused error // what a table said; SQLite passes only its text on
	held    int   // rows of tables that cursors hold
}

// ask answers one question on the connection that open returns.
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

// source opens a source: everything that is read of it from now on is of one
// state of it.
func (a *asked) source(s Source) (*Conn, error) {
	c, err := a.connect(s.DB.path, sqlite.OpenReadOnly)
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

// connect opens a connection that ends with the question.
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
	return c, nil // never SetDefensive: the driver passes too few arguments, and SQLite writes through what follows them
}

// close ends what the question opened: first the connection that reads of the
// others.
func (a *asked) close() {
	for i := len(a.conns) - 1; i >= 0; i-- {
		a.conns[i].Close() // nothing was written
	}
}

// explain says what is wrong with a query as its author can use it.
func (a *asked) explain(sql string, err error, limits Limits) error {
	var e *holt.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(a.ctx.Err(), context.DeadlineExceeded):
		return holt.Errorf(holt.Timeout, "the query took longer than %s", holt.ShortDuration(limits.Time)).
			WithHint("ask for less, or allow more time")
	case a.ctx.Err() != nil:
		return holt.Errorf(holt.Timeout, "the query was given up: %w", a.ctx.Err())
	case a.refused != nil:
		return holt.AsError(a.refused)
	}
	const only = "one SELECT; no PRAGMA, ATTACH or change of any kind"
	reason := reasonOf(err)
	switch code := sqlite.ErrCode(err).ToPrimary(); {
	case code == sqlite.ResultAuth, strings.HasPrefix(reason, "cannot modify"):
		return holt.Errorf(holt.InvalidArgument, "a query can only read").WithHint(only)
	case code == sqlite.ResultTooBig:
		return holt.Errorf(holt.InvalidArgument, "the query made a value, or a row, of more than %d KiB", mostValue>>10).
			WithHint("ask for rows instead of putting many values into one")
	case code == sqlite.ResultNoMem:
		return holt.Errorf(holt.InvalidArgument, "the query is too large: SQLite needs more than %d instructions for it", mostSteps).
			WithHint("ask in several queries")
	case code == sqlite.ResultFull:
		return holt.Errorf(holt.OutOfSpace, "the disk that holds temporary files is full").WithHint("ask for less, or without ORDER BY")
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
