package db

import (
	"encoding/base64"
	"math"
	"strings"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"holt"
)

// run prepares and steps one statement.
func run(c *Conn, sql string, limits Limits) (holt.QueryResult, error) {
	res := holt.QueryResult{Rows: [][]any{}}
	stmt, trailing, err := c.PrepareTransient(sql)
	if err != nil {
		return res, err
	}
	defer stmt.Finalize()
	if strings.Trim(sql[len(sql)-trailing:], "; \t\r\n") != "" {
		return res, holt.Errorf(holt.InvalidArgument, "the query has more than one statement").WithHint("send one statement at a time")
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

// value converts a column for JSON.
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
