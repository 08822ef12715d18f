package db

import "zombiezen.com/go/sqlite/sqlitex"

// Tx is a running transaction. It is valid only during the function it is passed to.
type Tx struct{ conn *Conn }

// Row is the current row of a query, valid only during the call it is passed
// to. Columns count from 0.
type Row struct{ stmt *Stmt }

// Exec runs one statement. Arguments are bound to ?1, ?2 … in order: integers,
// floats, strings, []byte, bool and nil.
func (t *Tx) Exec(sql string, args ...any) error {
	return sqlitex.Execute(t.conn, sql, &sqlitex.ExecOptions{Args: args})
}

// Query runs one statement and calls fn for each row until it fails.
func (t *Tx) Query(sql string, args []any, fn func(*Row) error) error {
	row := &Row{}
	return sqlitex.Execute(t.conn, sql, &sqlitex.ExecOptions{
		Args: args, ResultFunc: func(s *Stmt) error { row.stmt = s; return fn(row) },
	})
}

// Changes returns how many rows the last statement changed.
func (t *Tx) Changes() int { return t.conn.Changes() }

// Prepare returns a statement that the connection caches, for callers that run
// it thousands of times.
func (t *Tx) Prepare(sql string) (*Stmt, error) { return t.conn.Prepare(sql) }

// Int64 returns a column as an integer.
func (r *Row) Int64(i int) int64 { return r.stmt.ColumnInt64(i) }

// Float returns a column as a float.
func (r *Row) Float(i int) float64 { return r.stmt.ColumnFloat(i) }

// Text returns a column as a string.
func (r *Row) Text(i int) string { return r.stmt.ColumnText(i) }

// Bytes returns a copy of a column's bytes.
func (r *Row) Bytes(i int) []byte {
	b := make([]byte, r.stmt.ColumnLen(i))
	r.stmt.ColumnBytes(i, b)
	return b
}

// Null reports whether a column is NULL.
func (r *Row) Null(i int) bool { return r.stmt.ColumnIsNull(i) }
